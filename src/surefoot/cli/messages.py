"""Error messages in the words of the command line: one line each, with flags instead of Python arguments."""

from __future__ import annotations

import re
from typing import Any

import typer

ARGUMENT = re.compile(r"(?<!\S)([a-z_]+)=(True\b|\.\.\.)?")
LIST = re.compile(r"[a-z_]+(, [a-z_]+)*(?=: )")


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


def name_flags(message: str, command: Any) -> str:
    """Replaces `seed=-1` by `--seed -1`, and `seed, draws: ...` by `--seed, --draws: ...`, if the command has them."""
    flags = dict(_flags(command))
    flags["family_options"] = flags.get("family_option", "--family-option")
    names = match[0].split(", ") if (match := LIST.match(message)) else []
    if any(name in flags for name in names):
        return ", ".join(flags.get(name, name) for name in names) + message[len(", ".join(names)) :]

    def replace(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in flags:
            return match[0]
        return flags[name] if value else f"{flags[name]} "

    return ARGUMENT.sub(replace, message)


def flag(param: Any) -> str:
    """The name of an option or argument on the command line."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name)
    return str(max(param.opts, key=len))


def _flags(command: Any) -> list[tuple[str, str]]:
    own = [(param.name, flag(param)) for param in command.params if param.param_type_name == "option"]
    return own + [pair for each in getattr(command, "commands", {}).values() for pair in _flags(each)]
