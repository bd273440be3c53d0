"""A policy and a judge whose every reply is known, so that a search can be computed by hand."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from surefoot.core.generation import Continuation, Generation, GenerationRequest, end_at
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import Scale, SolutionScore, StepScore, StepStatus
from surefoot.data.rescoring import RescoringSession

NUMBER = re.compile(r"\[(-?[\d.]+|none)\]")
SPREAD = re.compile(r"\(\+-([\d.]+)\)")


@dataclass
class Policy:
    """A generator whose continuation of a prefix is a function of prefix and seed. Words count as tokens."""

    write: Callable[[str, int], str]
    """The rest of the solution after a prefix."""
    name: str = "policy"
    fingerprint: str = "policy-1"
    continues: bool = True
    requests: list[GenerationRequest] = field(default_factory=list)

    async def check(self) -> None:
        """Accept everything."""

    async def close(self) -> None:
        """Release nothing."""

    async def generate(self, request: GenerationRequest) -> Generation:
        self.requests.append(request)
        found = []
        for index in range(request.n):
            rest = self.write(request.prefix, request.seed_of(index))
            if rest == "ERROR":
                found.append(Continuation("", "error", 0, request.seed_of(index), "the policy is asleep"))
                continue
            step = end_at(rest, request.step_ends)
            words = re.findall(r"\s*\S+\s*", step or rest) or ["\n\n"]
            if len(words) > request.max_tokens:
                text = "".join(words[: request.max_tokens])
                found.append(Continuation(text, "cut_off", request.max_tokens, request.seed_of(index)))
            else:
                end = "answer" if step is None else "step"
                found.append(Continuation(step or rest, end, len(words), request.seed_of(index)))  # type: ignore[arg-type]
        return Generation(tuple(found), len(request.prefix.split()), request.n)


@dataclass
class Judge:
    """A scorer that reads the score of a step from the step: `Some text [0.7]`. `[none]` stays unscored.

    A step without a number has the score `default`. A step with `(+-0.2)` has that spread, as in an
    ensemble.
    """

    scale: Scale = "probability"
    name: str = "judge"
    fingerprint: str = "judge-1"
    calibration: str | None = None
    recommended: str | None = None
    default: float | None = None
    scored: list[tuple[str, ...]] = field(default_factory=list)

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        assert not isinstance(solution, str)
        self.scored.append(tuple(solution))
        steps, reason = [], None
        for at, text in enumerate(solution):
            found = NUMBER.findall(text)
            score = self.default if not found else None if found[-1] == "none" else float(found[-1])
            reason = reason or (None if score is not None else "the judge has no opinion")
            spread = [float(number) for number in SPREAD.findall(text)]
            status: StepStatus = "scored" if score is not None else "not_finite"
            steps.append(StepScore(text, 0, 0, score, status, at, spread=spread[-1] if spread else None))
        return SolutionScore(
            tuple(steps), self.name, reason=reason, scale=self.scale, tokens=len(steps), recommended=self.recommended
        )

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        return [self.score(*item) for item in items]

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        return iter(self.score_many(items))

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> RescoringSession:
        return RescoringSession(self, question, options)


def random_policy(depth: int = 4, scores: int = 100) -> Policy:
    """A policy whose steps have random scores, and whose solutions have up to `depth` steps and small answers."""

    def write(prefix: str, seed: int) -> str:
        rng = random.Random(f"{prefix}|{seed}")
        done = prefix.count("\n\n")
        steps = [
            f"Step {done + at} says {rng.randrange(1000)} [{rng.randrange(scores) / scores}]"
            for at in range(rng.randint(1, max(1, depth - done)))
        ]
        steps[-1] = f"The answer is \\boxed{{{rng.randrange(3)}}}. [{rng.randrange(scores) / scores}]"
        return "\n\n".join(steps)

    return Policy(write)
