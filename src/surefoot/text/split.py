"""From a solution's text to its steps.

The rule: the text is only marked, never rewritten. Every character that is not white space ends up in exactly one
place: in a step, in a step's label, in the line that states the answer, or in `Solution.outside`. Splitting takes time
linear in the text, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from surefoot.core.options import SPLIT_RULES
from surefoot.core.solution import Solution, Span, Step, read_solution
from surefoot.errors import OptionError
from surefoot.text.answers import (
    Answer,
    answer_in_passing,
    answer_lines,
    closing_text,
    find_answer,
    lines,
    stated_line,
    step_labels,
)

_BARE_TAG = re.compile(r"</?(?:think|reasoning|solution|answer)>", re.IGNORECASE)


def split(solution: str | Sequence[str], rule: str = "auto", *, closing: bool = True) -> Solution:
    """The steps of a solution, by one of SPLIT_RULES. A list or tuple of strings is taken as ready steps.

    - `steps`: a line such as `Step 3:`, `**Step 3:**` or `### Step 3` opens a step, which goes on to the next such line
      or to an answer line (`Final Answer: 42`, `#### 42`, `<answer>42</answer>`, at the very end also `Answer: 42`).
      The label is no part of the step's text.
    - `paragraphs`: blank lines part the steps. `lines`: every line that is not blank is a step. In both, the line that
      states the answer is no part of a step, and what follows it is outside; so is a line that is nothing but a tag
      (`<think>`, `</think>`).
    - `auto`: `steps` if there is a step label, else `paragraphs` if a blank line parts the text before the answer line,
      else `lines`.

    When an answer line states the answer and `closing` is true, a last step of kind `answer` is added, worded
    "The answer is \\boxed{X}"; with `closing=False` that line is outside. An answer found inside a step is judged as
    part of it and adds no step. The texts of a ready list are kept exactly, and nothing is added to them.
    """
    if rule not in SPLIT_RULES:
        raise OptionError(f"rule is {rule!r}; choose one of {', '.join(SPLIT_RULES)}.")
    solution = read_solution(solution)
    return _split_text(solution, rule, closing) if isinstance(solution, str) else _ready_steps(solution)


def _split_text(text: str, rule: str, closing: bool) -> Solution:
    rows = lines(text)
    labels = step_labels(text, rows) if rule in ("auto", "steps") else []
    stated = answer_lines(text, rows)
    answer_line = stated_line(stated)
    body = _before_answer(rows, answer_line, stated)
    if rule == "auto":
        rule = "steps" if labels else "paragraphs" if any(_apart(text, *pair) for pair in pairwise(body)) else "lines"
    body = [row for row in body if not _BARE_TAG.fullmatch(text, *row)]
    if rule == "steps":
        pieces = _labelled(text, labels, stated)
    else:
        pieces = _paragraphs(text, body) if rule == "paragraphs" else body
    steps = [Step(text[start:end], start, end, at) for at, (start, end) in enumerate(pieces) if start < end]
    empty = len(pieces) - len(steps)
    # A text that was said to have step labels and has none was not understood: nothing of it is judged.
    if closing and answer_line and (labels or rule != "steps"):
        words = closing_text(answer_line.value)
        steps.append(Step(words, answer_line.start, answer_line.end, len(pieces), "answer"))
    taken = [Span(step.start, step.end) for step in steps]
    outside = _gaps(text, sorted(taken + labels))
    answer = answer_line or answer_in_passing(text)
    return Solution(text, tuple(steps), answer.value if answer else None, outside, empty, rule)


def _labelled(text: str, labels: list[Span], stated: list[Answer]) -> list[Span]:
    """The body of each label: to the next label, or to the answer line before it."""
    stops = sorted([label.start for label in labels] + [answer.start for answer in stated] + [len(text)])
    bodies = []
    at = 0
    for label in labels:
        while stops[at] <= label.start:
            at += 1
        bodies.append(_trimmed(text, label.end, stops[at]))
    return bodies


def _before_answer(rows: list[Span], answer: Answer | None, stated: list[Answer]) -> list[Span]:
    """The rows before the answer line, or else before a `Final Answer:` at the very end whose value never came."""
    if answer is None and stated and stated[-1].end == rows[-1].end:
        answer = stated[-1]
    return rows if answer is None else [row for row in rows if row.start < answer.start]


def _paragraphs(text: str, rows: list[Span]) -> list[Span]:
    found: list[Span] = []
    for row in rows:
        if found and not _apart(text, found[-1], row):
            found[-1] = Span(found[-1].start, row.end)
        else:
            found.append(row)
    return found


def _apart(text: str, before: Span, after: Span) -> bool:
    """Whether a blank line stands between two neighbouring lines: two line ends or more."""
    gap = text[before.end : after.start]
    return gap.count("\n") + gap.count("\r") - gap.count("\r\n") > 1


def _gaps(text: str, taken: list[Span]) -> tuple[Span, ...]:
    """What lies between the spans taken, white space aside."""
    gaps = []
    at = 0
    for start, end in [*taken, (len(text), len(text))]:
        gap = _trimmed(text, at, start)
        if gap.start < gap.end:
            gaps.append(gap)
        at = end
    return tuple(gaps)


def _trimmed(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    bare = piece.strip()
    start += len(piece) - len(piece.lstrip())
    return Span(start, start + len(bare))


def _ready_steps(pieces: Sequence[str]) -> Solution:
    text = "\n\n".join(pieces)
    steps = []
    start = 0
    for at, piece in enumerate(pieces):
        if piece.strip():
            steps.append(Step(piece, start, start + len(piece), at))
        start += len(piece) + 2
    answer = find_answer(text)
    return Solution(text, tuple(steps), answer.value if answer else None, (), len(pieces) - len(steps), "list")
