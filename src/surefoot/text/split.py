"""Split the text of a solution into steps.

Invariant: the text is never rewritten, except that the end of a label's emphasis is removed: `**Step 1: Add**` is the
step `Add`. Every character that is not whitespace ends up in exactly one place: the span of a step, a step's label, the
line that states the answer, `Solution.outside`, or `Solution.skipped`. Splitting takes time linear in the length of any
text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from surefoot.core.options import SPLIT_RULES, THINKING
from surefoot.core.solution import Solution, Span, Step, read_solution
from surefoot.errors import OptionError
from surefoot.text.answers import (
    Answer,
    closing_text,
    find_answer,
    lines,
    read_statements,
    step_labels,
)
from surefoot.text.thinking import find_sections

_MAX_MARKS = 6
_STEP_WORD = re.compile(r"(?ai:step)\s*\d+")
_FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)")
_BARE_TAG = re.compile(r"</?(?:think|thinking|reasoning|solution|answer)>", re.IGNORECASE)


def split(
    solution: str | Sequence[str], rule: str = "auto", *, closing: bool = True, thinking: str = "skip"
) -> Solution:
    """Split a solution into steps by one of SPLIT_RULES. A list or tuple of strings is used as the steps, unchanged.

    - `steps`: a line such as `Step 3:`, `**Step 3:**` or `### Step 3` starts a step, which ends at the next such line
      or at an answer line (`Final Answer: 42`, `#### 42`, `<answer>42</answer>`, at the very end also `Answer: 42`).
      A label inside a fenced code block starts none, unless the block is the whole text. What follows the line that
      states the answer is outside, even with labels, unless the solution starts with its answer: all labels follow it.
      The label is not part of the step's text, and neither is the end of its emphasis: the text of
      `**Step 3: Add** them` is `Add them`.
    - `paragraphs`: blank lines separate the steps. `lines`: every non-blank line is a step. In both, the line that
      states the answer is not part of a step, and the text after it is outside; so is a line that consists of a tag
      (`<solution>`, `</solution>`).
    - `auto`: `steps` if there is a step label, else `paragraphs` if there is a blank line before the answer line, else
      `lines`.

    If an answer line states the answer and `closing` is true, a last step of kind `answer` is added with the text
    "The answer is \\boxed{X}"; with `closing=False` that line is outside. An answer inside a step is scored as part of
    that step and adds none.

    `thinking` says what is read of a text with `</think>`: the response after it (`skip`), what is inside `<think>`
    (`only`), or both (`all`). The rest is `skipped`; with `all`, the tags are outside. No step crosses a tag. An answer
    in the response has precedence over one in the thinking, which `skip` ignores.

    A list is kept exactly as it is, and no step is added to it.

    >>> [step.text for step in surefoot.split("2 + 3 = 5.\\n\\nTwice that is 10.").steps]
    ['2 + 3 = 5.', 'Twice that is 10.']
    """
    if rule not in SPLIT_RULES:
        raise OptionError(f"rule is {rule!r}; choose one of {', '.join(SPLIT_RULES)}.")
    if thinking not in THINKING:
        raise OptionError(f"thinking is {thinking!r}; choose one of {', '.join(THINKING)}.")
    solution = read_solution(solution)
    return _split_text(solution, rule, closing, thinking) if isinstance(solution, str) else _ready_steps(solution)


def _split_text(text: str, rule: str, closing: bool, thinking: str) -> Solution:
    sections = find_sections(text)
    judged = {"skip": sections.response, "only": sections.thinking, "all": sections.all}[thinking]
    heard = (sections.response,) if thinking == "skip" else sections
    parts = [read_statements(text, spans) for spans in heard]
    decisive = next((part for part in parts if part.answer), None)
    judged_parts = parts[1:] if thinking == "only" else parts
    stated = sorted((line for part in judged_parts for line in part.lines), key=lambda line: line.start)
    line = decisive.line if decisive in judged_parts and decisive else None
    rows = [lines(text, section) for section in judged]
    labels = _before_line(step_labels(text, _unfenced(text, rows)), line) if rule in ("auto", "steps") else []
    body = _before_answer(rows, line, stated)
    if rule == "auto":
        apart = any(_apart(text, *pair) for part in body for pair in pairwise(part))
        rule = "steps" if labels else "paragraphs" if apart else "lines"
    if rule == "steps":
        ends = [answer.start for answer in stated] + [section.end for section in judged]
        count, steps = len(labels), labelled_steps(text, labels, ends)
    else:
        read = [[row for row in part if not _BARE_TAG.fullmatch(text, *row)] for part in body]
        pieces = [piece for part in read for piece in (_paragraphs(text, part) if rule == "paragraphs" else part)]
        count, steps = len(pieces), [Step(text[slice(*piece)], *piece, at) for at, piece in enumerate(pieces)]
    empty = count - len(steps)
    # With rule="steps", a text without step labels was not understood: none of it is scored.
    if closing and line and (labels or rule != "steps"):
        steps.append(Step(closing_text(line.value), line.start, line.end, count, "answer"))
    skipped = () if thinking == "all" else _gaps(text, judged)
    outside = _gaps(text, sorted([*(Span(step.start, step.end) for step in steps), *labels, *skipped]))
    answer = decisive.answer.value if decisive and decisive.answer else None
    return Solution(text, tuple(steps), answer, outside, skipped, empty, rule)


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


def _unfenced(text: str, parts: list[list[Span]]) -> list[Span]:
    """Return the rows that are in no fenced code block. A block that is never closed is none, nor is a block that holds
    the whole part."""
    found: list[Span] = []
    for rows in parts:
        opened = -1
        marks = ""
        for at, row in enumerate(rows):
            fence = _FENCE.fullmatch(text, *row)
            if opened < 0:
                found.append(row)
                if fence:
                    opened, marks = at, fence["marks"]
            elif fence and fence["marks"].startswith(marks) and not fence["info"].strip():
                whole = opened == 0 and at == len(rows) - 1
                found += rows[1 : at + 1] if whole else [row]
                opened = -1
        if opened >= 0:
            found += rows[opened + 1 :]
    return found


def _before_line(labels: list[Span], line: Answer | None) -> list[Span]:
    """Return the labels before the answer line, or all if the solution starts with its answer."""
    return [label for label in labels if line and label.start < line.start] or labels


def _before_answer(parts: list[list[Span]], answer: Answer | None, stated: list[Answer]) -> list[list[Span]]:
    """Return the rows before the answer line, or else before a final `Final Answer:` that has no value."""
    last = next((rows[-1] for rows in reversed(parts) if rows), None)
    if answer is None and stated and last and stated[-1].end == last.end:
        answer = stated[-1]
    return parts if answer is None else [[row for row in rows if row.start < answer.start] for rows in parts]


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


def _gaps(text: str, taken: Sequence[Span]) -> tuple[Span, ...]:
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
    empty = len(pieces) - len(steps)
    return Solution(text, tuple(steps), answer.value if answer else None, empty_steps=empty)
