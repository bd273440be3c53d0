"""Compare scorers on the same solutions: paired differences, costs, and where they disagree."""

from surefoot.evaluate.comparison.paired import Agreement, Difference, mcnemar
from surefoot.evaluate.comparison.report import comparison_html, write_comparison
from surefoot.evaluate.comparison.result import Comparison, Disagreement, Pair
from surefoot.evaluate.comparison.run import COMPARABLE, check_compared, compare
from surefoot.evaluate.comparison.scorers import ComparedScorer, Cost

__all__ = [
    "COMPARABLE",
    "Agreement",
    "ComparedScorer",
    "Comparison",
    "Cost",
    "Difference",
    "Disagreement",
    "Pair",
    "check_compared",
    "compare",
    "comparison_html",
    "mcnemar",
    "write_comparison",
]
