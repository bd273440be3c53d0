"""The scorers of a comparison: run one after the other, each with what it cost.

Invariant: a scorer that the comparison has loaded is released before the next one is loaded.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item, SearchSession, StepScorer
from surefoot.core.result import Scale, SolutionScore

if TYPE_CHECKING:
    from surefoot.evaluate.best_of_n.result import BestOfNResult
    from surefoot.evaluate.processbench.result import ProcessBenchResult
    from surefoot.scoring.score_cache import ScoreCache

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Cost:
    """What it took to score all solutions."""

    tokens: int
    """Prompt tokens that were read, including those shared between solutions, and tokens that a critic wrote."""
    seconds: float
    """Wall time of scoring, without loading. Cached scores take next to none."""
    load_seconds: float | None
    """Wall time of loading; None if the caller had loaded the scorer."""
    cached: int
    """Prompts whose scores came from the score cache."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True)
class ComparedScorer:
    """One scorer of a comparison."""

    letter: str
    """How tables and reports refer to it: A, B, ..."""
    name: str
    result: ProcessBenchResult | BestOfNResult
    cost: Cost | None
    """None for precomputed scores."""

    @property
    def label(self) -> str:
        """The letter and the name."""
        return f"{self.letter} {self.name}"


class MeteredScorer:
    """A scorer that counts tokens and time. Everything else is that of the scorer inside."""

    def __init__(self, scorer: StepScorer) -> None:
        self._scorer = scorer
        self.tokens = 0
        self.seconds = 0.0

    @property
    def name(self) -> str:
        """See `StepScorer`."""
        return self._scorer.name

    @property
    def scale(self) -> Scale:
        """See `StepScorer`."""
        return self._scorer.scale

    @property
    def fingerprint(self) -> str:
        """See `StepScorer`."""
        return self._scorer.fingerprint

    @property
    def calibration(self) -> str | None:
        """See `StepScorer`."""
        return self._scorer.calibration

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """See `StepScorer`."""
        return self.score_many([(question, solution)], options)[0]

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        """See `StepScorer`."""
        started = time.perf_counter()
        results = self._scorer.score_many(items, options, progress=progress)
        self.seconds += time.perf_counter() - started
        self.tokens += sum(result.tokens + result.generated_tokens for result in results)
        return results

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """See `StepScorer`."""
        stream = self._scorer.score_stream(items, options, progress=progress, window=window)
        while True:
            started = time.perf_counter()
            result = next(stream, None)
            self.seconds += time.perf_counter() - started
            if result is None:
                return
            self.tokens += result.tokens + result.generated_tokens
            yield result

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> SearchSession:
        """See `StepScorer`."""
        return self._scorer.session(question, options)


def run_scorer(
    model: Any,
    run: Callable[[StepScorer], Any],
    load: Callable[[Any], StepScorer],
    cache: ScoreCache | None,
) -> tuple[str, Any, Cost]:
    """Load a model unless it is a scorer, run a benchmark, and release the model. Return its name, result and cost."""
    given = hasattr(model, "score_stream")
    started = time.perf_counter()
    scorer: StepScorer = model if given else load(model)
    loading = time.perf_counter() - started
    hits = 0 if cache is None else cache.hits
    metered = MeteredScorer(scorer)
    result = run(metered)
    cost = Cost(
        tokens=metered.tokens,
        seconds=metered.seconds,
        load_seconds=None if given else loading,
        cached=0 if cache is None else cache.hits - hits,
    )
    name = scorer.name
    if not given and callable(close := getattr(scorer, "close", None)):
        close()  # ends the threads of a critic, which would keep its model in memory
    del scorer, metered
    _release()
    return name, result, cost


def _release() -> None:
    """Free the memory of a model that nothing refers to any more."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
