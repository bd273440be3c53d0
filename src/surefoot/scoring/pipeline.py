"""The pipeline behind every model: prepare items, compute their prompts, finish the results.

Scorers, search sessions and the service share `prepare` and `finish` and differ only in what computes the prompts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from surefoot.core.calibration import Calibration
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import NO_STEPS, Scale, SolutionScore, StepScore, StepStatus
from surefoot.core.solution import Solution
from surefoot.errors import InputError, OptionError
from surefoot.families import Family, PromptTokenizer, StepValue, TokenizerCheck
from surefoot.scoring.reading import OverLimitError, read_and_split

Row = Tensor | list[Any] | Exception
"""The numbers at the reads of one prompt, or why there are none."""

Compute = Callable[[Sequence[Prompt]], Sequence[Row]]

NOT_COMPUTED = "The model could not compute this solution. The log says why."


@dataclass(frozen=True)
class PreparedSolution:
    """One item, split and encoded, and the part of it that fits the model's context."""

    solution: Solution
    prompts: tuple[Prompt, ...]
    readable: tuple[Prompt, ...]
    warnings: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the longest prompt: several prompts of one solution share the rest."""
        return max(len(prompt.ids) for prompt in self.readable)


Prepared = PreparedSolution | InputError
"""A prepared item, or what is wrong with it."""


@dataclass(frozen=True)
class Pipeline:
    """What a model needs besides its weights to turn items into results."""

    name: str
    family: Family
    tokenizer: PromptTokenizer
    max_tokens: int
    """The longest prompt that the model reads. Steps that end later are `over_length`."""
    calibration: Calibration | None = None
    tokenizer_check: TokenizerCheck = field(default_factory=TokenizerCheck)
    recommended: str | None = None
    """The aggregation by which the makers of the model rank solutions; None if that is not known."""
    trained_tokens: int | None = None
    """The longest prompt that the model was made for; longer ones get a warning. None if that is not known."""
    precision: str | None = None
    """The number format that scores are computed in; None if that is not known, as on a server."""

    @property
    def scale(self) -> Scale:
        """What the scores are."""
        return self.family.scale

    def run(
        self,
        compute: Compute,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        first: int = 0,
        keep_going: bool = False,
    ) -> list[SolutionScore]:
        """Prepares, computes and finishes items in one call. For the options see `prepare`."""
        started = time.perf_counter()
        prepared = self.prepare(items, options, first=first, keep_going=keep_going)
        rows = compute(prompts_of(prepared))
        return self.finish(prepared, rows, time.perf_counter() - started)

    def prepare(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        first: int = 0,
        keep_going: bool = False,
    ) -> list[Prepared]:
        """Splits and encodes items. Messages number them from `first`.

        A malformed item raises `InputError`; with `keep_going` the error takes its place in the list. An item over
        the limits of `data.items` never raises.
        """
        prepared: list[Prepared] = []
        for number, item in enumerate(items, start=first):
            try:
                prepared.append(self._prepare(item, number, options))
            except InputError as error:
                if not keep_going and not isinstance(error, OverLimitError):
                    raise
                prepared.append(error)
        return prepared

    def finish(self, prepared: Sequence[Prepared], rows: Iterable[Row], seconds: float) -> list[SolutionScore]:
        """Makes the results of prepared items from the rows of `prompts_of(prepared)`.

        `seconds` is the wall time of the call so far. Its solutions share it in proportion to their tokens.
        """
        tokens = sum(each.tokens for each in prepared if isinstance(each, PreparedSolution))
        per_token = seconds / max(1, tokens)
        waiting = iter(rows)
        return [
            self._finish(each, [next(waiting) for _ in each.readable], per_token * each.tokens)
            if isinstance(each, PreparedSolution)
            else self.unscored(str(each))
            for each in prepared
        ]

    def unscored(self, reason: str) -> SolutionScore:
        """The result of an item that could not be scored at all."""
        return self._calibrated(self._result((), reason=reason))

    def parse_prompt(self, prompt: str | Sequence[int]) -> Prompt:
        """Reads a prompt that was rendered elsewhere, as text or token ids. It is scored at every step marker.

        This is the only place where text may spell structure: the markers of a whole prompt are meant.
        """
        name = self.family.step_marker()
        if name is None:
            raise OptionError(f"Models of the family {self.family.name} have no step marker to read at.")
        ids = self.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else list(prompt)
        if any(not 0 <= id < self.tokenizer.vocab_size for id in ids):
            raise InputError(f"A token id is outside of the vocabulary, which ends at {self.tokenizer.vocab_size - 1}.")
        marker = self.tokenizer.token(name)
        # The question, which other prompts may share, ends with the last structure token before the steps.
        opening = ids[: ids.index(marker)] if marker in ids else []
        prefix = max((at + 1 for at, id in enumerate(opening) if id in self.tokenizer.special_ids), default=0)
        return self.family.place_reads(self.tokenizer, ids, prefix)

    def step_values(self, prompt: Prompt, row: Tensor | list[Any]) -> list[StepValue]:
        """The values of a prompt's steps, from what the engine computed at its reads."""
        return self.family.combine(prompt, _tensor(row))

    def _prepare(self, item: Item, number: int, options: ReadOptions) -> PreparedSolution:
        question, solution = read_and_split(item, number, options)
        texts = [step.text for step in solution.steps]
        prompts = self.family.prompts(self.tokenizer, question, texts, options.system, self.max_tokens)
        readable = tuple(prompt.cut(self.max_tokens) for prompt in prompts)
        longest = max(len(prompt.ids) for prompt in readable)
        return PreparedSolution(solution, prompts, readable, tuple(self._warnings(question, solution, longest)))

    def _warnings(self, question: str, solution: Solution, tokens: int) -> Iterator[str]:
        if self.trained_tokens is not None and tokens > self.trained_tokens:
            yield (
                f"The prompt has {tokens} tokens, and the model was trained on at most {self.trained_tokens}. Scores "
                "of later steps are less reliable."
            )
        for where, text in (("question", question), ("solution", solution.text)):
            for name in self.tokenizer.special_tokens_in(text):
                yield f"The {where} contains {name!r}. It was read as text, not as structure."
        if solution.skipped and all(step.kind == "answer" for step in solution.steps):
            yield "No reasoning is left to score: it is all in the part that the option `thinking` skips."
        for name in self.family.text_markers:
            if name.strip() and name in question:
                yield f"The question contains {name!r}, which ends a step for this model. It was read as text."
            if any(name in step.text for step in solution.steps):
                yield f"A step contains {name!r}, which ends a step for this model. It was read as text."

    def _finish(self, prepared: PreparedSolution, rows: list[Row], seconds: float) -> SolutionScore:
        values: list[StepValue] = []
        for prompt, row in zip(prepared.readable, rows, strict=True):
            if isinstance(row, Exception):
                return self.unscored(NOT_COMPUTED)
            values += self.step_values(prompt, row)
        steps = []
        for number, step in enumerate(prepared.solution.steps):
            score, status = _status(values, number)
            spread = None if score is None else values[number].spread
            steps.append(
                StepScore(step.text, step.start, step.end, score, status, step.index, step.kind, spread=spread)
            )
        result = self._result(
            tuple(steps),
            answer=prepared.solution.answer,
            reason=self._reason(prepared, steps),
            warnings=prepared.warnings,
            outside=prepared.solution.outside,
            skipped=prepared.solution.skipped,
            empty_steps=prepared.solution.empty_steps,
            split=prepared.solution.rule,
            tokens=prepared.tokens,
            seconds=seconds,
        )
        return self._calibrated(result)

    def _result(self, steps: tuple[StepScore, ...], **fields: Any) -> SolutionScore:
        return SolutionScore(
            steps, self.name, scale=self.scale, recommended=self.recommended, precision=self.precision, **fields
        )

    def _reason(self, prepared: PreparedSolution, steps: list[StepScore]) -> str | None:
        if not steps:
            return NO_STEPS
        statuses = {step.status for step in steps}
        prefix = prepared.prompts[0].prefix
        if prefix >= self.max_tokens:
            return f"The question alone takes {prefix} tokens; the limit is {self.max_tokens}."
        if "over_length" in statuses:
            late = sum(step.status == "over_length" for step in steps)
            return f"{late} of {len(steps)} steps end past the limit of {self.max_tokens} tokens."
        if "not_finite" in statuses:
            return "The model gave a score that is not a finite number."
        return None

    def _calibrated(self, result: SolutionScore) -> SolutionScore:
        # After the score cache, which holds what the model computed.
        return result if self.calibration is None else self.calibration.apply(result)


def prompts_of(prepared: Iterable[Prepared]) -> list[Prompt]:
    """The prompts to compute, in the order in which `Pipeline.finish` expects their rows."""
    return [prompt for each in prepared if isinstance(each, PreparedSolution) for prompt in each.readable]


def _status(values: list[StepValue], number: int) -> tuple[float | None, StepStatus]:
    if number >= len(values):
        return None, "over_length"
    score = values[number].score
    return (score, "scored") if math.isfinite(score) else (None, "not_finite")


def _tensor(row: Tensor | list[Any]) -> Tensor:
    return row if isinstance(row, Tensor) else torch.tensor(row, dtype=torch.float32)
