"""The format of scores in terminals, notebooks and reports."""

from __future__ import annotations


def short_score(value: float) -> str:
    """Format a score with three decimals; a small one keeps its first digits.

    >>> short_score(0.9312), short_score(1.23e-7), short_score(0.0)
    ('0.931', '1.2e-07', '0.000')
    """
    return f"{value:.1e}" if value != 0 and abs(value) < 0.0005 else f"{value:.3f}"
