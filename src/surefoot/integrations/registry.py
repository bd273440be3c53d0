"""Find integrations by name: those in this package, and those that other packages provide through entry points.

A package adds an integration with an entry point in the group `surefoot.integrations`. Its value is a module, or any
other object that holds the integration's functions:

    [project.entry-points."surefoot.integrations"]
    mytrainer = "surefoot_mytrainer"

`get` imports an integration when it is requested, so one that is broken does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from surefoot.errors import MissingDependencyError, OptionError, PluginError, SurefootError

GROUP = "surefoot.integrations"
PACKAGE = "surefoot"


@dataclass(frozen=True)
class Integration:
    """An integration that is installed, with its trainer or without."""

    name: str
    package: str
    """The distribution that provides it."""
    entry_point: EntryPoint
    trainer: str | None = None
    """The Python package of the trainer; None if the integration checks this itself."""
    install: str = ""
    """The command that installs the trainer."""

    @property
    def trainer_installed(self) -> bool:
        """Whether the trainer can be imported."""
        return self.trainer is None or find_spec(self.trainer) is not None


def _built_in(name: str, requirement: str) -> Integration:
    point = EntryPoint(name, f"surefoot.integrations.{name}", GROUP)
    return Integration(name, PACKAGE, point, name, f'pip install "{requirement}"')


BUILT_IN = (
    _built_in("trl", "surefoot[trl]"),
    _built_in("verl", "verl"),
    _built_in("openrlhf", "openrlhf"),
    _built_in("verifiers", "verifiers"),
    _built_in("skyrl", "skyrl"),
    _built_in("prime_rl", "git+https://github.com/PrimeIntellect-ai/prime-rl"),
    _built_in("slime", "git+https://github.com/THUDM/slime"),
)


def available() -> list[Integration]:
    """List all integrations, those in this package first. Nothing is imported.

    >>> [each.name for each in available() if each.package == "surefoot"]
    ['trl', 'verl', 'openrlhf', 'verifiers', 'skyrl', 'prime_rl', 'slime']
    """
    return [*BUILT_IN, *_plugins(entry_points(group=GROUP))]


def _plugins(points: Iterable[EntryPoint]) -> list[Integration]:
    return [Integration(point.name, point.dist.name if point.dist else point.value, point) for point in points]


def get(name: str) -> Any:
    """Import an integration: the module with its reward functions.

    reward = get("trl").reward_function("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", gold="answer")
    """
    integrations = available()
    found = [each for each in integrations if each.name == name]
    if not found:
        names = ", ".join(dict.fromkeys(each.name for each in integrations))
        raise OptionError(f"There is no integration {name!r}. Choose one of: {names}.")
    if len(found) > 1:
        packages = " and ".join(repr(each.package) for each in found)
        raise PluginError(f"The integration {name!r} is provided by {packages}. Uninstall one of them.")
    integration = found[0]
    if not integration.trainer_installed:
        raise MissingDependencyError(
            f"The integration {name!r} needs the package {integration.trainer}. Run: {integration.install}"
        )
    try:
        return integration.entry_point.load()
    except SurefootError:
        raise
    except Exception as error:
        raise PluginError(
            f"The integration {name!r} of the package {integration.package!r} cannot be imported "
            f"({type(error).__name__}: {error}). Install what it needs, or update or uninstall that package."
        ) from error
