"""A policy made of recorded solutions: it continues a prefix as one of the solutions with this beginning does.

Invariant: every continuation is a part of a recorded solution, character for character.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from surefoot.core.generation import Continuation, EndState, Generation, GenerationRequest, derived_seed, end_at, failed
from surefoot.display.counting import counted
from surefoot.errors import InputError

RolloutEnd = Literal["answer", "cut_off"]
WORD = re.compile(r"\S+")
ENDS: tuple[RolloutEnd, ...] = ("answer", "cut_off")
DELIMITER = "\n\n"
DRAWS = "each solution once"
"""How solutions are drawn; part of the fingerprint, because results depend on it."""


@dataclass(frozen=True)
class Rollout:
    """A recorded solution."""

    question: str
    text: str
    end: RolloutEnd = "answer"
    tokens: int | None = None
    """Of the whole solution; None if unknown."""


class RolloutGenerator:
    """Continues solutions as recorded ones go on.

    Each row has a `question` and a `solution`, or `steps` that are joined by `delimiter`. It may have `end` (`answer`,
    or `cut_off` for a solution that was not finished) and `tokens`, the tokens of the whole solution. All solutions
    that begin with the prefix are equally likely, and a request gets each of them once before any is repeated. Greedy
    sampling takes the most frequent continuation. Other settings of the sampling have no effect.

    Parts of solutions, and solutions without `tokens`, are counted by `count_tokens`. Without it, they are counted in
    words separated by white space, which are fewer than tokens; the name says so. A continuation with more tokens than
    the request allows is cut off after a word.

    >>> import asyncio
    >>> rows = [{"question": "What is 2 + 3?", "solution": "2 + 3 = 5.\\n\\nThe answer is 5."}]
    >>> request = GenerationRequest("What is 2 + 3?", step_end="\\n\\n")
    >>> asyncio.run(RolloutGenerator(rows).generate(request)).continuations[0].text
    '2 + 3 = 5.\\n\\n'
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        delimiter: str = DELIMITER,
        count_tokens: Callable[[str], int] | None = None,
        name: str = "rollouts",
    ) -> None:
        rollouts = [parse_rollout(row, f"row {number}", delimiter) for number, row in enumerate(rows, start=1)]
        self._rollouts: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            self._rollouts.setdefault(rollout.question, []).append(rollout)
        self._count = count_tokens or count_words
        self._name = name if count_tokens is not None else f"{name} (counted in words)"
        content = json.dumps([DRAWS, *([each.question, each.text, each.end, each.tokens] for each in rollouts)])
        self._fingerprint = hashlib.sha256(content.encode()).hexdigest()

    def __repr__(self) -> str:
        solutions = sum(map(len, self._rollouts.values()))
        many = f"{counted(solutions, 'solution')} to {counted(len(self._rollouts), 'question')}"
        return f"<surefoot.RolloutGenerator {self.name}: {many}>"

    @property
    def name(self) -> str:
        """The given name, and `(counted in words)` if there is no `count_tokens`."""
        return self._name

    @property
    def fingerprint(self) -> str:
        """A hash of all solutions in their order."""
        return self._fingerprint

    @property
    def continues(self) -> bool:
        """True: recorded solutions can be continued from anywhere."""
        return True

    async def check(self) -> None:
        """Raise `InputError` if there are no solutions."""
        if not self._rollouts:
            raise InputError("There are no recorded solutions. Pass at least one row with a question and a solution.")

    async def generate(self, request: GenerationRequest) -> Generation:
        """Choose recorded continuations."""
        known = self._rollouts.get(request.question)
        if known is None:
            return failed(request, "There are no recorded solutions of this question.")
        found = [each for each in known if each.text.startswith(request.prefix)]
        if not found:
            return failed(
                request, f"None of the {len(known)} recorded solutions of this question begins with this prefix."
            )
        if request.sampling.greedy:
            chosen = [_most_frequent(found, request)] * request.n
        else:
            order = _shuffled(found, request)
            chosen = [order[request.seed_of(index) % len(order)] for index in range(request.n)]
        return Generation(tuple(self._continue(each, request, index) for index, each in enumerate(chosen)))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _continue(self, rollout: Rollout, request: GenerationRequest, index: int) -> Continuation:
        text, end = _rest(rollout, request)
        whole = text == rollout.text
        tokens = rollout.tokens if whole and rollout.tokens is not None else self._count(text)
        if tokens > request.max_tokens:
            # Words are fewer than tokens, so the limit may leave all of them. A text that was cut off is not complete.
            text = _longest(text, lambda part: part != text.rstrip() and self._count(part) <= request.max_tokens)
            end, tokens = "cut_off", self._count(text)
        return Continuation(text, end, tokens, request.seed_of(index))


def parse_rollout(row: Mapping[str, Any], place: str, delimiter: str = DELIMITER) -> Rollout:
    """Check a row and return its solution; `place` is its location for errors."""
    question, text, steps = (row.get(name) for name in ("question", "solution", "steps"))
    if not isinstance(question, str):
        raise InputError(f"{place}: `question` must be a text.")
    if text is None and isinstance(steps, list | tuple) and steps and all(isinstance(step, str) for step in steps):
        text = delimiter.join(steps)
    if not isinstance(text, str):
        raise InputError(f"{place}: add `solution` as a text, or `steps` as a list of texts.")
    end, tokens = row.get("end") or "answer", row.get("tokens")
    if end not in ENDS:
        raise InputError(f"{place}: `end` is {end!r}. Write one of: {', '.join(ENDS)}.")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0):
        raise InputError(
            f"{place}: `tokens` is {tokens!r}. Write the number of tokens of the solution, or leave it out."
        )
    return Rollout(question, text, end, tokens)


def count_words(text: str) -> int:
    """The words of a text, separated by white space.

    >>> count_words("2 + 3 = 5.")
    5
    """
    return len(text.split())


def _rest(rollout: Rollout, request: GenerationRequest) -> tuple[str, EndState]:
    rest = rollout.text[len(request.prefix) :]
    step = end_at(rest, request.step_ends)
    return (rest, rollout.end) if step is None else (step, "step")


def _shuffled(rollouts: Sequence[Rollout], request: GenerationRequest) -> list[Rollout]:
    """The rollouts in an order that depends on the question and the prefix only.

    The seeds of a request are consecutive, so they take each rollout once before they repeat one. Files are often
    sorted; without shuffling, neighbours would be alike.
    """
    order = list(rollouts)
    Random(derived_seed(request.question, request.prefix)).shuffle(order)
    return order


def _most_frequent(rollouts: Sequence[Rollout], request: GenerationRequest) -> Rollout:
    """The first rollout with the most frequent continuation."""
    rests = [_rest(each, request) for each in rollouts]
    most = Counter(rests).most_common(1)[0][0]  # of equally frequent ones, the first that occurs
    return rollouts[rests.index(most)]


def _longest(text: str, fits: Callable[[str], bool]) -> str:
    """The longest beginning that ends with a word and fits. Longer texts are taken to have no fewer tokens."""
    ends = [word.end() for word in WORD.finditer(text)]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[: ends[middle - 1]]) else (low, middle - 1)
    return text[: ends[low - 1]] if low else ""
