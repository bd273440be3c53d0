"""The PRM families that Surefoot knows, and the way from a checkpoint to its family."""

from __future__ import annotations

from surefoot.errors import CheckpointError, OptionError
from surefoot.family.base import Family, Golden
from surefoot.family.encoder import TextEncoder
from surefoot.family.mini import Mini
from surefoot.family.qwen import Qwen

FAMILIES: dict[str, Family] = {family.name: family for family in (Qwen(), Mini())}


def find_family(architectures: list[str], name: str | None = None) -> Family:
    """The family called `name`, else the one that claims the config's architecture."""
    choices = ", ".join(sorted(FAMILIES))
    if name is not None:
        if name not in FAMILIES:
            raise OptionError(f"family={name!r} is not known. The families are: {choices}.")
        return FAMILIES[name]
    for family in FAMILIES.values():
        if set(family.architectures) & set(architectures):
            return family
    raise CheckpointError(
        f"config.json names the architecture {architectures or 'nothing'}, which no known PRM family has. "
        f"If the model is one of them all the same, say which with family=...: {choices}."
    )


__all__ = ["FAMILIES", "Family", "Golden", "TextEncoder", "find_family"]
