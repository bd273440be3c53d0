"""The PRM families that Surefoot knows, and the way from a checkpoint to its family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.errors import CheckpointError, OptionError
from surefoot.families.actprm import ActPRM
from surefoot.families.babelscape import Babelscape
from surefoot.families.base import Family, Golden, StepValue, with_options
from surefoot.families.catalog import CATALOG, CatalogEntry, find_in_catalog
from surefoot.families.fover import FoVer
from surefoot.families.implicit import Implicit
from surefoot.families.llemma import Llemma
from surefoot.families.mini.family import Mini
from surefoot.families.psa import MathPSA
from surefoot.families.qwen import Qwen
from surefoot.families.reasoneval import ReasonEval
from surefoot.families.rlhflow import RLHFlow
from surefoot.families.shepherd import ERPRM, Shepherd
from surefoot.families.skywork import Skywork
from surefoot.families.tokenizer import PromptTokenizer
from surefoot.families.trl import TokenClassifier
from surefoot.families.universal import Universal
from surefoot.families.versa import Versa

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Qwen(),
        Mini(),
        TokenClassifier(),
        Shepherd(),
        ERPRM(),
        MathPSA(),
        Versa(),
        RLHFlow(),
        FoVer(),
        Skywork(),
        Implicit(),
        ActPRM(),
        Llemma(),
        ReasonEval(),
        Universal(),
        Babelscape(),
    )
}


def find_family(
    architectures: Sequence[str],
    name: str | None = None,
    *,
    model: str = "",
    options: Mapping[str, Any] | None = None,
) -> Family:
    """The family called `name`; else that of the known model with this id or folder name; else the one that claims the
    config's architecture. `options` change the family's own, and those that the known model needs."""
    choices = ", ".join(sorted(FAMILIES))
    if name is not None and name not in FAMILIES:
        raise OptionError(f"family={name!r} is not known. The families are: {choices}.")
    claiming = [family.name for family in FAMILIES.values() if set(family.architectures) & set(architectures)]
    rows = [row for row in find_in_catalog(model) if not claiming or row.family in claiming]
    if name is not None and rows and name not in {row.family for row in rows}:
        raise OptionError(
            f"{model} is known as a model of the family {rows[0].family!r}, so family={name!r} would give numbers "
            "without meaning. Leave `family` out, or rename the folder if it holds another model."
        )
    found = name or next(iter([*(row.family for row in rows), *claiming]), None)
    if found is None:
        raise CheckpointError(
            f"config.json names the architecture {list(architectures) or 'nothing'}, which does not tell the PRM "
            f"family, and {model or 'the model'} is not known by name. Say which it is with family=...: {choices}."
        )
    row = next((row for row in rows if row.family == found), None)
    return with_options(FAMILIES[found], {**(row.options if row else {}), **(options or {})})


__all__ = [
    "CATALOG",
    "FAMILIES",
    "CatalogEntry",
    "Family",
    "Golden",
    "PromptTokenizer",
    "StepValue",
    "find_family",
    "find_in_catalog",
    "with_options",
]
