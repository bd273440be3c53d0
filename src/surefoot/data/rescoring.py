"""A search session for scorers that keep no state between calls: every candidate is scored from scratch."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.core.options import ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore
from surefoot.data.items import read_candidates, read_question


class RescoringSession:
    """A search over one question. Tokens are shared among the candidates of one call, not between calls."""

    def __init__(self, scorer: StepScorer, question: str, options: ReadOptions) -> None:
        self.question = read_question(question)
        self.computed_tokens = 0
        """Tokens of all candidates so far. The scorer computes fewer where candidates of a call share a prefix."""
        self._scorer = scorer
        self._options = options

    def score(self, prefixes: Sequence[str | Sequence[str]]) -> list[SolutionScore]:
        """Scores candidates, finished or not, each as text or as a list of steps."""
        found = self._scorer.score_many(read_candidates(self.question, prefixes), self._options)
        self.computed_tokens += sum(result.tokens for result in found)
        return found
