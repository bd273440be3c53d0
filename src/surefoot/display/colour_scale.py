"""The colour scale of scores: orange for incorrect, blue for correct, which colour-blind readers can tell apart."""

from __future__ import annotations

import math

INCORRECT, MIDDLE, CORRECT = (0xA8, 0x41, 0x0A), (0xEF, 0xE9, 0xDC), (0x1A, 0x5A, 0x96)
DARK_MIDDLE = (0x4C, 0x52, 0x5A)
"""On dark pages, undecided scores must not be brighter than errors."""
BUCKETS = 11
BLACK, WHITE = "#000000", "#ffffff"


def bucket(score: float, scale: str = "probability") -> int:
    """Return the position of a score on the colour scale: 0 for certainly incorrect, `BUCKETS - 1` for correct."""
    if scale == "margin":
        score = (score + 1.0) / 2.0
    elif scale == "log_ratio":
        score = 1.0 / (1.0 + math.exp(-min(max(score, -30.0), 30.0)))
    return round(min(max(score, 0.0), 1.0) * (BUCKETS - 1))


def colour(bucket: int, *, dark: bool = False) -> tuple[str, str]:
    """Return the background and the text colour of a bucket, on light or dark pages."""
    position = bucket / (BUCKETS - 1)
    middle = DARK_MIDDLE if dark else MIDDLE
    ends, weight = ((INCORRECT, middle), 2 * position) if position < 0.5 else ((middle, CORRECT), 2 * position - 1)
    mixed = [round(a + (b - a) * weight) for a, b in zip(*ends, strict=True)]
    background = "#" + "".join(f"{channel:02x}" for channel in mixed)
    return background, WHITE if contrast(WHITE, background) > contrast(BLACK, background) else BLACK


def themed_colour(bucket: int) -> tuple[str, str]:
    """Return the background and the text colour of a bucket as CSS that follows the page's `color-scheme`."""
    light, dark = colour(bucket), colour(bucket, dark=True)
    return f"light-dark({light[0]}, {dark[0]})", f"light-dark({light[1]}, {dark[1]})"


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as defined by WCAG."""
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(code: str) -> float:
    channels = [int(code[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
