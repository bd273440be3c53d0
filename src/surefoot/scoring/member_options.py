"""Which options of `surefoot.load` reach which member of an ensemble.

Invariant: an option that no member can take is an error, and one that belongs to a single model, such as an API key, is
never given to two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from surefoot.core.addresses import is_server, is_service, is_vllm
from surefoot.critics.registry import critic_of, split_critic
from surefoot.errors import OptionError
from surefoot.scoring.load_options import SERVER_OPTIONS, VLLM_OPTIONS, LoadOptions

COMPUTATION = (
    "precision",
    "quantize",
    "quantize_fallback",
    "quantize_cache",
    "dtype",
    "device",
    "attention",
    "compile",
    "threads",
    "strict",
    "max_tokens",
)
SHARED = (*COMPUTATION, "cache", "timeout", "patience")
"""Options that hold for all members that can take them. The others describe one model or one server."""
CRITIC_OPTIONS = ("critic", "critic_options", "generator")


def member_options(members: Sequence[object], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options for each member. A list of calibrations has one for each member that can have one."""
    found: list[dict[str, Any]] = [{} for _ in members]
    for name, value in given.items():
        takers = [at for at, member in enumerate(members) if name in _options_of(member, given)]
        if name in CRITIC_OPTIONS and not takers:
            raise OptionError(
                f"{name}: no member of the ensemble is known as a critic. Name the critic with its member, such as "
                "processbench@http://127.0.0.1:8002, or load that member with it and pass the scorer."
            )
        names = ", ".join(str(members[at]) for at in takers)
        if name == "calibration" and isinstance(value, Sequence) and not isinstance(value, str):
            if len(value) != len(takers):
                raise OptionError(
                    f"calibration: give one for each of {len(takers)} models ({names}), in their order, not "
                    f"{len(value)}. A service applies its own."
                )
            for at, each in zip(takers, value, strict=True):
                found[at][name] = each
            continue
        if not takers:
            raise OptionError(f"{name}: not supported for any member of the ensemble that is loaded here.")
        if name not in SHARED and len(takers) > 1:
            raise OptionError(
                f"{name}: belongs to one model, and several members could take it: {names} (in Python: load that "
                "member with it and pass the scorer)."
            )
        for at in takers:
            found[at][name] = value
    return found


def options_of_each(models: Sequence[str], given: Mapping[str, Any], *, server: Sequence[str]) -> list[dict[str, Any]]:
    """Return the options for each of several models that are loaded on their own.

    Options of critics reach critics only, and those named in `server` only what runs on a server. `critic` makes
    critics of all models that do not name their own.
    """
    found: list[dict[str, Any]] = []
    critics = 0
    for model in models:
        options = dict(given)
        named, bare = split_critic(model)
        judges = named is not None or "critic" in given or critic_of(model) is not None
        critics += judges
        if named is not None:
            options.pop("critic", None)
        if not judges or is_service(bare):
            options.pop("generator", None)
        if not judges:
            options.pop("critic_options", None)
        if not (is_server(model) or "generator" in options):
            options = {name: value for name, value in options.items() if name not in server}
        found.append(options)
    if critics == 0 and (unused := [name for name in ("critic_options", "generator") if name in given]):
        raise OptionError(f"{', '.join(unused)}: for critics only, and none of the models is one: {', '.join(models)}.")
    if sum("generator" in options for options in found) > 1:
        raise OptionError(f"generator: belongs to one model, and several could take it: {', '.join(models)}.")
    return found


def _options_of(member: object, given: Mapping[str, Any]) -> tuple[str, ...]:
    if is_service(member):
        return SERVER_OPTIONS
    if is_vllm(member):
        return (*SERVER_OPTIONS, "tokenizer", *VLLM_OPTIONS)
    if not isinstance(member, str | Path):
        return ()
    named, bare = split_critic(member)
    if named is not None and is_service(bare):
        return ("critic_options", *SERVER_OPTIONS, "tokenizer", "calibration", "cache")
    if named is not None or critic_of(member) is not None:
        where = (*SERVER_OPTIONS, "tokenizer") if "generator" in given else ("quantize", "dtype", "device", "revision")
        own = CRITIC_OPTIONS if named is None else tuple(each for each in CRITIC_OPTIONS if each != "critic")
        return (*own, "calibration", "cache", *where)
    return tuple(field.name for field in fields(LoadOptions))
