"""All critics: those in this package, and those that other packages provide through entry points.

A package adds a critic with an entry point in the group `surefoot.critics`, whose name is the critic's name and whose
value is the class, a frozen dataclass that derives from `surefoot.critics.base.Critic`:

    [project.entry-points."surefoot.critics"]
    terse = "surefoot_terse:Terse"
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from surefoot.core.options import with_options
from surefoot.critics.base import Critic
from surefoot.critics.dyve import Dyve
from surefoot.critics.genprm import GenPRM
from surefoot.critics.multi_rm import GORM, GPRM
from surefoot.critics.processbench import ProcessBenchCritic
from surefoot.critics.r_prm import RPRM
from surefoot.critics.thinkprm import ThinkPRM
from surefoot.critics.yes_no import YesNoCritic
from surefoot.errors import OptionError, PluginError

logger = logging.getLogger("surefoot")

GROUP = "surefoot.critics"

CRITICS: dict[str, Critic] = {
    critic.name: critic
    for critic in (GenPRM(), ThinkPRM(), RPRM(), GPRM(), GORM(), Dyve(), ProcessBenchCritic(), YesNoCritic())
}
"""The critics in this package."""


@cache
def all_critics() -> dict[str, Critic]:
    """All critics that can be used, by name."""
    plugins, errors = load_plugins(entry_points(group=GROUP))
    for message in errors.values():
        logger.warning("%s", message)
    return CRITICS | plugins


def load_plugins(points: Iterable[EntryPoint]) -> tuple[dict[str, Critic], dict[str, str]]:
    """Load the critics that these entry points name. Return them, and why others cannot be used."""
    critics: dict[str, Critic] = {}
    errors: dict[str, str] = {}
    for point in points:
        package = point.dist.name if point.dist is not None else point.value
        try:
            loaded = point.load()
            critic: object = loaded() if isinstance(loaded, type) else loaded
            if not isinstance(critic, Critic) or critic.name != point.name:
                raise TypeError(f"{point.value} is not a Critic with the name {point.name!r}")
            if point.name in CRITICS or point.name in critics:
                raise ValueError("another critic has this name")
            critics[point.name] = critic
        except Exception as error:
            errors[point.name] = (
                f"The critic {point.name!r} of the package {package!r} cannot be used ({type(error).__name__}: "
                f"{error}). Update or uninstall that package."
            )
    return critics, errors


def critic_of(model: str | Path) -> Critic | None:
    """The critic that a model is made for, by its hub id or the name of its folder; None if that is not known.

    >>> critic_of("GenPRM/GenPRM-7B").name
    'genprm'
    """
    wanted = str(model).rstrip("/").lower()
    for critic in all_critics().values():
        for known in critic.models:
            if wanted == known.lower() or Path(wanted).name == known.rsplit("/", 1)[-1].lower():
                return with_options(critic, critic.model_options.get(known, {}), "critic")
    return None


def find_critic(critic: str | Critic, options: Mapping[str, Any] | None = None) -> Critic:
    """Return a critic by its name, with some of its options changed."""
    if isinstance(critic, Critic):
        return with_options(critic, options or {}, "critic")
    known = all_critics()
    if critic not in known:
        _, errors = load_plugins(entry_points(group=GROUP))
        if critic in errors:
            raise PluginError(errors[critic])
        raise OptionError(f"critic={critic!r} is unknown. Choose one of: {', '.join(sorted(known))}.")
    return with_options(known[critic], options or {}, "critic")
