"""What a search may do: its shape, its limits, and how it ranks and selects."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from surefoot.core.aggregation import find_aggregation
from surefoot.core.generation import DEFAULT_SAMPLING, Sampling
from surefoot.core.search_result import SELECTIONS, Selection
from surefoot.errors import OptionError

STEP_END = "\n\n"
"""Ends a step by default: a blank line, as in most published searches."""


LEAST = {"n": 1, "branches": 1, "max_steps": 1, "max_tokens": 1, "lookahead": 0, "backtracks": 0}


@dataclass(frozen=True)
class Budget:
    """Limits for one question. None is no limit.

    >>> surefoot.Budget(tokens=4096)
    Budget(tokens=4096, calls=None, seconds=None)
    """

    tokens: int | None = None
    """Generated tokens. Never exceeded: the last continuations are cut off."""
    calls: int | None = None
    """Continuations that are requested."""
    seconds: float | None = None
    """Checked between rounds. Results then depend on the speed of the machine."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kinds = (int, float) if name == "seconds" else (int,)
            if value is not None and not (_is_number(value, kinds) and value > 0):
                raise OptionError(f"The budget {name}={value!r} allows nothing. Pass a number above 0, or None.")


UNLIMITED = Budget()


@dataclass(frozen=True)
class SearchSettings:
    """The settings of one search.

    >>> surefoot.SearchSettings(n=8, branches=2).beams
    4
    """

    n: int = 8
    """Continuations per round; solutions for best-of-N."""
    branches: int = 2
    """Continuations per path and round."""
    max_steps: int = 40
    """The most rounds, and so the most steps of a path."""
    max_tokens: int = 2048
    """The most generated tokens of a path."""
    step_end: str = STEP_END
    """The text that ends a step."""
    sampling: Sampling = DEFAULT_SAMPLING
    """How continuations are sampled: temperature, top_p and top_k."""
    aggregation: str | None = None
    """Ranks paths; None is what the makers of the PRM recommend, else min."""
    uncertainty: float = 0.0
    """How much the disagreement of an ensemble (`spread`) lowers the score of a step before paths are ranked."""
    selection: Selection = "best"
    """Which answer is returned: that of the `best` path, or the winner of a `weighted` or `majority` vote."""
    lookahead: int = 0
    """How many further steps are generated greedily and scored before a path is ranked."""
    threshold: float | None = None
    """For backtracking: a step at or below this is not continued. None is the natural threshold of the scale."""
    backtracks: int = 8
    """For backtracking: how often it may go back."""
    budget: Budget = UNLIMITED
    """Limits of tokens, calls and seconds for one question."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not _is_number(value, (int,)) or value < least:
                raise OptionError(f"{name}={value!r}: pass a whole number, at least {least}.")
        if not _is_number(self.uncertainty, (int, float)) or not 0 <= self.uncertainty < math.inf:
            raise OptionError(f"uncertainty={self.uncertainty!r}: pass a number, at least 0.")
        if self.threshold is not None and not _is_number(self.threshold, (int, float)):
            raise OptionError(f"threshold={self.threshold!r}: pass a number, or None for the natural one.")
        for name, kind in (("sampling", Sampling), ("budget", Budget), ("step_end", str)):
            if not isinstance(getattr(self, name), kind):
                raise OptionError(f"{name}={getattr(self, name)!r}: pass a {kind.__name__}.")
        if not self.step_end:
            raise OptionError("`step_end` is empty. Pass the text that ends a step, such as a blank line.")
        if self.selection not in SELECTIONS:
            raise OptionError(f"selection={self.selection!r} is unknown. Choose one of: {', '.join(SELECTIONS)}.")
        if self.aggregation is not None:
            find_aggregation(self.aggregation)

    @property
    def beams(self) -> int:
        """The number of paths, or of subtrees, that are continued in each round."""
        if self.n % self.branches:
            raise OptionError(
                f"n={self.n} is not a multiple of branches={self.branches}: every path gets the same number of "
                "continuations."
            )
        return self.n // self.branches

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-compatible data."""
        return asdict(self)


def _is_number(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
