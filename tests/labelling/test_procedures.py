"""Which steps are measured: a binary search finds what a linear scan finds, with fewer measurements."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from itertools import product

import pytest

from surefoot.labelling.procedures import binary, every, until_error


@dataclass
class Known:
    """Steps whose verdicts are known."""

    verdicts: list[bool | None]
    last: bool | None = None
    asked: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.verdicts)

    async def at(self, step: int) -> bool | None:
        if step not in self.asked and not (self.last is not None and step == self.count - 1):
            self.asked.append(step)
        return self.verdicts[step]

    def first_error(self) -> int:
        seen = {step: self.verdicts[step] for step in self.asked}
        if self.last is not None:
            seen[self.count - 1] = self.last
        return min((step for step, verdict in seen.items() if verdict is False), default=-1)


CASES = [(count, error) for count in range(1, 14) for error in range(-1, count)]


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(("count", "error"), CASES)
def test_binary_search_finds_every_first_error_with_a_logarithm_of_measurements(
    count: int, error: int, finished: bool
) -> None:
    verdicts: list[bool | None] = [error < 0 or step < error for step in range(count)]
    probes = Known(verdicts, verdicts[-1] if finished else None)
    asyncio.run(binary(probes, 0))
    assert probes.first_error() == error
    assert len(probes.asked) <= math.ceil(math.log2(count + 1))
    if finished and error < 0:
        assert probes.asked == []


def test_the_check_measures_the_steps_after_the_error() -> None:
    for checks, more in ((0, []), (1, [3]), (2, [3, 4])):
        probes = Known([True, True, False, True, False, False], False)
        asyncio.run(binary(probes, 0))
        before = list(probes.asked)
        again = Known(probes.verdicts, False)
        asyncio.run(binary(again, checks))
        assert sorted(again.asked) == sorted({*before, *more})


@pytest.mark.parametrize(
    ("error", "measured", "further"),
    [
        # By hand, for eight steps with the bounds -1 and 7 (the wrong answer): the middle of the bounds comes first.
        (0, [3, 1, 0], [2]),  # 1 is known to be wrong from the search, so it checks nothing
        (1, [3, 1, 0], [2]),
        (2, [3, 1, 2], [4]),
        (3, [3, 1, 2], [4]),
        (6, [3, 5, 6], []),  # only the answer comes after it
        (7, [3, 5, 6], []),
    ],
)
def test_only_a_step_about_which_nothing_is_known_is_a_check(
    error: int, measured: list[int], further: list[int]
) -> None:
    probes = Known([step < error for step in range(8)], False)
    assert asyncio.run(binary(probes, 1)) == further
    assert probes.asked == measured + further


@pytest.mark.parametrize("verdicts", list(product([True, False, None], repeat=5)))
def test_binary_search_ends_and_brackets_the_error_whatever_is_undecided(verdicts: tuple[bool | None, ...]) -> None:
    probes = Known(list(verdicts))
    asyncio.run(binary(probes, 1))
    assert len(probes.asked) == len(set(probes.asked))
    # Everything between the last right step before the found error and the error itself was asked, and is undecided.
    error = probes.first_error() if probes.first_error() >= 0 else probes.count
    right = max((step for step in probes.asked if step < error and verdicts[step]), default=-1)
    assert all(step in probes.asked and verdicts[step] is None for step in range(right + 1, error))


def test_the_other_procedures_measure_in_order() -> None:
    probes = Known([True, None, False, True])
    asyncio.run(until_error(probes, 1))
    assert probes.asked == [0, 1, 2]
    probes = Known([True, None, False, True])
    asyncio.run(every(probes, 1))
    assert probes.asked == [0, 1, 2, 3]
