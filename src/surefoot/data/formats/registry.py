"""The formats of step labels. To add one, write its module and add it to `_ENTRIES`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from surefoot.data.formats.base import Format, Row
from surefoot.data.formats.fover import FOVER
from surefoot.data.formats.labels import LABELS
from surefoot.data.formats.math_shepherd import MATH_SHEPHERD
from surefoot.data.formats.prm800k import PRM800K
from surefoot.data.formats.processbench import PROCESSBENCH
from surefoot.data.formats.rlhflow import RLHFLOW
from surefoot.data.formats.surefoot import SUREFOOT
from surefoot.data.formats.trl import TRL
from surefoot.errors import InputError, OptionError

_ENTRIES = (SUREFOOT, TRL, MATH_SHEPHERD, PRM800K, PROCESSBENCH, RLHFLOW, FOVER, LABELS)

FORMATS: Mapping[str, Format] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""By name, in the order in which the command line lists them."""
WRITTEN = tuple(entry.name for entry in _ENTRIES if entry.write is not None)
"""The names of those that can be written."""


def format_named(name: str) -> Format:
    """Return the format with this name."""
    if name not in FORMATS:
        raise OptionError(f"There is no format {name!r}. Choose one of: {', '.join(FORMATS)}.")
    return FORMATS[name]


def detect(row: Row) -> Format | None:
    """Return the format that the keys of a row belong to, or None.

    Keys of several formats are an error, unless all of them say the same: then the first one is returned.
    """
    found = [entry for entry in FORMATS.values() if entry.recognizes(row)]
    if len(found) > 1 and len({_content(entry, row) for entry in found}) > 1:
        names = " and ".join(entry.name for entry in found)
        raise InputError(f"the keys fit several formats: {names}. Name the right one, or remove the other keys.")
    return found[0] if found else None


def _content(entry: Format, row: Row) -> object:
    """What a row says in a format; what is wrong with it if it is malformed."""
    try:
        solution = entry.parse(row)
    except InputError as error:
        return str(error)
    return solution.question, solution.steps, solution.targets
