"""Configuration files: options of a command, described once, as keys of a TOML file and partly as flags.

Invariant: the dataclasses of the options, one per table, are the only list of keys. Their names, types, defaults, help
texts and limits are those of the file, of the file that `--print-config` prints, and of the flags.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from surefoot.cli.messages import ARGUMENT, QUOTED
from surefoot.errors import OptionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPECTED = {str: "a text in quotes", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Key:
    """Describes an option, as the annotation of a field."""

    help: str
    metavar: str = ""
    default: str = ""
    """What holds if the option is not given, where its default is None."""
    flag: bool = False
    """Whether the command line has it, too."""
    min: int | None = None


@dataclass(frozen=True)
class Entry:
    """A key of a table."""

    table: str
    name: str
    key: Key
    type: Any
    """str, int, float, bool, a Literal, or a list of one of these."""
    default: Any
    """None if there is none, MISSING if a value is required."""

    @property
    def flag(self) -> str:
        """The key as a flag, whether or not the command line has it."""
        return "--" + self.name.replace("_", "-")

    @property
    def text(self) -> str:
        """What the key does, with its choices."""
        return f"{self.key.help} One of: {', '.join(self.choices)}." if self.choices else self.key.help

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that are allowed, if not all are."""
        item = get_args(self.type)[0] if get_origin(self.type) is list else self.type
        return get_args(item) if get_origin(item) is Literal else ()


class Schema:
    """The tables of a configuration file: a dataclass per table, whose fields are annotated with a `Key`."""

    def __init__(self, tables: Mapping[str, type]) -> None:
        self.tables = dict(tables)

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """All keys by name. A name occurs in one table only, because flags have no tables."""
        found: dict[str, Entry] = {}
        for table, group in self.tables.items():
            hints = get_type_hints(group, include_extras=True)
            for field in fields(group):
                hint, key = get_args(hints[field.name])
                if get_origin(hint) in (Union, UnionType):
                    (hint,) = (each for each in get_args(hint) if each is not NoneType)
                assert field.name not in found, field.name
                found[field.name] = Entry(table, field.name, key, hint, field.default)
        return found

    def read(self, file: Path) -> dict[str, Any]:
        """Read the values of a file by key."""
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise OptionError(f"{file} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise OptionError(f"{file} is not a TOML file: {error}.") from error
        values: dict[str, Any] = {}
        for table, content in tables.items():
            if not isinstance(content, dict):
                raise OptionError(f"{file}: {table} is not in a table.{self._advice(table, 'Tables', self.tables)}")
            if table not in self.tables:
                raise OptionError(f"{file}: there is no table [{table}].{_advice(table, 'Tables', self.tables)}")
            for name, value in content.items():
                entry = self.entries.get(name)
                if entry is None or entry.table != table:
                    keys = [each.name for each in fields(self.tables[table])]
                    raise OptionError(f"{file}: [{table}] has no key {name}.{self._advice(name, 'Keys', keys)}")
                values[name] = _convert(value, entry, f"{file}: [{table}] {name} = {to_toml(value)}")
        return values

    def _advice(self, name: str, what: str, known: Iterable[str]) -> str:
        if name in self.entries:
            return f" It belongs in [{self.entries[name].table}]."
        return _advice(name, what, known)

    def build(self, table: str, values: Mapping[str, Any]) -> Any:
        """Make the dataclass of a table from values by key."""
        own = [entry for entry in self.entries.values() if entry.table == table]
        for entry in own:
            if entry.default is MISSING and entry.name not in values:
                raise OptionError(
                    f"Missing option {entry.flag}. Give it here or in the configuration file, as {entry.name} in "
                    f"[{table}]."
                )
        return self.tables[table](**{entry.name: values[entry.name] for entry in own if entry.name in values})

    def write(self, values: Mapping[str, Any], heading: str = "") -> str:
        """Return a file with every key: the given values, else the defaults. Keys without either are commented out."""
        lines = [f"# {line}" for line in heading.splitlines()]
        for table in self.tables:
            lines += ["", f"[{table}]"]
            for entry in self.entries.values():
                if entry.table == table:
                    lines += [*_comment(entry), _line(entry, values.get(entry.name, entry.default))]
        return "\n".join(lines).lstrip() + "\n"

    def name_in_file(self, error: OptionError, file: Path, names: set[str]) -> OptionError:
        """Return the error with keys of the file instead of arguments, if it is about one of `names`."""

        def argument(found: re.Match[str]) -> str:
            return f"[{self.entries[found[1]].table}] {found[1]} = {found[2] or ''}" if found[1] in names else found[0]

        def quoted(found: re.Match[str]) -> str:
            return f"[{self.entries[found[1]].table}] {found[1]}" if found[1] in names else found[0]

        message = QUOTED.sub(quoted, ARGUMENT.sub(argument, str(error)))
        return error if message == str(error) else OptionError(f"{file}: {message}")


def to_toml(value: Any) -> str:
    """Write a value as TOML. The standard library only reads it.

    >>> to_toml(["a.jsonl", True, 0.5])
    '["a.jsonl", true, 0.5]'
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _convert(value: Any, entry: Entry, where: str) -> Any:
    """Check type, choice and limit of a value."""
    if get_origin(entry.type) is list:
        if not isinstance(value, list):
            raise OptionError(f"{where}: expected a list, in brackets.")
        (item,) = get_args(entry.type)
        return [_convert_one(each, item, entry, where) for each in value]
    return _convert_one(value, entry.type, entry, where)


def _convert_one(value: Any, kind: Any, entry: Entry, where: str) -> Any:
    if get_origin(kind) is Literal:
        if value not in entry.choices:
            raise OptionError(f"{where} is not supported.{_advice(str(value), 'Choose one of', entry.choices)}")
        return value
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise OptionError(f"{where}: expected {EXPECTED[kind]}.")
    if entry.key.min is not None and value < entry.key.min:
        raise OptionError(f"{where}: must be at least {entry.key.min}.")
    return value


def _advice(name: str, what: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"{f' Did you mean {close[0]}?' if close else ''} {what}: {', '.join(known)}."


def _comment(entry: Entry) -> list[str]:
    text = entry.text
    if entry.default is MISSING:
        text += " Required."
    elif entry.default is None:
        text += f" Default: {entry.key.default or 'none'}."
    return textwrap.wrap(text, 98, initial_indent="# ", subsequent_indent="# ")


def _line(entry: Entry, value: Any) -> str:
    if value is not None and value is not MISSING:
        return f"{entry.name} = {to_toml(value)}"
    example: Any = entry.choices[0] if entry.choices else entry.key.metavar.removesuffix("...")
    if get_origin(entry.type) is list:
        return f"# {entry.name} = {to_toml([example])}"
    return f"# {entry.name} = {example if entry.type in (int, float) else to_toml(example)}"
