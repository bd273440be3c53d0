"""PRM families: how each is prompted, which head it has, and how its scores are read."""

from surefoot.core.options import with_options
from surefoot.families.base import Family, StepValue
from surefoot.families.builder import PromptBuilder
from surefoot.families.catalog import CatalogEntry
from surefoot.families.goldens import Golden, find_goldens
from surefoot.families.makers import MakersCode
from surefoot.families.registry import (
    FAMILIES,
    all_families,
    all_models,
    find_family,
    find_models,
    recommended_aggregation,
    trained_tokens,
)
from surefoot.families.sizes import Size
from surefoot.families.tokenizer_check import TokenizerCheck, adopt_settings, check_settings
from surefoot.tokenization.settings import TokenizerSettings, read_tokenizer_settings
from surefoot.tokenization.tokenizer import PromptTokenizer

__all__ = [
    "FAMILIES",
    "CatalogEntry",
    "Family",
    "Golden",
    "MakersCode",
    "PromptBuilder",
    "PromptTokenizer",
    "Size",
    "StepValue",
    "TokenizerCheck",
    "TokenizerSettings",
    "adopt_settings",
    "all_families",
    "all_models",
    "check_settings",
    "find_family",
    "find_goldens",
    "find_models",
    "read_tokenizer_settings",
    "recommended_aggregation",
    "trained_tokens",
    "with_options",
]
