"""Load what other packages provide through entry points: families and critics.

Invariant: an entry point that cannot be used is recorded with the name of its package, and never affects the others. A
name that two packages use belongs to neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger("surefoot")

BUILT_IN = "surefoot"
"""The package of everything that is not a plugin."""


class Named(Protocol):
    """What a registry lists."""

    @property
    def name(self) -> str:
        """The name by which it is found."""


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """What other packages provide."""

    found: dict[str, T]
    errors: dict[str, str]
    """Why something cannot be used, by its name."""

    def warn(self) -> None:
        """Log all errors."""
        for message in self.errors.values():
            logger.warning("%s", message)

    def usable(self, built_in: Mapping[str, T]) -> dict[str, T]:
        """Return everything that can be used, by name."""
        return {name: each for name, each in ({**built_in, **self.found}).items() if name not in self.errors}


def load_plugins(
    points: Iterable[EntryPoint],
    built_in: Mapping[str, T],
    *,
    noun: str,
    check: Callable[[object, EntryPoint], T],
    claims: Callable[[T], Iterable[str]],
) -> Plugins[T]:
    """Load what entry points name: an object, or a class that is called without arguments.

    `noun` is what errors call it. `check` returns a loaded object or raises. `claims` lists what belongs to it and to
    nothing else, such as `the model a/b`.
    """
    found: dict[str, T] = {}
    errors: dict[str, str] = {}
    providers: dict[str, list[str]] = {name: [BUILT_IN] for name in built_in}
    owners = {claim: each.name for each in built_in.values() for claim in claims(each)}
    for point in points:
        package = point.dist.name if point.dist is not None else point.value
        providers.setdefault(point.name, []).append(package)
        try:
            loaded = point.load()
            plugin = check(loaded() if isinstance(loaded, type) else loaded, point)
            if plugin.name != point.name:
                raise ValueError(f"the entry point is called {point.name!r}, but the {noun} {plugin.name!r}")
            claimed = list(claims(plugin))
            for claim in claimed:
                if claim in owners:
                    raise ValueError(f"{claim} already belongs to the {noun} {owners[claim]!r}")
        except Exception as error:
            errors[point.name] = (
                f"The {noun} {point.name!r} of the package {package!r} cannot be used ({type(error).__name__}: "
                f"{error}). Update or uninstall that package."
            )
        else:
            found[point.name] = plugin
            owners |= dict.fromkeys(claimed, plugin.name)
    for name, packages in providers.items():
        if len(packages) > 1:
            errors[name] = (
                f"The {noun} name {name!r} is used by {' and by '.join(map(repr, packages))}. Uninstall one of them."
            )
    return Plugins({name: each for name, each in found.items() if name not in errors}, errors)
