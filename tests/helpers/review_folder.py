"""A folder of labels for reviews, whose corrections can be computed by hand, and the review server in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from surefoot.core.labels import LabelledSolution, Outcomes, ScorerVerdict, StepLabel
from surefoot.core.protocols import StepScorer
from surefoot.labelling.review.server import review_server
from surefoot.labelling.review.session import ReviewSession

AFTER = "The step comes after the first error."
BAKER = "A baker sells 12 rolls at $2 each and 5 loaves at $4 each. How much money does she make?"
ROLLS, LOAVES, TOTAL = "The rolls bring 12 * 2 = 24 dollars.", "The loaves bring 5 * 4 = 20 dollars.", "24 + 20 = 44."


def rolled(text: str, right: int, wrong: int, **more: int) -> StepLabel:
    """A step that is right if any rollout is."""
    outcomes = Outcomes(right=right, wrong=wrong, **more)
    return StepLabel(text, "labelled", hard=right > 0, value=outcomes.value, outcomes=outcomes, source="rollouts")


def answered(text: str, right: bool) -> StepLabel:
    """A last step that is judged by its answer."""
    return StepLabel(text, "labelled", hard=right, value=float(right), source="answer")


def unknown(text: str, reason: str = AFTER) -> StepLabel:
    """A step without a label."""
    return StepLabel(text, "unknown", reason)


def solutions() -> list[LabelledSolution]:
    """Labels without an error, with an error at step 2, with a judge that disagrees, and with an unknown first step.

    The last one has no steps and cannot be reviewed.
    """

    def solution(index: int, number: int, question: str, gold: str, steps: Sequence[StepLabel]) -> LabelledSolution:
        text = "".join(step.text for step in steps)
        return LabelledSolution(index, number, question, gold, text, tuple(steps), outcome="right", answer=gold)

    right = [rolled(f"{ROLLS}\n\n", 7, 1), rolled(f"{LOAVES}\n\n", 6, 1, cut_off=1), answered(TOTAL, True)]
    wrong = [rolled(f"{ROLLS}\n\n", 5, 3), rolled("5 * 4 = 25.\n\n", 0, 8), unknown("24 + 25 = 49.")]
    disputed = [rolled("7 * 8 = 54.\n\n", 3, 5), answered("So it is 56.", True)]
    open_ = [unknown("Let x be it.\n\n", "8 of 8 rollouts cannot be judged."), answered("x = 3.", True)]
    judge = ScorerVerdict("judge-7b", 0, (0.04, 0.31))
    found = [
        solution(0, 0, BAKER, "44", right),
        solution(0, 1, BAKER, "44", wrong),
        solution(1, 0, "What is 7 * 8?", "56", disputed),
        solution(2, 0, "Solve 2x = 6.", "3", open_),
        LabelledSolution(3, 0, "Too hard?", "1", "", (), state="filtered", reason="The pass rate is 0."),
    ]
    found[1] = replace(found[1], answer="49", outcome="wrong")
    found[2] = replace(found[2], judge=judge)
    return found


def write_labels(folder: Path, found: Sequence[LabelledSolution] | None = None) -> Path:
    """Write `labels.jsonl` as a finished job does."""
    folder.mkdir(exist_ok=True)
    lines = (each.to_json() + "\n" for each in (solutions() if found is None else found))
    (folder / "labels.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@contextmanager
def reviewed(folder: Path, scorer: StepScorer | None = None) -> Iterator[str]:
    """The address of a review of the folder."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = review_server(ReviewSession(folder, scorer))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
