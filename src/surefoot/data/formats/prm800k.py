"""PRM800K as published: `question` and `label` are objects, and a step has one or more rated completions.

The solution consists of the chosen completion of each step. If none was chosen, it is the human completion, else the
completion that the pre-generated solution has, else the first one. The steps of the pre-generated solution that follow
the last labelled one belong to it, too, without labels. The other completions are alternatives.

Verified against the annotated line in README.md of openai/prm800k, the schemas in the cards of plaguss/prm800k and
sarahpann/PRM800K (`human_completion` is an object there), and TRL's reader, examples/datasets/prm800k.py, which also
counts human completions as correct and stops at a step without completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.data.formats.base import SOFT, Format, Row, list_of, optional_text, text_of, without_nulls
from surefoot.data.step_labels import Alternative, AnnotatedSolution, Loss, Losses, rating_of, targets_of_ratings
from surefoot.errors import InputError

SOLVED, FOUND_ERROR = "solution", "found_error"
"""Finish reasons: the correct answer was reached; an error was found."""
FLAGGED = Loss("flags of the labellers were dropped", "completions")


def _parse(row: Row) -> AnnotatedSolution:
    question, label = row.get("question"), row.get("label")
    if not isinstance(question, Mapping) or not isinstance(label, Mapping):
        raise InputError("expected `question` and `label` as objects.")
    generated = question.get("pre_generated_steps") or []
    steps: list[str] = []
    ratings: list[int | None] = []
    others: list[Alternative] = []
    flags = 0
    for at, step in enumerate(list_of(label, "steps")):
        completions = _completions(step, at)
        chosen = _chosen(step, completions, generated[at] if at < len(generated) else None)
        human = _human(step) if chosen is None else None
        if chosen is None and human is None:
            break  # without any completion
        steps.append(_text(human if chosen is None else completions[chosen]))
        flags += sum(bool(one.get("flagged")) for one in completions)
        ratings.append(1 if chosen is None else completions[chosen].get("rating"))
        others += [_alternative(at, one) for number, one in enumerate(completions) if number != chosen]
    if steps == list(generated[: len(steps)]):
        steps += map(str, generated[len(steps) :])
    ratings += [None] * (len(steps) - len(ratings))
    reason = label.get("finish_reason")
    lost = [FLAGGED] * flags
    if reason not in (SOLVED, FOUND_ERROR, None):
        lost.append(Loss(f"the finish reason `{reason}` was dropped", "solutions"))
    return AnnotatedSolution(
        text_of(question, "problem"),
        tuple(steps),
        targets_of_ratings(ratings),
        frozenset(at for at, rating in enumerate(ratings) if rating == 0),
        tuple(others),
        answer=optional_text(question, "ground_truth_answer", lost),
        final_answer_correct=True if reason == SOLVED else None,
        reading_losses=tuple(lost),
    )


def _is_empty(row: Row) -> bool:
    """Whether a labeller gave up before the first step, which happens in phase 1."""
    question, label = row.get("question"), row.get("label")
    if not isinstance(question, Mapping) or not isinstance(label, Mapping) or question.get("pre_generated_steps"):
        return False
    steps = label.get("steps")
    first = steps[0] if isinstance(steps, list) and steps else {}
    return steps == [] or (isinstance(first, Mapping) and not first.get("completions") and _human(first) is None)


def _human(step: Mapping[str, Any]) -> Any:
    return step.get("human_completion")


def _completions(step: object, at: int) -> list[Mapping[str, Any]]:
    completions = step.get("completions") or [] if isinstance(step, Mapping) else None
    if not isinstance(completions, list) or not all(isinstance(one, Mapping) for one in completions):
        raise InputError(f"step {at} (from 0) of `label` must be an object with a list of `completions`.")
    return completions


def _chosen(step: Mapping[str, Any], completions: list[Mapping[str, Any]], generated: str | None) -> int | None:
    chosen = step.get("chosen_completion")
    if chosen is not None:
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(completions):
            raise InputError(f"chosen_completion is {chosen!r}, but the step has {len(completions)} completions.")
        return chosen
    if _human(step) is not None or not completions:
        return None
    return next((at for at, one in enumerate(completions) if one.get("text") == generated), 0)


def _text(completion: object) -> str:
    text = completion.get("text") if isinstance(completion, Mapping) else completion
    if not isinstance(text, str):
        raise InputError("a completion has no `text`.")
    return text


def _alternative(at: int, completion: Mapping[str, Any]) -> Alternative:
    rating = completion.get("rating")
    return Alternative(at, _text(completion), targets_of_ratings([rating])[0], rating == 0)


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any]:
    labelled = max((at + 1 for at, target in enumerate(solution.targets) if target is not None), default=0)
    labelled = max([labelled, *(one.step + 1 for one in solution.alternatives)])
    losses[SOFT] += sum(target not in (0.0, 1.0, None) for target in solution.targets)
    steps = [_step(solution, at, last=at == labelled - 1) for at in range(labelled)]
    reason = FOUND_ERROR if solution.first_error >= 0 else SOLVED if solution.final_answer_correct else None
    unsaid = solution.final_answer_correct is not None and reason != SOLVED
    losses[Loss("`final_answer_correct` was dropped", "solutions")] += unsaid
    return {
        "question": {"problem": solution.question}
        | without_nulls(ground_truth_answer=solution.answer)
        | {"pre_generated_steps": list(solution.steps)},
        "label": {"steps": steps, "finish_reason": reason},
    }


def _step(solution: AnnotatedSolution, at: int, *, last: bool) -> dict[str, Any]:
    own = Alternative(at, solution.steps[at], solution.targets[at], at in solution.neutral)
    completions = [
        {"text": one.text, "rating": rating_of(one.target, one.neutral), "flagged": None}
        for one in (own, *(other for other in solution.alternatives if other.step == at))
    ]
    wrong = completions[0]["rating"] == -1
    return {"completions": completions, "human_completion": None, "chosen_completion": None if wrong and last else 0}


PRM800K = Format(
    name="prm800k",
    summary="PRM800K as published: question and label are objects with rated completions",
    labels="correct, neutral, incorrect, missing; alternative steps",
    limits="soft labels; an incorrect final answer",
    recognizes=lambda row: isinstance(row.get("question"), Mapping) and isinstance(row.get("label"), Mapping),
    parse=_parse,
    write=_write,
    fields=(
        "question.problem",
        "question.ground_truth_answer",
        "question.pre_generated_steps",
        "label.steps",
        "label.finish_reason",
    ),
    is_empty=_is_empty,
    carries=("answer", "alternatives", "final_answer_correct"),
)
