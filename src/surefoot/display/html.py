"""Render a scored solution as HTML, for notebooks and for evaluation reports.

Invariant: all external text goes through `escape`. Colour is never the only cue: the number is next to it, and the
scale runs from orange to blue, which colour-blind readers can distinguish. No scripts are needed.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surefoot.display.terminal import notes_of

if TYPE_CHECKING:
    from surefoot.core.result import Scale, SolutionScore

WRONG, MIDDLE, RIGHT = (0xA8, 0x41, 0x0A), (0xEF, 0xE9, 0xDC), (0x1A, 0x5A, 0x96)
BUCKETS = 11
DARK, LIGHT = "#000000", "#ffffff"

STYLES = {
    "steps": "list-style:none;margin:0;padding:0",
    "step": "display:flex;gap:.6em;align-items:baseline;padding:.28em 0 .28em .6em;border-left:.3em solid #8886;"
    "margin:.15em 0;text-align:left",
    "no": "flex:none;min-width:1.6em;text-align:right;opacity:.65;font-variant-numeric:tabular-nums",
    "chip": "flex:none;min-width:3.1em;text-align:center;padding:.05em .35em;border-radius:.3em;font-size:.9em;"
    "font-variant-numeric:tabular-nums",
    "none": "border:1px dashed currentColor;opacity:.75",
    "text": "flex:1;min-width:0;white-space:pre-wrap;overflow-wrap:anywhere",
    "flag": "display:inline-block;margin:0 0 0 .6em;padding:0 .45em;border-radius:.3em;border:1px solid currentColor;"
    "font-size:.8em;font-weight:600;white-space:nowrap",
    "truth": "background:#a8410a;color:#ffffff;border-color:#a8410a;-webkit-print-color-adjust:exact;"
    "print-color-adjust:exact",
}
"""The CSS of every part, by name. Notebooks get it inline, a report in its style sheet."""

Dress = Callable[..., str]
"""Maps style names to the HTML attribute that applies them."""


def clean(text: object) -> str:
    """Return text that can be encoded as UTF-8: a lone surrogate becomes a question mark."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def escape(text: object) -> str:
    """Escape text for use in HTML, including attributes."""
    return html.escape(clean(text), quote=True)


def inline(*names: str) -> str:
    """Return a `style` attribute with the CSS itself."""
    return f' style="{";".join(STYLES[name] for name in names)}"'


def classed(*names: str) -> str:
    """Return a `class` attribute, for a page that includes `style_sheet`."""
    return f' class="{" ".join(names)}"'


def style_sheet() -> str:
    """Return all styles as CSS rules."""
    return "\n".join(f".{name}{{{look}}}" for name, look in STYLES.items())


def bucket(score: float, scale: Scale = "probability") -> int:
    """Return the position of a score on the colour scale; 0 is the lowest."""
    if scale == "margin":
        score = (score + 1.0) / 2.0
    elif scale == "log_ratio":
        score = 1.0 / (1.0 + math.exp(-min(max(score, -30.0), 30.0)))
    return round(min(max(score, 0.0), 1.0) * (BUCKETS - 1))


def colour(number: int) -> tuple[str, str]:
    """Return the background and text colours of a position on the scale."""
    share = number / (BUCKETS - 1)
    ends, far = ((WRONG, MIDDLE), 2 * share) if share < 0.5 else ((MIDDLE, RIGHT), 2 * share - 1)
    mixed = [round(a + (b - a) * far) for a, b in zip(*ends, strict=True)]
    back = "#" + "".join(f"{part:02x}" for part in mixed)
    return back, LIGHT if contrast(LIGHT, back) > contrast(DARK, back) else DARK


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as defined by WCAG."""
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(code: str) -> float:
    parts = [int(code[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


for _number in range(BUCKETS):
    _back, _ink = colour(_number)
    STYLES[f"c{_number}"] = f"background:{_back};color:{_ink};-webkit-print-color-adjust:exact;print-color-adjust:exact"
    STYLES[f"e{_number}"] = f"border-left-color:{_back}"


@dataclass(frozen=True)
class ShownStep:
    """One step to render."""

    text: str
    score: float | None
    raw: float | None = None
    why: str = "no score"
    """Shown instead of a score that is None."""
    truth: str = ""
    """A label for a known error, shown as a filled badge."""
    guess: str = ""
    """A label for a predicted error, shown as an outlined badge."""


def steps_html(steps: Iterable[ShownStep], dress: Dress, scale: Scale = "probability") -> str:
    """Render the steps as a list: number, coloured score, text and badges."""
    return f"<ol{dress('steps')}>{''.join(_step(at, step, dress, scale) for at, step in enumerate(steps, 1))}</ol>"


def _step(number: int, step: ShownStep, dress: Dress, scale: Scale) -> str:
    if step.score is None:
        chip, edge = f"<span{dress('chip', 'none')}>{escape(step.why)}</span>", dress("step")
    else:
        place = bucket(step.score, scale)
        before = "" if step.raw is None else f' title="raw score {step.raw:.4f}"'
        chip, edge = (
            f"<span{dress('chip', f'c{place}')}{before}>{step.score:.3f}</span>",
            dress("step", f"e{place}"),
        )
    flags = f"<span{dress('flag', 'truth')}>{escape(step.truth)}</span>" if step.truth else ""
    flags += f"<span{dress('flag')}>{escape(step.guess)}</span>" if step.guess else ""
    return (
        f"<li{edge}><span{dress('no')}>{number}</span>{chip}<span{dress('text')}>{escape(step.text)}{flags}</span></li>"
    )


def solution_html(result: SolutionScore) -> str:
    """Render a scored solution for a notebook."""
    error = result.first_error()
    steps = [
        ShownStep(
            step.text,
            step.score,
            step.raw,
            why=step.status.replace("_", " "),
            guess="✗ first error" if at == error else "",
        )
        for at, step in enumerate(result.steps)
    ]
    numbers = {"mean": result.mean, "min": result.min, "final": result.final, "product": result.product}
    parts = [f"{name} {'none' if value is None else format(value, '.3f')}" for name, value in numbers.items()]
    parts.append(
        "first error unknown" if error is None else "no error found" if error == -1 else f"first error at {error + 1}"
    )
    small = "opacity:.75;font-size:.9em;margin:.3em 0"
    return (
        f'<div style="max-width:70em;line-height:1.45"><div style="font-weight:600;margin:.3em 0">'
        f'{escape(" · ".join(parts))}</div>{steps_html(steps, inline, result.scale)}<div style="{small}">'
        f"{escape(result.model)}</div>"
        + "".join(f'<div style="{small}">{escape(note)}</div>' for note in notes_of(result))
        + "</div>"
    )
