"""The syntax tree of a filter expression. `position` is where an error about the node points to, counted from 0."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.jobs.expression_tokens import Constant


@dataclass(frozen=True)
class ConstantValue:
    """A number, a string, true, false or null."""

    position: int
    value: Constant


@dataclass(frozen=True)
class Name:
    """A name in its normalized form: `min`, `score.min` or `row.my column`."""

    position: int
    name: str


@dataclass(frozen=True)
class Call:
    position: int
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Negative:
    position: int
    operand: Node


@dataclass(frozen=True)
class Not:
    position: int
    operand: Node


@dataclass(frozen=True)
class IsNull:
    position: int
    operand: Node
    negated: bool


@dataclass(frozen=True)
class Membership:
    """`item in container`. A list in the text is a tuple of nodes."""

    position: int
    item: Node
    container: Node | tuple[Node, ...]
    negated: bool


@dataclass(frozen=True)
class Link:
    """An operator and its right operand, in a chain such as `a < b <= c` or `a + b - c`."""

    position: int
    operator: str
    operand: Node


@dataclass(frozen=True)
class Comparison:
    position: int
    first: Node
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Arithmetic:
    position: int
    first: Node
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Logic:
    """Operands that are all joined by `and`, or all by `or`."""

    position: int
    operator: str
    operands: tuple[Node, ...]


Node = ConstantValue | Name | Call | Negative | Not | IsNull | Membership | Comparison | Arithmetic | Logic
