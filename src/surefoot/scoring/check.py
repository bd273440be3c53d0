"""Does a checkpoint load, and does it give the scores that its makers published?

The rule: loading already checks every tensor; what is added are the published examples, compared within the stated
tolerance. A model without a published example is only loaded and run, and the report says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.core.result import SolutionScore
from surefoot.errors import OptionError
from surefoot.families import Golden
from surefoot.families.qwen import Qwen
from surefoot.scoring.scorer import Scorer


@dataclass(frozen=True)
class Comparison:
    """The scores of an example beside the published ones."""

    example: SolutionScore
    golden: Golden | None
    """What was published for this very model; `None` when nothing is known."""

    @property
    def passed(self) -> bool:
        """Every step was scored, and no score is further from the published one than the tolerance."""
        if self.example.status != "scored":
            return False
        if self.golden is None:
            return True
        pairs = zip(self.example.step_scores, self.golden.scores, strict=True)
        return all(score is not None and abs(score - wanted) <= self.golden.tolerance for score, wanted in pairs)


@dataclass(frozen=True)
class CheckReport:
    """All examples that are known for a model; one of another model where none is."""

    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """Every example passed."""
        return all(each.passed for each in self.comparisons)


def check(scorer: Scorer, name: str | None = None) -> CheckReport:
    """Runs the published examples on a loaded model. `name` tells which one it is, if its folder does not."""
    if scorer.calibration is not None:
        raise OptionError("Published scores are raw. Load the model without a calibration to compare with them.")
    name = (name or scorer.name).rstrip("/").lower()
    goldens = [golden for golden in scorer.family.goldens if name.endswith(golden.models)]
    if goldens:
        results = scorer.score_many([(golden.question, golden.steps) for golden in goldens])
        return CheckReport(tuple(map(Comparison, results, goldens)))
    # A family for which nothing is published is run on the example of the best known one.
    example = (scorer.family.goldens or Qwen.goldens)[0]
    return CheckReport((Comparison(scorer.score(example.question, example.steps), None),))
