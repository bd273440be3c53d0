"""PRM families: how each is prompted, which head it has, and how its scores are read."""

from surefoot.families.base import Family, StepValue, with_options
from surefoot.families.builder import PromptBuilder
from surefoot.families.catalog import CatalogEntry, Size
from surefoot.families.goldens import Golden, find_goldens
from surefoot.families.registry import FAMILIES, all_families, all_models, find_family, find_models
from surefoot.families.tokenizer import PromptTokenizer

__all__ = [
    "FAMILIES",
    "CatalogEntry",
    "Family",
    "Golden",
    "PromptBuilder",
    "PromptTokenizer",
    "Size",
    "StepValue",
    "all_families",
    "all_models",
    "find_family",
    "find_goldens",
    "find_models",
    "with_options",
]
