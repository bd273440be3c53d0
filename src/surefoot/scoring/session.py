"""Search over candidate solutions of one question that grow step by step.

A candidate costs only the tokens that no cached candidate shares; its scores equal those computed from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surefoot.core.options import ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.result import SolutionScore
from surefoot.data.items import read_candidates, read_question
from surefoot.engine.kv_cache import TreeCache
from surefoot.scoring.engines import join_columns
from surefoot.scoring.pipeline import Pipeline, Row


class Session:
    """A search over one question. Created by `Scorer.session`.

    Without caches, as for a model on a server, `rescore` computes every candidate from scratch.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        question: str,
        caches: Sequence[TreeCache],
        options: ReadOptions,
        rescore: Callable[[Sequence[Prompt]], Sequence[Row]] | None = None,
    ) -> None:
        self.question = read_question(question)
        self.caches = tuple(caches)
        """One KV cache per model."""
        self._pipeline = pipeline
        self._options = options
        self._rescore = rescore
        self._rescored = 0

    @property
    def computed_tokens(self) -> int:
        """Tokens that the model has computed so far, over all calls."""
        return self._rescored + sum(cache.computed for cache in self.caches)

    def score(self, prefixes: Sequence[str | Sequence[str]]) -> list[SolutionScore]:
        """Scores candidates, finished or not, each as text or as a list of steps."""
        return self._pipeline.run(self._compute, read_candidates(self.question, prefixes), self._options)

    def _compute(self, prompts: Sequence[Prompt]) -> Sequence[Row]:
        if self._rescore is not None:
            self._rescored += sum(len(prompt.ids) for prompt in prompts)
            return self._rescore(prompts)
        return join_columns([cache.scores(prompts) for cache in self.caches])
