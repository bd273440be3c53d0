"""Scoring for search: candidates of one question that grow step by step.

The rule: a candidate costs the tokens that no remembered candidate has; its scores are those that it would get from
scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot.core.result import SolutionScore
from surefoot.engine.kv_cache import TreeCache
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.scoring.scorer import Scorer


class Session:
    """One question being searched. Made by `Scorer.session`."""

    def __init__(
        self, scorer: Scorer, question: str, caches: Sequence[TreeCache], *, split: str, system: str | None
    ) -> None:
        self.question = question
        self._scorer = scorer
        self._caches = tuple(caches)
        self._split = split
        self._system = system

    @property
    def computed_tokens(self) -> int:
        """Tokens that the model had to read so far, over all calls."""
        return sum(cache.computed for cache in self._caches)

    def score(self, prefixes: Sequence[str | Sequence[str]]) -> list[SolutionScore]:
        """Scores candidate solutions, finished or not, each as text or as a list of steps."""
        if isinstance(prefixes, str):
            raise InputError("session.score() takes a list of candidates. For one candidate give a list of one.")
        from surefoot.scoring.scorer import side_by_side

        return self._scorer.score_with(
            lambda prompts: side_by_side([cache.scores(prompts) for cache in self._caches]),
            [(self.question, prefix) for prefix in prefixes],
            split=self._split,
            closing=True,
            system=self._system,
        )
