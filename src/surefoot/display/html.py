"""A scored solution as HTML: in a notebook by itself, and in the reports of an evaluation.

The rule: what came from outside is escaped, every time, by `escape`. A colour never stands alone: the number is beside
it, and the scale goes from orange to blue, which colour-blind people can tell apart. Nothing here needs a script.
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
"""The looks of every part, by name. Notebooks get them inline, a report as the rules of its style sheet."""

Dress = Callable[..., str]
"""From the names of looks to the attribute that gives them."""


def clean(text: object) -> str:
    """Text that can be written to a file: half of a surrogate pair becomes a question mark."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def escape(text: object) -> str:
    """Text that is nothing but text in HTML, in attributes too."""
    return html.escape(clean(text), quote=True)


def inline(*names: str) -> str:
    """The looks themselves."""
    return f' style="{";".join(STYLES[name] for name in names)}"'


def classed(*names: str) -> str:
    """The names of the looks, for a page with `style_sheet`."""
    return f' class="{" ".join(names)}"'


def style_sheet() -> str:
    """The looks as CSS rules."""
    return "\n".join(f".{name}{{{look}}}" for name, look in STYLES.items())


def bucket(score: float, scale: Scale = "probability") -> int:
    """The place of a score on the colour scale, 0 for surely wrong."""
    if scale == "margin":
        score = (score + 1.0) / 2.0
    elif scale == "log_ratio":
        score = 1.0 / (1.0 + math.exp(-min(max(score, -30.0), 30.0)))
    return round(min(max(score, 0.0), 1.0) * (BUCKETS - 1))


def colour(number: int) -> tuple[str, str]:
    """The background and the ink of a place on the scale."""
    share = number / (BUCKETS - 1)
    ends, far = ((WRONG, MIDDLE), 2 * share) if share < 0.5 else ((MIDDLE, RIGHT), 2 * share - 1)
    mixed = [round(a + (b - a) * far) for a, b in zip(*ends, strict=True)]
    back = "#" + "".join(f"{part:02x}" for part in mixed)
    return back, LIGHT if contrast(LIGHT, back) > contrast(DARK, back) else DARK


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, from 1 to 21, as the accessibility guidelines define it."""
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
    """One step as it is drawn."""

    text: str
    score: float | None
    raw: float | None = None
    why: str = "no score"
    """What stands in the place of a score that is None."""
    truth: str = ""
    """What is known to be wrong here, as a filled mark."""
    guess: str = ""
    """What the model takes for wrong here, as an outlined one."""


def steps_html(steps: Iterable[ShownStep], dress: Dress, scale: Scale = "probability") -> str:
    """All steps, one line each: its number, its score on its colour, its text, what is marked."""
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
    """A scored solution by itself, for a notebook."""
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
