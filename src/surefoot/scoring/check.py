"""Compares a loaded model with the scores that its makers published.

Loading already checks every tensor. A model without published scores is only loaded and run, and the report says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from surefoot.core.options import ReadOptions
from surefoot.core.result import SolutionScore
from surefoot.errors import OptionError
from surefoot.families import FAMILIES, Golden, find_goldens
from surefoot.scoring.scorer import Scorer


@dataclass(frozen=True)
class Comparison:
    """The scores of an example and the published ones."""

    example: SolutionScore
    golden: Golden | None
    """What was published for this model, or None."""

    @property
    def passed(self) -> bool:
        """Whether every step is scored and within the tolerance of its published score."""
        if self.example.status != "scored":
            return False
        if self.golden is None:
            return True
        pairs = zip(self.example.step_scores, self.golden.scores, strict=True)
        return all(score is not None and abs(score - wanted) <= self.golden.tolerance for score, wanted in pairs)


@dataclass(frozen=True)
class CheckReport:
    """All published examples of a model, or one of another model if it has none."""

    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """Whether every example passed."""
        return all(each.passed for each in self.comparisons)


def check(scorer: Scorer, name: str | None = None) -> CheckReport:
    """Runs the published examples on a loaded model. `name` identifies it if its folder's name does not."""
    if scorer.calibration is not None:
        raise OptionError("Published scores are raw. Load the model without a calibration to compare with them.")
    goldens = find_goldens(scorer.family, name or scorer.name)
    if goldens:
        return CheckReport(tuple(Comparison(_score(scorer, golden), golden) for golden in goldens))
    # A model without published scores still runs one example.
    example = (find_goldens(scorer.family) or find_goldens(FAMILIES["qwen"]))[0]
    return CheckReport((Comparison(_score(scorer, replace(example, system=None)), None),))


def _score(scorer: Scorer, golden: Golden) -> SolutionScore:
    return scorer.score(golden.question, golden.steps, ReadOptions(system=golden.system))
