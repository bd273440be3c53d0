"""Describe a name that a filter expression uses and nobody knows."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from surefoot.jobs.expression_tokens import PREFIXES, one_line, quote_name

MAX_LISTED = 12
MAX_CHARS = 60


def unknown_name(name: str, known: Collection[str]) -> str:
    """Return a message with the closest matches and the known names.

    A name with a prefix is left out if it is also known without.
    """
    names = sorted(each for each in known if _without_prefix(each) == each or _without_prefix(each) not in known)
    by_spelling: dict[str, list[str]] = {}
    for each in names:
        by_spelling.setdefault(_without_prefix(each).lower(), []).append(each)
    spelling = _without_prefix(name).lower()
    close = get_close_matches(spelling, by_spelling) if len(spelling) <= MAX_CHARS else []
    meant = [_shown(each) for key in close for each in by_spelling[key]][:3]
    listed = [_shown(each) for each in names[:MAX_LISTED]]
    if len(names) > MAX_LISTED:
        listed.append(f"and {len(names) - MAX_LISTED} more")
    question = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f"the name {_shown(name)} is unknown.{question} Known names: {', '.join(listed) or 'none'}."


def _shown(name: str) -> str:
    return one_line(quote_name(name), MAX_CHARS)


def _without_prefix(name: str) -> str:
    prefix, _, rest = name.partition(".")
    return rest if rest and prefix in PREFIXES else name
