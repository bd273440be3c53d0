"""One review: the solutions of a folder, the verdicts on them, and what the page shows of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from surefoot.core.intervals import as_list
from surefoot.core.labels import ScorerVerdict, StepLabel
from surefoot.core.protocols import StepScorer
from surefoot.errors import InputError
from surefoot.labelling.review.corrected import Corrected, ReviewSummary, apply, apply_all, progress, summarize
from surefoot.labelling.review.corrections import NO_OPINIONS, Change, Corrections, Opinions
from surefoot.labelling.review.labels import key_of, read_labels
from surefoot.labelling.review.scores import ReviewScores

EXCERPT = 120
"""Characters of a question in the list."""


class ReviewSession:
    """The state behind the page. Its methods may be called from several threads."""

    def __init__(self, folder: str | Path, scorer: StepScorer | None = None) -> None:
        self.folder = Path(folder).expanduser()
        self._all = read_labels(self.folder)
        self.solutions = [each for each in self._all if each.steps]
        """Those with steps, which can be reviewed. Positions on the page count these."""
        if not self.solutions:
            raise InputError(f"No solution in {self.folder} has steps, so there is nothing to review.")
        self._keys = [key_of(each) for each in self.solutions]
        self._by_key = dict(zip(self._keys, self.solutions, strict=True))
        self._corrections = Corrections(self.folder)
        self.scores = None if scorer is None else ReviewScores(scorer)

    @property
    def summary(self) -> ReviewSummary:
        """What people have said so far."""
        return summarize(self._by_key, self._corrections.current())

    def corrected(self) -> Corrected:
        """Return the labels with the verdicts so far."""
        return apply_all(self._all, self._corrections.current())

    def overview(self) -> dict[str, Any]:
        """What the list shows, and the counts."""
        current = self._corrections.current()
        return {
            "folder": self.folder.resolve().name,
            "model": None if self.scores is None else self.scores.model,
            "entries": [self._entry(at, current.get(key, NO_OPINIONS)) for at, key in enumerate(self._keys)],
            "without_steps": len(self._all) - len(self.solutions),
            "summary": summarize(self._by_key, current).to_dict(),
        }

    def detail(self, position: int) -> dict[str, Any]:
        """Everything about one solution but its scores."""
        return self._detail(position, self._corrections.of(self._keys[position]))

    def save(self, position: int, hash: str, changes: Sequence[Change]) -> dict[str, Any]:
        """Save changes, and return what the page shows afterwards."""
        key = self._keys[position]
        if hash != key.hash:
            raise InputError("The page shows other labels than this folder has. Reload it.")
        if any(change.step >= len(self.solutions[position].steps) for change in changes):
            raise InputError("The solution has no such step.")
        opinions = self._corrections.save(key, changes)
        return {"solution": self._detail(position, opinions), "summary": self.summary.to_dict()}

    def score(self, position: int) -> dict[str, Any] | None:
        """Score the steps of a solution, once. None without a scorer."""
        if self.scores is None:
            return None
        scores = self.scores.score(self._keys[position], self.solutions[position])
        return {**scores, "entry": self._entry(position, self._corrections.of(self._keys[position]))}

    def _entry(self, position: int, opinions: Opinions) -> dict[str, Any]:
        solution = self.solutions[position]
        now = apply(solution, opinions)
        return {
            "position": position,
            "index": solution.index,
            "number": solution.number,
            "question": " ".join(solution.question[: 2 * EXCERPT].split())[:EXCERPT],
            "first_error": now.first_error,
            "progress": progress(len(solution.steps), opinions),
            "disagrees": solution.first_error is not None
            and any(other not in (None, solution.first_error) for other in self._other_errors(position)),
            "unknown": solution.first_error is None,
        }

    def _other_errors(self, position: int) -> Iterator[int | None]:
        """The first errors that scorers name."""
        solution = self.solutions[position]
        yield from (each.first_error for each in (solution.judge, solution.screen) if each is not None)
        if self.scores is not None and (scored := self.scores.known.get(self._keys[position])) is not None:
            yield scored["first_error"]

    def _detail(self, position: int, opinions: Opinions) -> dict[str, Any]:
        solution = self.solutions[position]
        now = apply(solution, opinions)
        return {
            "position": position,
            "hash": self._keys[position].hash,
            "entry": self._entry(position, opinions),
            **{name: getattr(solution, name) for name in ("index", "number", "id", "question", "gold", "answer")},
            "outcome": solution.outcome,
            "pass_rate": None if solution.pass_rate is None else solution.pass_rate.to_dict(),
            "first_error": {"labels": solution.first_error, "now": now.first_error},
            "judge": _scorer(solution.judge),
            "screen": _scorer(solution.screen),
            "steps": [
                _step(before, after, opinions.get(at))
                for at, (before, after) in enumerate(zip(solution.steps, now.steps, strict=True))
            ],
        }


def _scorer(verdict: ScorerVerdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {"model": verdict.model, "first_error": verdict.first_error, "scores": list(verdict.scores)}


def _step(before: StepLabel, after: StepLabel, opinion: str | None) -> dict[str, Any]:
    outcomes = before.outcomes
    return {
        "text": before.text.strip("\r\n"),
        "label": {"hard": before.hard, "reason": before.reason, "source": before.source},
        "now": {"hard": after.hard, "reason": after.reason},
        "opinion": opinion,
        "value": before.value,
        "interval": as_list(before.interval),
        "rollouts": None if not outcomes.total else outcomes.to_dict(),
        "adaptive": before.adaptive,
    }
