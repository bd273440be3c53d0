"""RLHFlow's turns: `conversations` alternates between a step (user) and its label, `+` or `-` (assistant).

The first user turn is the question, a space and the first step. Only a `Step 1:` shows where the question ends. Without
it the whole turn is read as the question and its label is dropped, which is counted: the text of the prompt stays the
same, and no boundary is invented.

Verified against math/README.md in RLHFlow/RLHF-Reward-Modeling (the turns, `role` and `content`, the joining space) and
its math-rm/llama-3.1-prm.yaml (RLHFlow/Mistral-PRM-Data is trained on as conversations). The data files themselves
could not be read; that their key is `conversations` was verified against public scripts that load them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.data.formats.base import (
    Format,
    Row,
    fully_labelled,
    hard_labels,
    label_target,
    list_of,
    split_question,
    stripped,
)
from surefoot.data.step_labels import AnnotatedSolution, Loss, Losses
from surefoot.errors import InputError

LABELS = {"+": 1.0, "-": 0.0}

FIRST_LABEL = Loss("first steps were read as part of the question, because no `Step 1:` separates them", "steps")
ONLY_FIRST = Loss("rows have one turn that does not show where the question ends; they were dropped", "rows")
NO_BOUNDARY = Loss("the boundary between question and first step is not marked", "solutions")


def _parse(row: Row) -> AnnotatedSolution:
    turns = list_of(row, "conversations")
    if not turns or len(turns) % 2:
        raise InputError(f"`conversations` has {len(turns)} turns; expected pairs of a user and an assistant turn.")
    texts = [_content(turn, "assistant" if at % 2 else "user", at) for at, turn in enumerate(turns)]
    steps = texts[::2]
    targets = [label_target(label.strip(), LABELS, "conversations") for label in texts[1::2]]
    question_and_step = split_question(steps[0])
    if question_and_step is None:
        return AnnotatedSolution(steps[0], tuple(steps[1:]), tuple(targets[1:]), reading_losses=(FIRST_LABEL,))
    question, step = question_and_step
    return AnnotatedSolution(question, (step, *steps[1:]), tuple(targets))


def _is_empty(row: Row) -> bool:
    """Whether nothing is left if the first turn is read as the question."""
    turns = row.get("conversations")
    if not isinstance(turns, list) or len(turns) != 2 or not isinstance(turns[0], Mapping):
        return False
    text = turns[0].get("content")
    return isinstance(text, str) and split_question(text) is None


def _content(turn: object, role: str, at: int) -> str:
    if not isinstance(turn, Mapping) or turn.get("role") != role or not isinstance(turn.get("content"), str):
        raise InputError(f"turn {at} (from 0) of `conversations` must have the role {role} and a text as `content`.")
    content: str = turn["content"]
    return content


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any] | None:
    whole = fully_labelled(solution, losses)
    if whole is None:
        return None
    whole = stripped(whole, losses)
    first = f"{whole.question} {whole.steps[0]}"
    losses[NO_BOUNDARY] += split_question(first) != (whole.question, whole.steps[0])
    turns = []
    for text, right in zip((first, *whole.steps[1:]), hard_labels(whole, losses), strict=True):
        turns += [{"role": "user", "content": text}, {"role": "assistant", "content": "+" if right else "-"}]
    return {"conversations": turns}


RLHFLOW = Format(
    name="rlhflow",
    summary="RLHFlow's turns: conversations of a step (user) and + or - (assistant)",
    labels="correct, incorrect",
    limits="neutral, soft or missing labels; where the question ends, unless a step begins with `Step 1:`",
    recognizes=lambda row: "conversations" in row,
    parse=_parse,
    write=_write,
    fields=("conversations",),
    is_empty=_is_empty,
    empty=ONLY_FIRST,
)
