"""Split the text of a solution into steps.

Invariant: the text is never rewritten, except that the end of a label's emphasis is removed: `**Step 1: Add**` is the
step `Add`. Every character that is not whitespace ends up in exactly one place: the span of a step, a step's label, the
line that states the answer, or `Solution.outside`. Splitting takes time linear in the length of any text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
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

_MAX_MARKS = 6
_STEP_WORD = re.compile(r"(?ai:step)\s*\d+")
_BARE_TAG = re.compile(r"</?(?:think|reasoning|solution|answer)>", re.IGNORECASE)


def split(solution: str | Sequence[str], rule: str = "auto", *, closing: bool = True) -> Solution:
    """Split a solution into steps by one of SPLIT_RULES. A list or tuple of strings is used as the steps, unchanged.

    - `steps`: a line such as `Step 3:`, `**Step 3:**` or `### Step 3` starts a step, which ends at the next such line
      or at an answer line (`Final Answer: 42`, `#### 42`, `<answer>42</answer>`, at the very end also `Answer: 42`).
      The label is not part of the step's text, and neither is the end of its emphasis: the text of
      `**Step 3: Add** them` is `Add them`.
    - `paragraphs`: blank lines separate the steps. `lines`: every non-blank line is a step. In both, the line that
      states the answer is not part of a step, and the text after it is outside; so is a line that consists of a tag
      (`<think>`, `</think>`).
    - `auto`: `steps` if there is a step label, else `paragraphs` if there is a blank line before the answer line, else
      `lines`.

    If an answer line states the answer and `closing` is true, a last step of kind `answer` is added with the text
    "The answer is \\boxed{X}"; with `closing=False` that line is outside. An answer inside a step is scored as part of
    that step and adds none. A list is kept exactly as it is, and no step is added to it.

    >>> [step.text for step in surefoot.split("2 + 3 = 5.\\n\\nTwice that is 10.").steps]
    ['2 + 3 = 5.', 'Twice that is 10.']
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
        count, steps = len(labels), labelled_steps(text, labels, [answer.start for answer in stated])
    else:
        pieces = _paragraphs(text, body) if rule == "paragraphs" else body
        count, steps = len(pieces), [Step(text[slice(*piece)], *piece, at) for at, piece in enumerate(pieces)]
    empty = count - len(steps)
    # With rule="steps", a text without step labels was not understood: none of it is scored.
    if closing and answer_line and (labels or rule != "steps"):
        words = closing_text(answer_line.value)
        steps.append(Step(words, answer_line.start, answer_line.end, count, "answer"))
    taken = [Span(step.start, step.end) for step in steps]
    outside = _gaps(text, sorted(taken + labels))
    answer = answer_line or answer_in_passing(text)
    return Solution(text, tuple(steps), answer.value if answer else None, outside, empty, rule)


def labelled_steps(text: str, labels: Sequence[Span], ends: Sequence[int]) -> list[Step]:
    """Return the text after each label, up to the next label or the next of `ends`. Empty steps are left out."""
    stops = sorted([*(label.start for label in labels), *ends, len(text)])
    steps = []
    at = 0
    for index, label in enumerate(labels):
        while stops[at] <= label.start:
            at += 1
        start, end = _trimmed(text, label.end, stops[at])
        if start < end:
            steps.append(_without_emphasis(text, label, Step(text[start:end], start, end, index)))
    return steps


def _without_emphasis(text: str, label: Span, step: Step) -> Step:
    """Remove the end of the emphasis that the label opened from the text of a step. Its span does not change.

    Marks that could be arithmetic stay: `2 ** 3`, `2**3`, and single ones inside a line.
    """
    word = _STEP_WORD.search(text, *label)
    if word is None or any(end in text[label.end : step.start] for end in "\r\n"):
        return step
    lead = text[label.start : word.start()]
    opened = lead[len(lead.rstrip("*_")) :]
    marks = opened[::-1][sum(mark in "*_" for mark in text[word.end() : label.end]) :]
    if not 0 < len(marks) <= _MAX_MARKS:
        return step
    followed = r"[\s:.,;!?]|\Z" if len(marks) > 1 else r"[:.]?\Z"
    title = lines(step.text)[0]
    closing = re.compile(rf"(?<=\S){re.escape(marks)}(?={followed})").search(step.text, *title)
    if closing is None:
        return step
    return replace(step, text=step.text[: closing.start()] + step.text[closing.end() :])


def _before_answer(rows: list[Span], answer: Answer | None, stated: list[Answer]) -> list[Span]:
    """Return the rows before the answer line, or else before a final `Final Answer:` that has no value."""
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
    """Whether a blank line separates two adjacent lines: two or more line ends."""
    gap = text[before.end : after.start]
    return gap.count("\n") + gap.count("\r") - gap.count("\r\n") > 1


def _gaps(text: str, taken: list[Span]) -> tuple[Span, ...]:
    """Return the text between the given spans, ignoring whitespace."""
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
