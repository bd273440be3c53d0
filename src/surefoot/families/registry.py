"""All families: those in this package, and those that other packages provide through entry points.

A package adds a family with an entry point in the group `surefoot.families`, whose name is the family's name and whose
value is the class, or an instance of it:

    [project.entry-points."surefoot.families"]
    closing = "surefoot_closing:Closing"

Entry points are loaded once, on first use. One that cannot be used causes a warning that names its package, and an
error if its family is requested; all other families keep working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from surefoot.core.aggregation import find_aggregation
from surefoot.core.options import with_options
from surefoot.core.plugins import Plugins, load_plugins
from surefoot.errors import CheckpointError, OptionError, PluginError
from surefoot.families.actprm import ActPRM
from surefoot.families.babelscape import Babelscape
from surefoot.families.base import Family, config_int
from surefoot.families.catalog import CATALOG, CatalogEntry, find_rows
from surefoot.families.fover import FoVer
from surefoot.families.granite import Granite
from surefoot.families.implicit import Implicit
from surefoot.families.llemma import Llemma
from surefoot.families.mini.family import Mini
from surefoot.families.mini.surprise import MiniLM
from surefoot.families.pathfinder import PathFinder
from surefoot.families.pqm import PQM
from surefoot.families.psa import MathPSA
from surefoot.families.qwen import Qwen
from surefoot.families.reasoneval import ReasonEval
from surefoot.families.reasonflux import ReasonFlux
from surefoot.families.rlhflow import RLHFlow
from surefoot.families.shepherd import ERPRM, OpenRLHF, Shepherd
from surefoot.families.skywork import Skywork
from surefoot.families.spare import Spare
from surefoot.families.trl import TokenClassifier
from surefoot.families.universal import Universal
from surefoot.families.versa import Versa

GROUP = "surefoot.families"

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Qwen(),
        Mini(),
        MiniLM(),
        TokenClassifier(),
        Shepherd(),
        ERPRM(),
        OpenRLHF(),
        MathPSA(),
        Versa(),
        RLHFlow(),
        FoVer(),
        Skywork(),
        Implicit(),
        ActPRM(),
        Llemma(),
        ReasonEval(),
        Universal(),
        Babelscape(),
        PQM(),
        ReasonFlux(),
        Spare(),
        Granite(),
        PathFinder(),
    )
}
"""The families in this package."""


@cache
def installed_plugins() -> Plugins[Family]:
    """Load the families of all installed packages, once."""
    plugins = load_families(entry_points(group=GROUP))
    plugins.warn()
    return plugins


def load_families(points: Iterable[EntryPoint]) -> Plugins[Family]:
    """Load the families that these entry points name."""
    return load_plugins(points, FAMILIES, noun="family", check=_checked, claims=_claims)


def all_families() -> dict[str, Family]:
    """All families that can be used, by name."""
    return installed_plugins().usable(FAMILIES)


def all_models() -> tuple[CatalogEntry, ...]:
    """The models known by name whose families can be used: those in the catalog and those from other packages."""
    families = all_families()
    return tuple(row for row in _all_rows() if row.family in families)


def find_models(model: str) -> tuple[CatalogEntry, ...]:
    """The catalog rows of a hub id, or those that match a folder's name."""
    return find_rows(_all_rows(), model)


def recommended_aggregation(model: str, family: Family) -> str | None:
    """The aggregation by which the makers of this model rank solutions.

    None if the model is not in the catalog, if its makers' aggregation is not known, or if that needs probabilities
    and the scores are not.
    """
    row = next((row for row in find_models(model) if row.family == family.name), None)
    name = None if row is None or row.makers is None else row.makers.aggregation
    if name is not None and find_aggregation(name).needs_probabilities and family.scale != "probability":
        return None
    return name


def trained_tokens(model: str, family: Family, config: Mapping[str, Any]) -> int | None:
    """The longest prompt that the model was made for, in tokens; None if that is not known.

    `surefoot train` writes it to config.json; for published models, the catalog has it. The model may accept longer
    prompts, but its scores are less reliable there.
    """
    if "trained_tokens" in config:
        return config_int(config, "trained_tokens")
    return next((row.context for row in find_models(model) if row.family == family.name), None)


def _all_rows() -> list[CatalogEntry]:
    return [*CATALOG, *(row for family in installed_plugins().found.values() for row in family.models)]


def find_family(
    architectures: Sequence[str],
    family: str | Family | None = None,
    *,
    model: str = "",
    options: Mapping[str, Any] | None = None,
) -> Family:
    """Choose a model's family and set its options.

    An explicit `family` wins, as a name or as an object. Otherwise the catalog decides by the model's id or folder
    name, and then the architecture in config.json. `options` change the family's defaults and those in the catalog.
    """
    if isinstance(family, Family):
        return with_options(family, options or {})
    plugins = installed_plugins()
    families = FAMILIES | plugins.found
    choices = ", ".join(sorted(all_families()))
    if family is not None and family in plugins.errors:
        raise PluginError(plugins.errors[family])
    if family is not None and family not in families:
        raise OptionError(f"family={family!r} is unknown. Choose one of: {choices}.")
    claiming = [each.name for each in families.values() if set(each.architectures) & set(architectures)]
    rows = [row for row in find_models(model) if not claiming or row.family in claiming]
    if family is not None and rows and family not in {row.family for row in rows}:
        raise OptionError(
            f"{model} is known to belong to the family {rows[0].family!r}, so scores with family={family!r} would be "
            "meaningless. Omit `family`, or rename the folder if it holds another model."
        )
    name = family or next(iter([*(row.family for row in rows), *claiming]), None)
    if name is None:
        raise CheckpointError(
            f"Cannot tell the PRM family: config.json has the architecture {list(architectures) or 'nothing'}, and "
            f"{model or 'the model'} is not in the catalog. Pass family=..., one of: {choices}."
        )
    if name in plugins.errors:
        raise PluginError(plugins.errors[name])
    row = next((row for row in rows if row.family == name), None)
    return with_options(families[name], {**(row.options if row else {}), **(options or {})})


def _checked(family: object, point: EntryPoint) -> Family:
    if not isinstance(family, Family):
        raise TypeError(f"{point.value} is not a subclass of surefoot.families.Family")
    for row in family.models:
        if row.family != point.name:
            raise ValueError(f"`models` lists {row.id} under the family {row.family!r}")
        with_options(family, row.options)
    return family


def _claims(family: Family) -> list[str]:
    """What identifies a family: the architectures and models that belong to it and to no other."""
    listed = (row for row in (*CATALOG, *family.models) if row.family == family.name)
    return [
        *(f"the architecture {name}" for name in family.architectures),
        *dict.fromkeys(f"the model {row.id.lower()}" for row in listed),
    ]
