"""The flags of a command with a configuration file: keys that are marked as flags, and where the others are set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, get_origin

import typer

from surefoot.cli.config_file import Entry, Schema, to_toml
from surefoot.cli.groups import SeveralValues

Result = TypeVar("Result")


def with_flags(schema: Schema, parameter: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Replaces a parameter by one option per flag. The command gets a dictionary of those that were given.

    @with_flags(SCHEMA, "flags")
    def train(*, flags: dict[str, Any], quiet: Quiet) -> int: ...
    """
    entries = [entry for entry in schema.entries.values() if entry.key.flag]

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        parameters: list[Parameter] = []
        for each in signature(command, eval_str=True).parameters.values():
            parameters += map(_option, entries) if each.name == parameter else [each]

        @wraps(command)
        def call(**given: Any) -> Result:
            flags = {entry.name: given.pop(entry.name) for entry in entries}
            chosen = {name: value for name, value in flags.items() if value is not None and value != []}
            return command(**{parameter: chosen}, **given)

        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return decorate


def _option(entry: Entry) -> Parameter:
    default: bool | str = entry.key.default or False
    if entry.default is not None and entry.default is not MISSING:
        default = to_toml(entry.default).strip('"')
    # Typer knows no lists of choices. The library checks them, too.
    kind = list[str] if get_origin(entry.type) is list else entry.type
    option = typer.Option(
        entry.flag,
        metavar=entry.key.metavar or None,
        help=entry.text,
        show_default=default,
        min=entry.key.min,
        autocompletion=_complete(entry.choices) if entry.choices else None,
        rich_help_panel=entry.table.capitalize(),
    )
    return Parameter(entry.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _complete(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def command_class(schema: Schema) -> type[SeveralValues]:
    """Returns a command that says where an option is set that is not a flag."""
    others = {entry.flag: entry for entry in schema.entries.values() if not entry.key.flag}

    class ConfigCommand(SeveralValues):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            for word in args:
                if (entry := others.get(word.partition("=")[0])) is not None:
                    ctx.fail(
                        f"{entry.flag} is set in the configuration file: [{entry.table}] {entry.name} = ... To get "
                        f"one, run {ctx.command_path} --print-config > FILE, and pass it with --config FILE."
                    )
            return super().parse_args(ctx, args)

    return ConfigCommand
