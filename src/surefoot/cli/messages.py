"""Error messages in the words of the command line: one line each, with flags instead of Python arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import typer

from surefoot.errors import InputError, SurefootError

ARGUMENT = re.compile(r"(?<![^\s(])([a-z_]+)=(True\b|\.\.\.)?")
QUOTED = re.compile(r"`([a-z_]+)`")
LIST = re.compile(r"[a-z_]+(, [a-z_]+)*(?=: )")
FAMILY_OPTION = re.compile(r'family_options=\{"(\w+)": (\w+)\}')
IN_PYTHON = re.compile(r" \(in Python: ([^()]|\([^()]*(\([^()]*\))?[^()]*\))*\)")


def usage_message(error: typer.TyperException) -> str:
    """What is wrong with the call, and where to read more."""
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    close = getattr(error, "possibilities", None)
    if param is not None and error.message:
        text = f"{flag(param)}: {error.message.removeprefix('Value error, ')}"
    elif close:
        text = f"{error.message}. Did you mean {close[0]}?"
    else:
        text = " ".join(error.format_message().split())
    if not text.endswith((".", "?")):
        text += "."
    if context is None or text.endswith("?"):
        return text
    return f"{text} See {context.command_path} --help."


def error_message(error: SurefootError, command: Any) -> str:
    """The message of an error with the flags of the command instead of the arguments of a Python function.

    Errors name an argument as `seed=-1`, as `seed=...`, in backticks, or in a list at the beginning (`seed, draws:
    ...`). In an `InputError`, backticks and lists name fields of the data. Advice in parentheses that begins with
    "in Python:" is left out.
    """
    from surefoot.jobs.expression import ExpressionError

    message = IN_PYTHON.sub("", str(error))
    if isinstance(error, ExpressionError):
        return message  # it quotes an expression, which may look like anything
    flags = dict(_flags(command))
    flags["api_key"] = flags.get("model_api_key", "--api-key")  # in `serve`, --api-key is the key of its callers
    if "family_option" in flags:
        message = FAMILY_OPTION.sub(lambda found: f"--family-option {found[1]}={found[2].lower()}", message)
        flags["family_options"] = flags["family_option"]

    def argument(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in flags:
            return found[0]
        return flags[name] if value else f"{flags[name]} "

    if not isinstance(error, InputError):
        message = QUOTED.sub(lambda found: flags.get(found[1], found[0]), message)
        names = match[0].split(", ") if (match := LIST.match(message)) else []
        if any(name in flags for name in names):
            return ", ".join(flags.get(name, name) for name in names) + message[len(", ".join(names)) :]
    return ARGUMENT.sub(argument, message)


def rename_arguments(message: str, names: Mapping[str, str]) -> str:
    """Replace the names of arguments in a message, as `name=...` or in a list at the beginning."""
    listed = match[0] if (match := LIST.match(message)) else ""
    renamed = ", ".join(names.get(name, name) for name in listed.split(", "))
    rest = ARGUMENT.sub(lambda found: names.get(found[1], found[1]) + found[0][len(found[1]) :], message[len(listed) :])
    return renamed + rest


def flag(param: Any) -> str:
    """The name of an option or argument on the command line."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name)
    return str(max(param.opts, key=len))


def _flags(command: Any) -> list[tuple[str, str]]:
    own = [(param.name, flag(param)) for param in command.params if param.param_type_name == "option"]
    return own + [pair for each in getattr(command, "commands", {}).values() for pair in _flags(each)]
