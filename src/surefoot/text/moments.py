"""Times of day, dates and ratios in answers.

Invariant: what a text leaves open stays open. `3:30` may be in the morning or in the afternoon, `07/04/2020` in July or
in April, so each reading is kept, and two answers that agree in some readings only are not decided.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from surefoot.text.verdict import Verdict

_TIME = re.compile(r"(?P<hour>\d{1,2})(?:\s?[:.]\s?(?P<minute>\d\d))?(?P<half>\s?[ap]\.?\s?m\.?)", re.IGNORECASE)
_CLOCK = re.compile(r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?:\s?(?:hours|h|o'clock))?")
_RATIO = re.compile(r"\d+(?:\.\d+)?(?:\s?(?::|\bto\b)\s?\d+(?:\.\d+)?)+")
_NAMED_TIMES = {"noon": 720, "midday": 720, "12 noon": 720, "midnight": 0, "12 midnight": 0}
DAY = 24 * 60

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH = (
    {name[:3]: at for at, name in enumerate(MONTHS, 1)} | {name: at for at, name in enumerate(MONTHS, 1)} | {"sept": 9}
)
_NAME = r"(?P<month>" + "|".join(sorted(_MONTH, key=len, reverse=True)) + r")\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_WEEKDAY = re.compile(r"(?:" + "|".join(WEEKDAYS) + r"),?\s", re.IGNORECASE)
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NAME}\s(?:the\s)?{_DAY}(?:,?\s(?P<year>\d{{4}}))?",
        rf"(?:the\s)?{_DAY}\s(?:of\s)?{_NAME}(?:,?\s(?P<year>\d{{4}}))?",
        rf"{_NAME},?\s(?P<year>\d{{4}})",
        r"(?P<year>\d{4})(?P<mark>[-/])(?P<number>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
    )
)
_NUMERIC = re.compile(r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4})")


class Date(NamedTuple):
    """A date; None where the text does not say."""

    year: int | None
    month: int
    day: int | None


def read_time(text: str) -> frozenset[int] | None:
    """Return the minutes since midnight that a time of day may mean, or None if it is not one.

    >>> sorted(read_time("3:30"))
    [210, 930]
    """
    if text.lower() in _NAMED_TIMES:
        return frozenset((_NAMED_TIMES[text.lower()],))
    match = _TIME.fullmatch(text) or _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match.re is _TIME:
        if not 1 <= hour <= 12 or minute > 59:
            return None
        return frozenset((hour % 12 * 60 + minute + (DAY // 2 if "p" in match["half"].lower() else 0),))
    if hour > 23:
        return None
    # An hour of 1 to 12 may leave out am or pm.
    first = hour * 60 + minute
    return frozenset((first, (first + DAY // 2) % DAY)) if 1 <= hour <= 12 else frozenset((first,))


def read_ratio(text: str) -> tuple[Fraction, ...] | None:
    """Return the terms of a ratio such as `2:3` or `2 to 3`, scaled so that they add up to 1; None if it is not one."""
    text = text.rpartition("=")[2].strip()
    if not _RATIO.fullmatch(text) or len(text) > 100:
        return None
    terms = [Fraction(term) for term in re.findall(r"\d+(?:\.\d+)?", text)]
    return tuple(term / sum(terms) for term in terms) if all(terms) else None


def read_dates(text: str) -> frozenset[Date]:
    """Return the dates that a text may mean: none if it is not a date, two for `07/04/2020`."""
    text = _WEEKDAY.sub("", text, count=1)
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            parts = match.groupdict()
            month = _MONTH[parts["month"].lower()] if parts.get("month") else int(parts["number"])
            day, year = parts.get("day"), parts.get("year")
            found = Date(int(year) if year else None, month, int(day) if day else None)
            return frozenset((found,)) if _valid(found) else frozenset()
    if match := _NUMERIC.fullmatch(text):
        first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
        return frozenset(date for date in (Date(year, first, second), Date(year, second, first)) if _valid(date))
    return frozenset()


def same_moment(first: str, second: str, number: Fraction | None) -> Verdict | None:
    """Compare two answers if one of them is a time, a ratio or a date. `number` is the value of the other, if it is a
    plain number."""
    dates = read_dates(first), read_dates(second)
    if any(dates):
        return Verdict(_same_dates(*dates) if all(dates) else _date_and_number(dates[0] | dates[1], number))
    times, ratios = (read_time(first), read_time(second)), (read_ratio(first), read_ratio(second))
    readings: set[bool | None] = set()
    if times[0] and times[1]:
        readings.add(True if times[0] == times[1] else None if times[0] & times[1] else False)
    if ratios[0] and ratios[1]:
        readings.add(ratios[0] == ratios[1])
    if readings:
        return Verdict(readings.pop() if len(readings) == 1 else None)
    for time, ratio in zip(times, ratios, strict=True):
        if ratio and number is not None:
            return Verdict(len(ratio) == 2 and number * ratio[1] == ratio[0])
        if time and number is not None:
            return Verdict(_time_and_number(time, number))
        if time or ratio:
            return Verdict(False)
    return None


def _time_and_number(time: frozenset[int], number: Fraction) -> bool | None:
    """`7` is `7 am`, and may be the `7` of `7 pm` or `19`."""
    hours = {Fraction(minutes, 60) for minutes in time}
    if len(time) == 1 and number in {hour % 12 or Fraction(12) for hour in hours}:
        return True
    return None if number in hours else False


def _same_dates(first: frozenset[Date], second: frozenset[Date]) -> bool | None:
    if first == second:
        return True
    agree = [
        all(a == b for a, b in zip(one, other, strict=True) if a is not None and b is not None)
        for one, other in product(first, second)
    ]
    return None if any(agree) else False


def _date_and_number(dates: frozenset[Date], number: Fraction | None) -> bool | None:
    return None if any(number in (date.year, date.day) for date in dates if number is not None) else False


def _valid(date: Date) -> bool:
    return 1 <= date.month <= 12 and (date.day is None or 1 <= date.day <= 31)
