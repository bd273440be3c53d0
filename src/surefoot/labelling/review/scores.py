"""Scores of a PRM next to the labels: computed when a solution is shown, and kept in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from surefoot.core.labels import LabelledSolution
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore, threshold_for
from surefoot.labelling.review.labels import SolutionKey

NO_SCORE = "The scorer returned no score for this step."


class ReviewScores:
    """The scores of one model. Solutions are scored one at a time: a model in this process uses all cores by itself."""

    def __init__(self, scorer: StepScorer) -> None:
        self.model = scorer.name
        self._scorer = scorer
        self._lock = threading.Lock()
        self._known: dict[SolutionKey, dict[str, Any]] = {}

    @property
    def known(self) -> Mapping[SolutionKey, Mapping[str, Any]]:
        """What was scored so far."""
        return self._known

    def score(self, key: SolutionKey, solution: LabelledSolution) -> Mapping[str, Any]:
        """Return one score or reason per step, and the first error that the scores name."""
        with self._lock:
            if key not in self._known:
                steps = [step.text.strip() for step in solution.steps]
                self._known[key] = _view(self._scorer.score(solution.question, steps), len(steps))
            return self._known[key]


def _view(result: SolutionScore, count: int) -> dict[str, Any]:
    by_index = {step.index: step for step in result.steps}
    found = [by_index.get(at) for at in range(count)]
    return {
        "model": result.model,
        "scale": result.scale,
        "threshold": threshold_for(result.scale),
        "first_error": None if None in found else result.first_error(),
        "scores": [None if step is None else step.score for step in found],
        "reasons": [
            None if step is not None and step.score is not None else result.reason or NO_SCORE for step in found
        ],
    }
