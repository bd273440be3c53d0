"""Writes numbers of things with the singular or the plural of their noun."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number and its noun; the plural is the noun with an s.

    >>> counted(1, "question"), counted(1200, "question")
    ('1 question', '1,200 questions')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
