"""What Typer lacks: groups of options that several commands share, and options that take several values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

from typer.core import TyperCommand, TyperGroup

Result = TypeVar("Result")


def with_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """Turns every parameter that is annotated with a dataclass into one option per field. Fields may be groups, too.

    @with_groups
    def score(*, file: str, model: ModelOptions) -> int: ...
    """
    given_parameters = signature(command, eval_str=True).parameters
    groups = {name: each.annotation for name, each in given_parameters.items() if is_dataclass(each.annotation)}
    parameters: list[Parameter] = []
    for name, parameter in given_parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter]

    @wraps(command)
    def call(**given: Any) -> Result:
        return command(**{name: _build(group, given) for name, group in groups.items()}, **given)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if is_dataclass(hints[field.name]):
            yield from _options(hints[field.name])
        else:
            default = Parameter.empty if field.default is MISSING else field.default
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])


def _build(group: Any, given: dict[str, Any]) -> Any:
    """Makes a group of its values, and takes them out of `given`."""
    hints = get_type_hints(group)
    return group(
        **{
            field.name: _build(hints[field.name], given) if is_dataclass(hints[field.name]) else given.pop(field.name)
            for field in fields(group)
        }
    )


class Command(TyperCommand):
    """A command with a tidy help text."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments, with `--help`."""
        return tidy(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands with a tidy help text."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the group itself."""
        return tidy(super().get_params(ctx))


def tidy(params: list[Any]) -> list[Any]:
    """Shows no type for flags, where Typer would print <bool>, and `--help` among other options about output.

    A flag is False unless it is given: Typer imports pydantic to convert None, which takes 0.1 s.
    """
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
            param.default = param.default or False
        if param.name == "help" and any(getattr(each, "rich_help_panel", None) for each in params):
            param.rich_help_panel = "Output"
    return params


class SeveralValues(Command):
    """A command without arguments, where `--data a b` means `--data a --data b`: shell patterns can be used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeats the name of an option before each of its values."""
        several = {name for param in self.params if getattr(param, "multiple", False) for name in param.opts}
        repeated: list[str] = []
        option, values = "", 1
        for word in args:
            if word.startswith("-"):
                if not values:
                    break
                option, values = (word, 0) if word in several else ("", 1)
            elif option:
                if values:
                    repeated.append(option)
                values += 1
            repeated.append(word)
        if not values:
            ctx.fail(f"Option {option!r} requires an argument.")
        return super().parse_args(ctx, repeated)
