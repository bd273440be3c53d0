"""The list of strategies. To add one, add a module and a line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from surefoot.errors import OptionError
from surefoot.searching.exploration import Exploration
from surefoot.searching.settings import SearchSettings
from surefoot.searching.strategies.backtracking import backtracking
from surefoot.searching.strategies.beam import beam
from surefoot.searching.strategies.best_of_n import best_of_n
from surefoot.searching.strategies.dvts import dvts


@dataclass(frozen=True)
class Strategy:
    """One way to search."""

    name: str
    run: Callable[[Exploration], Awaitable[None]]
    summary: str
    steps: bool = True
    """Whether it continues partial solutions, which not every generator can."""
    branches: bool = False
    """Whether it divides N by `branches`."""

    def label(self, settings: SearchSettings) -> str:
        """What reports call a search with these settings."""
        shape = f"{settings.beams}x{settings.branches}" if self.branches else str(settings.n)
        ahead = f" lookahead {settings.lookahead}" if settings.lookahead and self.steps else ""
        return f"{self.name} {shape}{ahead}"

    def check(self, settings: SearchSettings) -> None:
        """Reject settings that this strategy cannot use."""
        if self.branches:
            _ = settings.beams
        if settings.lookahead and not self.steps:
            raise OptionError(
                f"lookahead={settings.lookahead} has no effect on {self.name}, which samples whole answers."
            )


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        each.name: each
        for each in (
            Strategy("best-of-n", best_of_n, "N whole answers", steps=False),
            Strategy("beam", beam, "continue the best paths of the whole tree", branches=True),
            Strategy("dvts", dvts, "continue the best path of each of several subtrees", branches=True),
            Strategy("backtracking", backtracking, "continue one path, go back if a step is not good enough"),
        )
    }
)


def find_strategy(name: str) -> Strategy:
    """Return the strategy called `name`."""
    if name not in STRATEGIES:
        raise OptionError(f"There is no strategy {name!r}. Choose one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]
