"""A process reward model in this process or on a vLLM server, as a `StepScorer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import fields
from itertools import islice
from typing import Any

from torch import Tensor

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import Scale, SolutionScore
from surefoot.data.batching import check_window
from surefoot.display.progress import Progress
from surefoot.engine.kv_cache import TreeCache
from surefoot.engine.results import PackResults, Packs, collect
from surefoot.engine.runner import Runner
from surefoot.errors import OptionError
from surefoot.families import Family, PromptTokenizer
from surefoot.scoring.engines import Engine, joined_packs
from surefoot.scoring.load_call import LoadCall
from surefoot.scoring.pipeline import Pipeline
from surefoot.scoring.score_cache import ScoreCache
from surefoot.scoring.session import Session


class Scorer:
    """A loaded PRM. Create it with `surefoot.load`.

    >>> scorer = surefoot.load("mini")
    >>> question = "Tom has 3 bags of 4 apples and 2 more apples. How many apples?"
    >>> result = scorer.score(question, "The bags hold 3 * 4 = 12 apples.\\nIn all he has 12 + 2 = 15 apples.")
    >>> result.first_error()
    1
    """

    def __init__(
        self, pipeline: Pipeline, engines: Sequence[Engine], fingerprint: str, cache: ScoreCache | None = None
    ) -> None:
        self.pipeline = pipeline
        self.engines = tuple(engines)
        """One, or two where the family compares two models."""
        self.fingerprint = fingerprint
        """A hash of what this model computes, without its calibration: see `engine.fingerprint`."""
        self.cache = cache
        """Where computed scores are stored and looked up, or None."""
        self.load_call: LoadCall | None = None
        """The call of `surefoot.load` that created this scorer, which is how it is pickled; None if there is none."""

    def __repr__(self) -> str:
        return f"<surefoot.Scorer {self.name!r}: family {self.family.name}, {self.scale}, {self.max_tokens} tokens>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.load_call is None:
            raise OptionError(
                "This model was not loaded with surefoot.load, so it cannot be copied or sent to another process. Pass "
                "the model's name or folder instead, or the address of a service (surefoot serve)."
            )
        return self.load_call.reduce(self, self.pipeline.calibration, None if self.cache is None else self.cache.path)

    @property
    def name(self) -> str:
        """The model's name, as results and reports show it."""
        return self.pipeline.name

    @property
    def family(self) -> Family:
        """How the model is prompted and read."""
        return self.pipeline.family

    @property
    def tokenizer(self) -> PromptTokenizer:
        """The model's tokenizer."""
        return self.pipeline.tokenizer

    @property
    def max_tokens(self) -> int:
        """The longest prompt that the model reads."""
        return self.pipeline.max_tokens

    @property
    def scale(self) -> Scale:
        """What the scores are: `probability`, `margin` or `log_ratio`."""
        return self.pipeline.scale

    @property
    def calibration(self) -> str | None:
        """The name of the calibration that every score goes through, or None."""
        return None if self.pipeline.calibration is None else self.pipeline.calibration.name

    @property
    def info(self) -> dict[str, Any]:
        """What is known about the model, as JSON-compatible data.

        `tokenizer` says which files of the checkpoint were read, which options the family took from them, and where
        they disagree with the family's prompt.
        """
        checked = self.pipeline.tokenizer_check
        return {
            "model": self.name,
            "family": self.family.name,
            "options": {field.name: getattr(self.family, field.name) for field in fields(self.family)},
            "scale": self.scale,
            "precision": self.pipeline.precision,
            "max_tokens": self.max_tokens,
            "trained_tokens": self.pipeline.trained_tokens,
            "calibration": self.calibration,
            "fingerprint": self.fingerprint,
            "tokenizer": {
                "files": list(checked.files),
                "taken": dict(checked.taken),
                "mismatches": list(checked.mismatches),
            },
        }

    @property
    def engine(self) -> Any:
        """The engine of the model itself, without the one that it is compared with."""
        return self.engines[0]

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Scores every step of one solution, given as text or as a list of steps."""
        return self.score_many([(question, solution)], options)[0]

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        """Scores pairs of question and solution together. Each gets the scores that it would get alone.

        All items are read before the first is scored: a malformed one raises `InputError` and no work is lost.
        """
        asked = list(items)
        with Progress(len(asked), shown=progress) as bar:
            results = self.pipeline.run(self._compute(bar), asked, options)
            bar.settle(len(results), sum(result.tokens for result in results))
            return results

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """Scores any number of pairs, `window` at a time, and yields the results in order.

        A malformed item does not end the stream: its result is unscored and has a reason. Keep the solutions of one
        question next to each other, because tokens are shared within a window.
        """
        check_window(window)

        def stream() -> Iterator[SolutionScore]:
            with Progress(len(items) if isinstance(items, Sized) else None, shown=progress) as bar:
                compute = self._compute(bar)
                waiting, first = iter(items), 0
                while some := list(islice(waiting, window)):
                    results = self.pipeline.run(compute, some, options, first=first, keep_going=True)
                    first += len(some)
                    bar.settle(len(results), sum(result.tokens for result in results))
                    yield from results

        return stream()

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS, *, max_bytes: int = 1 << 30) -> Session:
        """Starts a search over candidate solutions of one question. Its KV cache takes at most `max_bytes`.

        A model on a server has no such cache: its session scores every candidate from scratch.
        """
        runners = [engine for engine in self.engines if isinstance(engine, Runner)]
        if len(runners) < len(self.engines):
            return Session(self.pipeline, question, (), options, lambda prompts: collect(self.packs(prompts)))
        caches = [TreeCache(runner, max_bytes // len(runners)) for runner in runners]
        return Session(self.pipeline, question, caches, options)

    def with_cache(self, cache: ScoreCache | None) -> Scorer:
        """The same model with another score cache, or with none."""
        scorer = Scorer(self.pipeline, self.engines, self.fingerprint, cache)
        scorer.load_call = self.load_call
        return scorer

    def packs(self, prompts: Sequence[Prompt]) -> PackResults:
        """Computes the numbers at the reads of each prompt without the score cache, and yields after each pack.

        Each prompt is completed once. Closing the generator cancels the rest.
        """
        return joined_packs(self.engines, prompts)

    def _compute(self, bar: Progress) -> Callable[[Sequence[Prompt]], list[Tensor]]:
        """Returns the function that computes prompts, looks them up in the score cache and shows the progress."""
        for engine in self.engines:
            if isinstance(engine, Runner):
                engine.check_process()  # before anything is split and encoded
        packs: Packs = self.packs
        if self.cache is not None:
            # Where the family combines numbers into scores, those that are stored are not on the scale.
            scale = self.scale if type(self.family).combine is Family.combine else None
            packs = self.cache.wrap(self.fingerprint, packs, self.family.values_per_read, scale)
        # With several prompts per solution, progress moves once per window.
        countable = type(self.family).prompts is Family.prompts and not self.family.prompt_per_step

        def counted(prompts: Sequence[Prompt]) -> PackResults:
            for result in packs(prompts):
                if countable:
                    bar.update(len(result.completed))
                yield result

        return lambda prompts: collect(counted(prompts))
