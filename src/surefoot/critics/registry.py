"""All critics: those in this package, and those that other packages provide through entry points.

A package adds a critic with an entry point in the group `surefoot.critics`, whose name is the critic's name and whose
value is the class, a frozen dataclass that derives from `surefoot.critics.base.Critic`:

    [project.entry-points."surefoot.critics"]
    terse = "surefoot_terse:Terse"

Entry points are loaded once, on first use. One that cannot be used causes a warning that names its package, and an
error if its critic is requested; all other critics keep working.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from surefoot.core.addresses import is_critic_server
from surefoot.core.options import with_options
from surefoot.core.plugins import Plugins, load_plugins
from surefoot.critics.base import Critic
from surefoot.critics.dyve import Dyve
from surefoot.critics.genprm import GenPRM
from surefoot.critics.multi_rm import GORM, GPRM
from surefoot.critics.processbench import ProcessBenchCritic
from surefoot.critics.r_prm import RPRM
from surefoot.critics.thinkprm import ThinkPRM
from surefoot.critics.yes_no import YesNoCritic
from surefoot.errors import OptionError, PluginError

GROUP = "surefoot.critics"

CRITICS: dict[str, Critic] = {
    critic.name: critic
    for critic in (GenPRM(), ThinkPRM(), RPRM(), GPRM(), GORM(), Dyve(), ProcessBenchCritic(), YesNoCritic())
}
"""The critics in this package."""


@cache
def installed_plugins() -> Plugins[Critic]:
    """Load the critics of all installed packages, once."""
    plugins = load_critics(entry_points(group=GROUP))
    plugins.warn()
    return plugins


def load_critics(points: Iterable[EntryPoint]) -> Plugins[Critic]:
    """Load the critics that these entry points name."""
    return load_plugins(points, CRITICS, noun="critic", check=_checked, claims=_claims)


def all_critics() -> dict[str, Critic]:
    """All critics that can be used, by name."""
    return installed_plugins().usable(CRITICS)


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


def split_critic(model: str | Path) -> tuple[str | None, str | Path]:
    """Split what is written as CRITIC@MODEL. Anything else has no critic of its own.

    >>> split_critic("processbench@http://127.0.0.1:8002")
    ('processbench', 'http://127.0.0.1:8002')
    >>> split_critic("mini")
    (None, 'mini')
    """
    if not isinstance(model, str) or "@" not in model or os.path.exists(model):  # a path that is too long is no error
        return None, model
    name, _, rest = model.partition("@")
    return (name, rest) if rest and (is_critic_server(model) or name in all_critics()) else (None, model)


def find_critic(critic: str | Critic, options: Mapping[str, Any] | None = None) -> Critic:
    """Return a critic by its name, with some of its options changed."""
    if isinstance(critic, Critic):
        return with_options(critic, options or {}, "critic")
    known = all_critics()
    if critic not in known:
        if critic in (errors := installed_plugins().errors):
            raise PluginError(errors[critic])
        raise OptionError(f"critic={critic!r} is unknown. Choose one of: {', '.join(sorted(known))}.")
    return with_options(known[critic], options or {}, "critic")


def _checked(critic: object, point: EntryPoint) -> Critic:
    if not isinstance(critic, Critic):
        raise TypeError(f"{point.value} is not a subclass of surefoot.critics.base.Critic")
    for model, options in critic.model_options.items():
        if model not in critic.models:
            raise ValueError(f"`model_options` has {model}, which `models` does not list")
        with_options(critic, options, "critic")
    return critic


def _claims(critic: Critic) -> list[str]:
    """What identifies a critic: the models that are made for it and for no other."""
    return [f"the model {model.lower()}" for model in critic.models]
