"""A critic as a `StepScorer`: rewards, evaluation, search, jobs and labelling use it like any other model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any

from surefoot.core.calibration import Calibration
from surefoot.core.event_loop import run_async
from surefoot.core.generation import Generator
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import NO_STEPS, Scale, SolutionScore, StepScore
from surefoot.core.solution import Solution
from surefoot.critics.backend import CriticBackend
from surefoot.critics.base import Critic, Memo, Task
from surefoot.critics.verdict import Judgement, Vote, failed
from surefoot.data.batching import check_window
from surefoot.data.items import read_candidates, read_question
from surefoot.display.progress import Progress
from surefoot.errors import InputError, OptionError
from surefoot.generate.server import ServerGenerator
from surefoot.scoring.load_call import LoadCall
from surefoot.scoring.reading import OverLimitError, read_and_split
from surefoot.scoring.score_cache import ScoreCache
from surefoot.tokenization.tokenizer import PromptTokenizer

CONCURRENCY = 32
"""Solutions that are judged at a time."""
RECORD_VERSION = 1
FORGED = (
    "The question or a step contains {mark!r}, which is part of this critic's prompt. It is not judged, so that no "
    "text can pass for a verdict or for another step."
)


@dataclass(frozen=True)
class Judged:
    """The judgements of one solution, and what they cost."""

    judgements: tuple[Judgement, ...]
    prompt_tokens: int = 0
    generated_tokens: int = 0
    calls: int = 0

    def to_record(self) -> bytes:
        """The content of a cache entry."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_record(cls, record: bytes) -> Judged:
        """Read a cache entry."""
        data = json.loads(record)
        judgements = tuple(
            Judgement(tuple(Vote(**vote) for vote in each["votes"]), each["output"]) for each in data.pop("judgements")
        )
        return cls(judgements, **data)


class CriticScorer:
    """A critic with its generator. Create it with `surefoot.load`.

    >>> critic = surefoot.load("http://127.0.0.1:8000", critic="processbench")
    >>> result = critic.score("What is 2 + 3?", "2 + 3 = 6.")
    >>> result.steps[0].status, result.calls
    ('scored', 1)
    """

    def __init__(
        self,
        critic: Critic,
        generator: Generator,
        *,
        name: str,
        tokenizer: PromptTokenizer | None = None,
        warnings: Sequence[str] = (),
        calibration: Calibration | None = None,
        cache: ScoreCache | None = None,
        concurrency: int = CONCURRENCY,
        owns_generator: bool = True,
    ) -> None:
        self.critic = critic
        self.generator = generator
        self.name = name
        self.cache = cache
        self.load_call: LoadCall | None = None
        """The call of `surefoot.load` that created this scorer, which is how it is pickled; None if there is none."""
        self.owns_generator = owns_generator
        self._tokenizer = tokenizer
        self._warnings = tuple(warnings)
        self._calibration = calibration
        self._concurrency = concurrency

    def __repr__(self) -> str:
        return f"<surefoot.CriticScorer {self.name!r}: critic {self.critic.name}, {self.critic.votes} votes>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.load_call is None:
            raise OptionError(
                "This critic was loaded with a generator object, so it cannot be copied or sent to another process. "
                "Pass the address of the server, or the model's name or folder instead."
            )
        return self.load_call.reduce(self, self._calibration, None if self.cache is None else self.cache.path)

    @property
    def scale(self) -> Scale:
        """What the scores are: always `probability`."""
        return "probability"

    @property
    def fingerprint(self) -> str:
        """A hash of the generator, the critic and its options."""
        kind = f"{type(self.critic).__module__}:{type(self.critic).__qualname__}"
        identity = json.dumps(["critic", self.generator.fingerprint, kind, self.critic.options], sort_keys=True)
        return sha256(identity.encode()).hexdigest()

    @property
    def calibration(self) -> str | None:
        """The name of the calibration that every score goes through, or None."""
        return None if self._calibration is None else self._calibration.name

    @property
    def info(self) -> dict[str, Any]:
        """What is known about the critic, as JSON-compatible data."""
        return {
            "model": self.name,
            "critic": self.critic.name,
            "generator": self.generator.name,
            "options": self.critic.options,
            "scale": self.scale,
            "calibration": self.calibration,
            "fingerprint": self.fingerprint,
            "warnings": list(self._warnings),
        }

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Judges every step of one solution, given as text or as a list of steps."""
        return self.score_many([(question, solution)], options)[0]

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        """Judges items concurrently. A malformed item raises `InputError` before anything is generated."""
        asked = list(items)
        read = self._read(asked, options, keep_going=False)
        with Progress(len(asked), shown=progress) as bar:
            return self._run(read, options, Memo(), bar)

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """Judges any number of items, `window` at a time. A malformed item becomes an unscored result."""
        check_window(window)

        def stream() -> Iterator[SolutionScore]:
            waiting, first = iter(items), 0
            with Progress(len(items) if isinstance(items, Sized) else None, shown=progress) as bar:
                while some := list(islice(waiting, window)):
                    read = self._read(some, options, keep_going=True, first=first)
                    first += len(some)
                    yield from self._run(read, options, Memo(), bar)

        return stream()

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> CriticSession:
        """Starts a search over candidate solutions of one question. Steps that candidates share are judged once."""
        return CriticSession(self, question, options)

    def close(self) -> None:
        """Stops a model in this process and closes connections. A generator that was passed as an object stays open."""
        if self.owns_generator:
            run_async(self.generator.close())

    def __enter__(self) -> CriticScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(
        self, items: Sequence[Item], options: ReadOptions, *, keep_going: bool, first: int = 0
    ) -> list[tuple[str, Solution] | InputError]:
        if options.system is not None and not self.critic.takes_system:
            raise OptionError(f"The critic {self.critic.name!r} has no system message to replace. Omit `system`.")
        read: list[tuple[str, Solution] | InputError] = []
        for number, item in enumerate(items, first):
            try:
                read.append(read_and_split(item, number, options))
            except InputError as error:
                if not keep_going and not isinstance(error, OverLimitError):
                    raise
                read.append(error)
        return read

    async def score_async(self, items: Sequence[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Judges items in a running event loop. A malformed item becomes an unscored result."""
        return await self._judge_all(self._read(items, options, keep_going=True), options, Memo(), None)

    def _run(
        self, read: Sequence[tuple[str, Solution] | InputError], options: ReadOptions, memo: Memo, bar: Progress | None
    ) -> list[SolutionScore]:
        async def judge() -> list[SolutionScore]:
            try:
                return await self._judge_all(read, options, memo, bar)
            finally:
                if isinstance(self.generator, ServerGenerator):  # closes the connections of this event loop only
                    await self.generator.close()

        return run_async(judge())

    async def _judge_all(
        self, read: Sequence[tuple[str, Solution] | InputError], options: ReadOptions, memo: Memo, bar: Progress | None
    ) -> list[SolutionScore]:
        limit = asyncio.Semaphore(self._concurrency)

        async def one(each: tuple[str, Solution] | InputError) -> SolutionScore:
            if isinstance(each, InputError):
                return self._calibrated(SolutionScore((), self.name, reason=str(each)))
            async with limit:
                started = time.perf_counter()
                task = Task(each[0], tuple(step.text for step in each[1].steps), options.system)
                judged = await self._judge(task, memo)
                result = self._result(each[1], judged, time.perf_counter() - started)
                if bar is not None:
                    bar.settle(1, result.tokens + result.generated_tokens)
                return result

        return list(await asyncio.gather(*map(one, read)))

    async def _judge(self, task: Task, memo: Memo) -> Judged:
        if mark := self.critic.forged(task):
            return Judged(tuple(Judgement((failed("not_judged", FORGED.format(mark=mark)),)) for _ in task.steps))
        if self.cache is None:
            return await self._compute(task, memo)
        key = self._key(task)
        if (record := self.cache.find_record(key)) is not None:
            return replace(Judged.from_record(record), prompt_tokens=0, generated_tokens=0, calls=0)
        judged = await self._compute(task, memo)
        if all(vote.status != "generator_error" for judgement in judged.judgements for vote in judgement.votes):
            self.cache.store_record(key, judged.to_record())
        return judged

    async def _compute(self, task: Task, memo: Memo) -> Judged:
        backend = CriticBackend(self.generator, self._tokenizer)
        judgements = await self.critic.judge(backend, task, memo)
        return Judged(tuple(judgements), backend.prompt_tokens, backend.generated_tokens, backend.calls)

    def _key(self, task: Task) -> bytes:
        content = [RECORD_VERSION, self.fingerprint, task.system, task.question, *task.steps]
        return sha256(json.dumps(content).encode()).digest()

    def _result(self, solution: Solution, judged: Judged, seconds: float) -> SolutionScore:
        steps = tuple(
            StepScore(
                step.text,
                step.start,
                step.end,
                judgement.score,
                judgement.status,
                step.index,
                step.kind,
                spread=judgement.spread,
                members=judgement.members(),
                label_mass=judgement.mass,
            )
            for step, judgement in zip(solution.steps, judged.judgements, strict=True)
        )
        result = SolutionScore(
            steps,
            self.name,
            answer=solution.answer,
            reason=_reason(judged.judgements),
            warnings=self._warnings,
            outside=solution.outside,
            skipped=solution.skipped,
            empty_steps=solution.empty_steps,
            split=solution.rule,
            tokens=judged.prompt_tokens,
            generated_tokens=judged.generated_tokens,
            calls=judged.calls,
            seconds=seconds,
            recommended=self.critic.recommended,
        )
        return self._calibrated(result)

    def _calibrated(self, result: SolutionScore) -> SolutionScore:
        return result if self._calibration is None else self._calibration.apply(result)


class CriticSession:
    """A search over one question with a critic. Created by `CriticScorer.session`."""

    def __init__(self, scorer: CriticScorer, question: str, options: ReadOptions) -> None:
        self.question = read_question(question)
        self._scorer, self._options, self._memo = scorer, options, Memo()
        self._computed = 0

    @property
    def computed_tokens(self) -> int:
        """Tokens that the critic has read and written so far."""
        return self._computed

    def score(self, prefixes: Sequence[str | Sequence[str]]) -> list[SolutionScore]:
        """Judges candidates, finished or not, each as text or as a list of steps."""
        read = self._scorer._read(read_candidates(self.question, prefixes), self._options, keep_going=False)
        results = self._scorer._run(read, self._options, self._memo, None)
        self._computed += sum(result.tokens + result.generated_tokens for result in results)
        return results


def _reason(judgements: Sequence[Judgement]) -> str | None:
    if not judgements:
        return NO_STEPS
    unscored = [judgement for judgement in judgements if judgement.score is None]
    # A report of the first error explains the steps after it, so it is the last reason to give.
    unscored.sort(key=lambda judgement: judgement.status == "after_error")
    return unscored[0].reason if unscored else None
