"""Options of benchmarks as parameters of commands: `surefoot eval` and `surefoot compare`."""

from __future__ import annotations

from inspect import Parameter
from typing import Annotated, Any, Literal

import typer

from surefoot.cli.measurement import DATA
from surefoot.cli.options import finite
from surefoot.errors import OptionError
from surefoot.evaluate.registry import Option


def option_parameter(option: Option, title: str) -> Parameter:
    """Make the parameter of a command from an option. `title` is the panel of the help text."""
    kinds: dict[str, Any] = {"text": str, "texts": list[str], "number": float, "integers": str}
    kind: Any = Literal.__getitem__(option.choices) if option.choices else kinds[option.kind]
    declared = typer.Option(
        option.flag,
        metavar=option.metavar or None,
        help=f"{option.help[0].upper()}{option.help[1:]}.",
        show_default="(default:" not in option.help,
        callback=finite if option.kind == "number" else None,
        rich_help_panel=DATA if option.passed_to == "read" else title,
    )
    annotation: Any = Annotated[kind if option.default is not None else kind | None, declared]
    return Parameter(option.parameter, Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)


def option_value(option: Option, given: Any) -> Any:
    """Convert what was typed to the value that the benchmark takes."""
    if option.kind != "integers" or given is None:
        return given
    try:
        return [int(number) for number in given.split(",")]
    except ValueError:
        raise OptionError(
            f"{option.flag} {given}: give whole numbers with commas between them, such as 1,4,16."
        ) from None
