"""Draw the picture of the README: one real solution, scored by the embedded model.

    python docs/scripts/draw_picture.py

`tests/test_generated_docs.py` fails if the picture no longer shows what the model gives.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import surefoot
from surefoot.core.result import SolutionScore
from surefoot.display.colour_scale import bucket, colour

FILE = Path(__file__).parents[1] / "images" / "scored-solution.svg"
QUESTION = (
    "A bakery sells rolls for $2 each and loaves of bread for $4 each. On Monday it sold 12 rolls and 5 loaves, "
    "and it paid $9 for flour. How much money did the bakery have left?"
)
SOLUTION = (
    "Step 1: The bakery earned 12 * $2 = $24 from the rolls.\n"
    "Step 2: It earned 5 * $4 = $20 from the loaves.\n"
    "Step 3: In total it earned $24 + $20 = $46.\n"
    "Step 4: After paying for the flour, the bakery had $46 - $9 = $37 left."
)
WIDTH, MARGIN, LINE, GAP = 560, 20, 22, 16
CHIP, TEXT = 58, 124
QUESTION_COLUMNS, STEP_COLUMNS = 64, 48
"""Characters per line. The picture is narrow, so that its text can be read on phones."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def picture(result: SolutionScore) -> str:
    """Return the scored solution as SVG, on a light card that is readable on any background."""
    body, bottom = [], MARGIN + 16
    for line in textwrap.wrap(QUESTION, QUESTION_COLUMNS):
        body.append(text(MARGIN, bottom, line, fill="#444"))
        bottom += LINE
    error = result.first_error()
    for number, step in enumerate(result.steps):
        lines = textwrap.wrap(step.text, STEP_COLUMNS)
        body += step_row(number, lines, step.score, bottom - 2, wrong=number == error)
        bottom += LINE * (len(lines) + (number == error)) + GAP
    found = f"model: {result.model} · mean {result.mean:.3f} · min {result.min:.3f} · final {result.final:.3f}"
    body.append(text(MARGIN, bottom + 12, found, fill="#444", size=14))
    height = bottom + 30
    label = f"A question and {len(result.steps)} steps with their scores; the first error is step {(error or 0) + 1}."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="{FONT}" role="img" aria-label="{escape(label)}">',
            f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10" fill="#fff" stroke="#ccc"/>',
            *body,
            "</svg>\n",
        ]
    )


def step_row(number: int, lines: Sequence[str], score: float | None, top: int, *, wrong: bool) -> Iterator[str]:
    """Return the elements of one step: its score in a coloured box, its text, and a mark below the first error."""
    assert score is not None
    background, ink = colour(bucket(score))
    middle = top + 20
    yield text(MARGIN, middle, f"{number + 1}", fill="#666")
    yield f'<rect x="{CHIP - 14}" y="{top + 2}" width="68" height="26" rx="5" fill="{background}"/>'
    yield text(CHIP + 20, middle, f"{score:.3f}", fill=ink, anchor="middle")
    for at, line in enumerate(lines):
        yield text(TEXT, middle + at * LINE, line, fill="#111", weight="600" if wrong else "400")
    if wrong:
        yield text(TEXT, middle + len(lines) * LINE, "✗ first error", fill="#a8410a", weight="600")


def text(x: int, y: int, content: str, *, fill: str, size: int = 16, anchor: str = "start", weight: str = "400") -> str:
    """Return one line of text."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(content, quote=False)}</text>"
    )


if __name__ == "__main__":
    FILE.write_text(picture(surefoot.load("mini").score(QUESTION, SOLUTION)), encoding="utf-8")
