"""Pickles a scorer as the call of `surefoot.load` that created it, and repeats that call where it is unpickled.

Invariant: equal calls for equal models give equal pickles, in every process. A pickle never contains an API key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from surefoot.core.addresses import is_server
from surefoot.core.calibration import Calibration
from surefoot.core.protocols import StepScorer
from surefoot.core.shared import shared
from surefoot.errors import LoadError, OptionError
from surefoot.scoring.load_options import DEFAULT_MODEL

if TYPE_CHECKING:
    from surefoot.families import Family

_pickled: WeakValueDictionary[str, StepScorer] = WeakValueDictionary()
"""The scorers of this process that were pickled. Copying one, or unpickling it here, gives the scorer itself."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pickled.clear)


@dataclass(frozen=True)
class LoadCall:
    """A call of `load`: the function, the model, and the options that differ from their defaults."""

    load: Callable[..., StepScorer]
    model: str
    options: Mapping[str, Any]
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, load: Callable[..., StepScorer], model: str | Path, options: Mapping[str, Any], api_key: str | None = None
    ) -> LoadCall:
        """Describes a call. Relative folders become absolute, so that the call works in another folder."""
        plain = {
            name: _portable(name, value)
            for name, value in options.items()
            # The scorer knows these: a file may have changed since, and the name may have been a relative folder.
            if name not in ("calibration", "cache", "name")
        }
        return cls(load, _located(model), plain, api_key)

    def reduce(
        self, scorer: StepScorer, calibration: Calibration | None, cache: Path | None
    ) -> tuple[Callable[..., StepScorer], tuple[Any, ...]]:
        """What `__reduce__` of the scorer returns."""
        options = {name: _encoded(value) for name, value in self.options.items()} | {"name": scorer.name}
        if cache is not None:
            options["cache"] = str(cache.absolute())
        text = json.dumps(
            {
                "model": self.model,
                "options": options,
                "calibration": None if calibration is None else calibration.to_dict(),
                "any_calibration": calibration is not None and calibration.any_model,
                "needs_key": self._needs_key(),
                "fingerprint": scorer.fingerprint,
            },
            sort_keys=True,
        )
        _pickled.setdefault(text, scorer)
        return load_again, (self.load, text)

    @property
    def server(self) -> str | None:
        """The address of the server that computes, if it is not this process."""
        generator = self.options.get("generator")
        return next((str(each) for each in (generator, self.model) if is_server(each)), None)

    def _needs_key(self) -> bool:
        if self.server is None:
            return False
        from surefoot.client.api_key import is_in_environment

        return is_in_environment(self.api_key, _key_variable(self.options))


def load_again(load: Callable[..., StepScorer], text: str) -> StepScorer:
    """Returns the scorer that `text` describes: one that this process has, or one that it loads and then keeps."""
    known = _pickled.get(text)
    return known if known is not None else _load_once(load, text)


@shared
def _load_once(load: Callable[..., StepScorer], text: str) -> StepScorer:
    call = json.loads(text)
    options = {name: _decoded(value) for name, value in call["options"].items()}
    if call["calibration"] is not None:
        calibration = Calibration.from_dict(call["calibration"])
        options["calibration"] = calibration.for_any_model() if call["any_calibration"] else calibration
    if call["needs_key"]:
        from surefoot.client.api_key import require_in_environment

        require_in_environment(call["model"], _key_variable(options))
    scorer = load(call["model"], **options)
    if scorer.fingerprint != call["fingerprint"]:
        raise LoadError(
            f"{call['model']} is not the model that was pickled: its fingerprint is {scorer.fingerprint[:12]}, not "
            f"{call['fingerprint'][:12]}. Its files have changed, or this machine computes in another format. Pickle "
            "the model again, and choose `dtype`, `quantize` and `revision` when you load it."
        )
    return scorer


def _key_variable(options: Mapping[str, Any]) -> str:
    """Where a server's key comes from. Critics are on generation servers, which have a variable of their own."""
    from surefoot.client.api_key import GENERATOR_KEY_VARIABLE, KEY_VARIABLE

    return GENERATOR_KEY_VARIABLE if "critic" in options or "generator" in options else KEY_VARIABLE


def _portable(name: str, value: Any) -> Any:
    if name == "quantize_cache" and not isinstance(value, bool):
        return str(Path(value).absolute())
    return _located(value) if name in ("base", "tokenizer", "generator") else value


def _located(model: str | Path) -> str:
    """The absolute path of a folder; the name of any other model as it is."""
    path = Path(model).expanduser()
    return str(path.absolute()) if model != DEFAULT_MODEL and path.is_dir() else str(model)


def _encoded(value: Any) -> Any:
    """An option as a JSON value: a family is its class and its options, a dtype or a device its name."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        if "<locals>" in kind.__qualname__:
            raise OptionError(
                f"A scorer whose family is {kind.__qualname__} cannot be pickled. Define the class at the top level of "
                "a module."
            )
        chosen = {each.name: getattr(value, each.name) for each in fields(value)}
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "options": chosen}
    if isinstance(value, Mapping):
        return {"mapping": dict(value)}
    return value if isinstance(value, str | int | float | None) else str(value).removeprefix("torch.")


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "mapping" in value:
        return value["mapping"]
    module, _, name = value["class"].partition(":")
    kind: type[Family] = attrgetter(name)(import_module(module))
    return kind(**value["options"])
