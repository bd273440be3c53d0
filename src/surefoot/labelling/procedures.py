"""Chooses the steps of a solution that are measured: all, those up to the first wrong one, or a binary search for it.

A procedure only measures; what follows from the measurements is decided in `steps.py`. It returns the steps that can
contradict "once 0, always 0": those that were not chosen by assuming it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from surefoot.labelling.settings import Procedure


class Probes(Protocol):
    """The steps of one solution, each of which is measured at most once."""

    @property
    def count(self) -> int:
        """The number of steps."""

    @property
    def last(self) -> bool | None:
        """Whether the solution's own answer is right; None if it does not tell."""

    async def at(self, step: int) -> bool | None:
        """Measure a step: is it right? None if undecided. The last step of a finished solution costs nothing."""


async def every(probes: Probes, checks: int) -> Sequence[int]:
    """Measure all steps."""
    for step in range(probes.count):
        await probes.at(step)
    return range(probes.count)


async def until_error(probes: Probes, checks: int) -> Sequence[int]:
    """Measure steps in order up to the first one that is wrong. After it, only the own answer can contradict."""
    for step in range(probes.count):
        if await probes.at(step) is False:
            break
    return range(probes.count)


async def binary(probes: Probes, checks: int) -> Sequence[int]:
    """Search for the first wrong step, assuming that all steps after it are wrong, too. Then measure the next `checks`
    steps after it about which nothing is known yet, which tells whether that holds. The search itself and the own
    answer do not tell: the search only went on before a step because that step, or the answer, was wrong.

    If the own answer is right, no step is wrong by this assumption, and nothing is measured.
    """
    seen: set[int] = set() if probes.last is None else {probes.count - 1}
    right, wrong = -1, probes.count  # the last step known to be right, and the first one known to be wrong
    if probes.last is not None:
        right, wrong = (probes.count - 1, wrong) if probes.last else (right, probes.count - 1)
    while wrong - right > 1:
        for step in _middle_first(right, wrong):
            verdict = await probes.at(step)
            seen.add(step)
            if verdict is not None:
                right, wrong = (step, wrong) if verdict else (right, step)
                break
        else:
            break  # all steps in between are undecided
    further = [step for step in range(wrong + 1, probes.count) if step not in seen][:checks]
    for step in further:
        await probes.at(step)
    return further


PROCEDURES: dict[Procedure, Callable[[Probes, int], Awaitable[Sequence[int]]]] = {
    "every": every,
    "until-error": until_error,
    "binary": binary,
}


def _middle_first(right: int, wrong: int) -> Iterator[int]:
    """The steps between two, from the middle up, then from the middle down: later steps are cheaper to continue."""
    middle = (right + wrong) // 2
    yield from range(middle, wrong)
    yield from range(middle - 1, right, -1)
