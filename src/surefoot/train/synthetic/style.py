"""Write the same solution in different styles: plain, LaTeX, prose or lists, with different ways to state the answer.

Invariant: a style changes the form of a step, never its meaning, and keeps track of the label.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.train.synthetic.worked import Calculation, Line

SMALL = re.compile(
    r"(?:The|This|There|They|She|He|It|In|If|So|Then|A|An|His|Her|Their|We|Each|Since|After|For|At|On|To)\b"
)
EQUATIONS = ("plain", "spaced", "inline", "dollars", "display")
OPENINGS = ("none", "prose", "numbers", "steps", "bold_steps", "headings")
INTROS = (
    "Let's solve this step by step.",
    "To solve this problem, we need to work through it step by step.",
    "Let's break the problem down into smaller steps.",
    "First, let's look at what the problem tells us.",
    "We can find the answer by working through the information we are given.",
    "To find the answer, let's follow these steps:",
    "Let's think about this carefully.",
)
FIRST = ("First, ", "To start, ", "To begin with, ")
NEXT = ("Next, ", "Then, ", "Now, ", "After that, ", "So, ")
LAST = ("Finally, ", "Therefore, ", "Thus, ", "In the end, ")
ANSWERS = (
    "The answer is {}.",
    "#### {}",
    "Therefore, the answer is \\(\\boxed{{{}}}\\).",
    "So the final answer is {}.",
    "Final Answer: {}",
    "The final answer is $\\boxed{{{}}}$.",
    "Thus, the answer is **{}**.",
    "\\boxed{{{}}}",
    "Answer: {}",
    "Therefore, the answer is: {}",
)


@dataclass(frozen=True)
class Style:
    """The choices that make up a style."""

    equation: str = "plain"
    opening: str = "none"
    intro: str = ""
    answer: str = ANSWERS[0]
    own_step: bool = True
    """Whether the answer is a separate step or is appended to the last one."""
    times: str = "*"


def pick_style(rng: random.Random) -> Style:
    """Return a random style."""
    return Style(
        equation=rng.choice(EQUATIONS),
        opening=rng.choice(OPENINGS),
        intro=rng.choice(INTROS) if rng.random() < 0.3 else "",
        answer=rng.choice(ANSWERS),
        own_step=rng.random() < 0.5,
        times=rng.choice("*x×"),
    )


def write(
    lines: Sequence[Line], answer: str, style: Style, rng: random.Random, label: int = -1
) -> tuple[list[str], int]:
    """Return the steps in that style and the label among them. `label` is a line, or `len(lines)` for the answer."""
    steps = [_open(_line(line, style), at, len(lines), style, rng) for at, line in enumerate(lines)]
    stated = style.answer.format(answer)
    if style.own_step:
        steps.append(stated)
    else:
        steps[-1] += f"\n\n{stated}"
        label = min(label, len(steps) - 1)
    if style.intro:
        steps.insert(0, style.intro)
        label += label >= 0
    return steps, label


def _open(text: str, at: int, count: int, style: Style, rng: random.Random) -> str:
    if style.opening == "numbers":
        return f"{at + 1}. {text}"
    if style.opening == "steps":
        return f"Step {at + 1}: {text}"
    if style.opening == "bold_steps":
        return f"**Step {at + 1}:** {text}"
    if style.opening == "headings":
        return f"### Step {at + 1}\n{text}"
    if style.opening == "prose":
        words = rng.choice(FIRST if at == 0 else LAST if at == count - 1 else NEXT)
        # A name keeps its capital letter; only words that are certainly not names lose it.
        return words + (text[0].lower() + text[1:] if SMALL.match(text) else text)
    return text


def _line(line: Line, style: Style) -> str:
    if style.equation == "display" and (shown := _display(line, style)):
        return shown
    return "".join(part if isinstance(part, str) else _calculation(part, style) for part in line.parts).strip()


def _display(line: Line, style: Style) -> str:
    """Return the sentence with the result, followed by the equation on its own line."""
    calculations = line.calculations
    if len(calculations) != 1 or not calculations[0][1].visible:
        return ""
    place, part = calculations[0]
    currency = "$" if "$" in part.lead else ""
    before, after = ("".join(map(str, parts)) for parts in (line.parts[:place], line.parts[place + 1 :]))
    return f"{before}{currency}{part.shown}{after}".strip() + f"\n\\[ {_latex(part)} \\]"


def _calculation(part: Calculation, style: Style) -> str:
    if not part.visible or style.equation == "plain":
        return part.text
    if style.equation == "inline":
        return f"\\({_latex(part)}\\)"
    if style.equation == "dollars":
        return f"${_latex(part)}$"
    signs = re.sub(r"\s*([-+*/x×])\s*", lambda sign: f" {style.times if sign[1] in '*x×' else sign[1]} ", part.visible)
    currency = "$" if "$" in part.lead else ""
    return f"{signs.strip()} = {currency}{part.shown}"


def _latex(part: Calculation) -> str:
    bare = part.visible.replace("$", "").replace(" ", "")
    fraction = re.fullmatch(r"([\d.,]+)/([\d.,]+)", bare)
    if fraction:
        formula = f"\\frac{{{fraction[1]}}}{{{fraction[2]}}}"
    else:
        formula = re.sub(r"[*x×]", r" \\times ", bare)
        formula = re.sub(r"([+-])", r" \1 ", formula).replace("%", "\\%").replace("/", " \\div ")
    currency = "\\$" if "$" in part.lead else ""
    return f"{' '.join(formula.split())} = {currency}{part.shown}"
