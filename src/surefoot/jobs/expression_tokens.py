"""Split a filter expression into tokens, in time linear in its length, with errors that show the position."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from surefoot.errors import OptionError

Constant = None | bool | int | float | str

MAX_CHARS = 10_000
MAX_INTEGER = 2**63 - 1

CONSTANTS: dict[str, Constant] = {"true": True, "false": False, "null": None}
KEYWORDS = frozenset(("and", "or", "not", "in", "is"))
PREFIXES = ("row", "score")

_WORD = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r"`(?P<name>(?:[^`]|``)+)`")
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<tail>[\w.]*)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<quoted>`)"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<mistake><>|\*\*|//|&&?|\|\|?|=(?!=)|!(?!=))"
    r"|(?P<operator>[<>=!]=|[<>+\-*/%()\[\],])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<char>.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_CORRECTIONS = {
    "=": 'Write "==" to compare.',
    "<>": 'Write "!=" for "not equal".',
    "!": 'Write "not".',
    **dict.fromkeys(("&", "&&"), 'Write "and".'),
    **dict.fromkeys(("|", "||"), 'Write "or".'),
    **dict.fromkeys("\u201c\u201d\u2018\u2019", "Use straight quotes for strings: \"...\" or '...'."),
    "{": 'Write lists in square brackets: ["a", "b"].',
    ".": "Write row.NAME for an input column or score.NAME for a result field.",
    **dict.fromkeys(("**", "//"), "The arithmetic operators are + - * / %."),
}


class ExpressionError(OptionError):
    """A filter expression is malformed. `position` is where, counted from 0."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True)
class Token:
    """A piece of an expression. `value` is the value of a constant, and the normalized form of a name."""

    kind: Literal["constant", "name", "operator", "end"]
    text: str
    position: int
    value: Constant = None

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f'"{one_line(self.text, 30)}"'


def one_line(text: str, limit: int, at: int = 0) -> str:
    """Return up to `limit` printable characters of the text, around position `at`."""
    start = max(0, min(at - limit // 2, len(text) - limit))
    part = "".join(char if char.isprintable() else " " for char in text[start : start + limit])
    return ("..." if start else "") + part + ("..." if start + limit < len(text) else "")


def located(text: str, position: int, problem: str) -> str:
    """Return an error message of one line, with the expression and the position."""
    return f"'{one_line(text, 60, position)}': column {position + 1}: {problem}"


def syntax_error(text: str, position: int, problem: str) -> ExpressionError:
    return ExpressionError(located(text, position, problem), position)


def quote_name(name: str) -> str:
    """Return a normalized name as users write it: in backquotes where it is not an identifier."""
    prefix, dot, rest = name.partition(".")
    if not dot or prefix not in PREFIXES:
        prefix, dot, rest = "", "", name
    plain = _WORD.fullmatch(rest) and (dot or rest not in KEYWORDS | CONSTANTS.keys())
    return prefix + dot + (rest if plain else "`" + rest.replace("`", "``") + "`")


def tokenize(text: str) -> list[Token]:
    """Return the tokens of an expression, followed by one of the kind `end`."""
    if len(text) > MAX_CHARS:
        problem = f"the expression has {len(text):,} characters. Shorten it to {MAX_CHARS:,}."
        raise syntax_error(text, MAX_CHARS, problem)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup == "mistake":
            raise _unreadable(text, at, match[0] if match else text[at])
        if match["word"] or match["quoted"]:
            token = _read_word(text, at)
            tokens.append(token)
            at += len(token.text)
            continue
        if match["number"]:
            tokens.append(Token("constant", match[0], at, _read_number(text, match)))
        elif match["string"]:
            tokens.append(Token("constant", match[0], at, _read_string(text, match)))
        elif match["operator"]:
            tokens.append(Token("operator", match[0], at))
        at = match.end()
    return [*tokens, Token("end", "", len(text))]


def _unreadable(text: str, at: int, found: str) -> ExpressionError:
    if found in "\"'":
        return syntax_error(text, at, f"the string is not closed. Add {found} at its end.")
    advice = _CORRECTIONS.get(found, "Remove it, or put text in quotes.")
    return syntax_error(text, at, f'"{one_line(found, 2)}" is not supported. {advice}')


def _read_word(text: str, at: int) -> Token:
    """Read a keyword, a constant, or a name with its prefix."""
    word = _WORD.match(text, at)
    if word is None:
        return _read_column(text, at, at)
    name, end = word[0], word.end()
    if text[end : end + 1] == ".":
        if name not in PREFIXES:
            problem = f'"{one_line(name, 30)}." is not a prefix. {_CORRECTIONS["."]}'
            raise syntax_error(text, at, problem)
        return _read_column(text, at, end + 1)
    if name in KEYWORDS:
        return Token("operator", name, at)
    if name in CONSTANTS:
        return Token("constant", name, at, CONSTANTS[name])
    meant = "null" if name == "None" else name.lower()
    if meant in KEYWORDS or meant in CONSTANTS:
        problem = f'"{name}" is not a keyword. Write "{meant}", or row.{name} for an input column.'
        raise syntax_error(text, at, problem)
    return Token("name", name, at, name)


def _read_column(text: str, start: int, at: int) -> Token:
    """Read the name at `at`, after the prefix at `start`, if there is one. Without a prefix, it is an input column."""
    match = _QUOTED.match(text, at) or _WORD.match(text, at)
    if match is None:
        if text[at : at + 2] == "``":
            raise syntax_error(text, at, "the name is empty. Write the name of a column between the backquotes.")
        if text[at : at + 1] == "`":
            raise syntax_error(text, at, "the name is not closed. Add a backquote at its end.")
        problem = f'expected a name after "{text[start:at]}". Put names with other characters in backquotes.'
        raise syntax_error(text, start, problem)
    if text[match.end() : match.end() + 1] == ".":
        problem = "a name has at most one prefix. Put column names that contain a dot in backquotes: row.`a.b`."
        raise syntax_error(text, match.end(), problem)
    name = match["name"].replace("``", "`") if match.re is _QUOTED else match[0]
    return Token("name", text[start : match.end()], start, (text[start:at] or "row.") + name)


def _read_number(text: str, match: re.Match[str]) -> int | float:
    digits = match["number"]
    if match["tail"]:
        problem = f'"{one_line(match[0], 30)}" is not a number. Write numbers such as 12, 0.5 or 1e-3.'
        raise syntax_error(text, match.start(), problem)
    if digits.isdigit():
        digits = digits.lstrip("0") or "0"
        if len(digits) > len(str(MAX_INTEGER)) or int(digits) > MAX_INTEGER:
            problem = f"the integer is above {MAX_INTEGER}. Write a decimal such as 1e20, or a string in quotes."
            raise syntax_error(text, match.start(), problem)
        return int(digits)
    if math.isinf(number := float(digits)):
        raise syntax_error(text, match.start(), "the number is too large. Write a number below 1.7e308.")
    return number


def _read_string(text: str, match: re.Match[str]) -> str:
    def replace(escape: re.Match[str]) -> str:
        char = chr(int(escape["code"], 16)) if escape["code"] else _ESCAPED.get(escape["char"])
        if char is None or "\ud800" <= char <= "\udfff":
            problem = (
                f'"{one_line(escape[0], 6)}" is not an escape. Write \\\\ for a backslash, or the character itself.'
            )
            raise syntax_error(text, match.start() + 1 + escape.start(), problem)
        return char

    return _ESCAPE.sub(replace, match[0][1:-1])
