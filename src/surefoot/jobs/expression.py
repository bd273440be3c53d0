"""Parse filter expressions such as `min > 0.5 and answer == gold`, which choose the rows of a bulk job.

Invariant: an expression runs no code and accesses no attributes, and the limits on its length, its nesting and its
numbers bound time and memory.

The parser is our own because no dependency evaluates expressions within bounds and with positions; Python's `ast` has
no backquoted names, and deep nesting can exhaust the memory of its parser.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from surefoot.jobs.expression_functions import BOOLEAN, FUNCTIONS, NUMBER, STRING, kind_of, matches
from surefoot.jobs.expression_names import unknown_name
from surefoot.jobs.expression_nodes import (
    Arithmetic,
    Call,
    Comparison,
    ConstantValue,
    IsNull,
    Link,
    Logic,
    Membership,
    Name,
    Negative,
    Node,
    Not,
)
from surefoot.jobs.expression_tokens import ExpressionError, Token, one_line, syntax_error, tokenize
from surefoot.jobs.expression_values import EvaluationError, Scope, evaluate_condition

__all__ = ["EvaluationError", "Expression", "ExpressionError", "check_names", "parse_expression"]

MAX_DEPTH = 20


@dataclass(frozen=True)
class Expression:
    """A parsed filter expression.

    `names` are the names that it uses, in a normalized form without backquotes: `min` for a bare name, `score.min` for
    a result field, `row.my column` for an input column. A name in backquotes without a prefix is an input column, so a
    dot always follows a prefix. To split a name, use `name.partition(".")`.
    """

    text: str
    names: frozenset[str]
    root: Node = field(repr=False)
    references: tuple[Name, ...] = field(repr=False)

    def evaluate(self, value: Callable[[str], Any]) -> bool | None:
        """Return whether the expression is true for a row, or None if that is unknown.

        `value` returns the value of a normalized name (`Any`: whatever JSON can represent). An operation on values of
        the wrong types and a division by zero raise `EvaluationError`.

        >>> parse_expression("0.2 < min <= 0.9 and `my id` != 3").evaluate({"min": 0.5, "row.my id": 7}.__getitem__)
        True
        """
        return evaluate_condition(self.root, Scope(self.text, value))


def parse_expression(text: str) -> Expression:
    """Parse a filter expression. Malformed text raises `ExpressionError`.

    >>> sorted(parse_expression("min > 0.5 and answer == row.`gold answer`").names)
    ['answer', 'min', 'row.gold answer']
    """
    parser = _Parser(text)
    root = parser.parse()
    references = tuple(parser.references)
    return Expression(text, frozenset(reference.name for reference in references), root, references)


def check_names(expression: Expression, known: Collection[str]) -> None:
    """Raise `ExpressionError` at the first name that is not one of the known normalized names."""
    for reference in expression.references:
        if reference.name not in known:
            raise syntax_error(expression.text, reference.position, unknown_name(reference.name, known))


class _Parser:
    """Recursive descent: one method per precedence level, from `or` to constants. Chains do not nest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0
        self.depth = 0
        self.references: list[Name] = []

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def at_end(self) -> bool:
        return self.token.kind == "end"

    def error(self, token: Token | Node, problem: str) -> ExpressionError:
        return syntax_error(self.text, token.position, problem)

    def take(self, *operators: str) -> Token | None:
        """Consume the next token if it is one of these operators."""
        token = self.token
        if token.kind != "operator" or token.text not in operators:
            return None
        self.at += 1
        return token

    def parse(self) -> Node:
        if self.at_end():
            raise self.error(self.token, "the expression is empty. Write a condition such as min > 0.5.")
        root = self.disjunction()
        if self.token.text in (")", "]"):
            raise self.error(self.token, f"{self.token.shown} closes nothing. Remove it.")
        if not self.at_end():
            raise self.unexpected()
        return self.condition(root)

    def unexpected(self) -> ExpressionError:
        return self.error(self.token, f'expected an operator such as "and" or "==" before {self.token.shown}.')

    def nested(self, token: Token, parse: Callable[[], Node]) -> Node:
        """Parse what the token contains, one level deeper."""
        if self.depth == MAX_DEPTH:
            raise self.error(token, f"the expression nests deeper than {MAX_DEPTH} levels. Simplify it.")
        self.depth += 1
        node = parse()
        self.depth -= 1
        return node

    def condition(self, node: Node) -> Node:
        """Reject an operand that can never be true or false, such as the last one in `min > 0.5 or 0.6`."""
        match node:
            case ConstantValue(value=value) if value is not None:
                kind = kind_of(value)
            case Arithmetic() | Negative():
                kind = NUMBER
            case Call():
                kind = FUNCTIONS[node.function].returns
            case _:
                return node
        if kind != BOOLEAN:
            raise self.error(node, f"expected a condition, but this is {kind}. Compare it with a value.")
        return node

    def disjunction(self) -> Node:
        return self.logic("or", self.conjunction)

    def conjunction(self) -> Node:
        return self.logic("and", self.negation)

    def logic(self, operator: str, parse: Callable[[], Node]) -> Node:
        operands = [parse()]
        while self.take(operator):
            operands.append(parse())
        if len(operands) == 1:
            return operands[0]
        return Logic(operands[0].position, operator, tuple(self.condition(operand) for operand in operands))

    def negation(self) -> Node:
        token = self.take("not")
        if token is None:
            return self.relation()
        return Not(token.position, self.condition(self.nested(token, self.negation)))

    def relation(self) -> Node:
        """Parse comparisons, which form chains, or one test with `in` or `is`, which do not."""
        first = self.sum()
        links = self.links(self.sum, "<", "<=", ">", ">=", "==", "!=")
        node: Node = Comparison(first.position, first, links) if links else first
        token = self.take("in", "not", "is")
        if token is None:
            return node
        if links:
            raise self.error(token, f'"{token.text}" cannot follow a comparison. Put one of them in parentheses.')
        node = self.null_test(first, token) if token.text == "is" else self.membership(first, token)
        if again := self.take("in", "not", "is", "<", "<=", ">", ">=", "==", "!="):
            raise self.error(again, f"{again.shown} cannot follow another test. Put one of them in parentheses.")
        return node

    def null_test(self, operand: Node, token: Token) -> Node:
        negated = self.take("not") is not None
        if self.token.text != "null":
            raise self.error(token, 'expected "null" or "not null" after "is". Write "==" to compare.')
        self.at += 1
        return IsNull(token.position, operand, negated)

    def membership(self, item: Node, token: Token) -> Node:
        negated = token.text == "not"
        if negated and not self.take("in"):
            raise self.error(token, 'expected "in" after "not". Write "and not" to join two conditions.')
        if bracket := self.take("["):
            return Membership(token.position, item, self.arguments(bracket, "]"), negated)
        container = self.sum()
        if isinstance(container, ConstantValue) and kind_of(container.value) not in (STRING, "null"):
            raise self.error(container, f'"in" cannot search in {kind_of(container.value)}. Write a list: [1, 2].')
        return Membership(token.position, item, container, negated)

    def sum(self) -> Node:
        return self.arithmetic(self.product, "+", "-")

    def product(self) -> Node:
        return self.arithmetic(self.negative, "*", "/", "%")

    def arithmetic(self, parse: Callable[[], Node], *operators: str) -> Node:
        first = parse()
        links = self.links(parse, *operators)
        return Arithmetic(first.position, first, links) if links else first

    def links(self, parse: Callable[[], Node], *operators: str) -> tuple[Link, ...]:
        links = []
        while token := self.take(*operators):
            links.append(Link(token.position, token.text, parse()))
        return tuple(links)

    def negative(self) -> Node:
        token = self.take("-")
        return Negative(token.position, self.nested(token, self.negative)) if token else self.operand()

    def operand(self) -> Node:
        token = self.token
        if parenthesis := self.take("("):
            node = self.nested(token, self.disjunction)
            self.close(parenthesis, ")")
            return node
        if token.kind == "constant":
            self.at += 1
            return ConstantValue(token.position, token.value)
        if token.kind != "name":
            raise self.missing_value()
        self.at += 1
        if parenthesis := self.take("("):
            return self.call(token, parenthesis)
        name = Name(token.position, str(token.value))
        self.references.append(name)
        return name

    def missing_value(self) -> ExpressionError:
        found = self.token
        advice = "Write a number, a string in quotes or a name."
        if found.text == "[":
            return self.error(found, 'a list is only allowed after "in". Write "x in [...]".')
        if found.text == "not":
            advice = 'Put parentheses around "not" and what follows.'
        if self.at == 0:
            return self.error(found, f"expected a value, but found {found.shown}. {advice}")
        before = self.tokens[self.at - 1]
        return self.error(before, f"expected a value after {before.shown}, but found {found.shown}. {advice}")

    def call(self, name: Token, parenthesis: Token) -> Node:
        function = FUNCTIONS.get(name.text)
        if function is None:
            problem = f"there is no function {name.shown}. Functions: {', '.join(FUNCTIONS)}."
            raise self.error(name, problem)
        arguments = self.arguments(parenthesis, ")")
        if len(arguments) < function.least or (function.most is not None and len(arguments) > function.most):
            count = f"{'at least ' if function.most is None else ''}{function.least}"
            plural = "" if function.least == 1 else "s"
            raise self.error(name, f"{name.text}() needs {count} argument{plural}, but got {len(arguments)}.")
        if function.has_pattern:
            self.check_pattern(arguments[-1])
        return Call(name.position, name.text, arguments)

    def check_pattern(self, node: Node) -> None:
        if not isinstance(node, ConstantValue) or not isinstance(node.value, str):
            raise self.error(node, "expected a regular expression as a string in quotes.")
        try:
            matches("", node.value)
        except ValueError as error:
            raise self.error(node, f"{one_line(str(error), 100)}. Use the syntax of RE2.") from error

    def arguments(self, opening: Token, closing: str) -> tuple[Node, ...]:
        """Parse nodes with commas between them, up to the closing token."""
        if self.take(closing):
            return ()
        found = [self.nested(opening, self.disjunction)]
        while self.take(","):
            found.append(self.nested(opening, self.disjunction))
        self.close(opening, closing)
        return tuple(found)

    def close(self, opening: Token, closing: str) -> None:
        if self.take(closing):
            return
        if self.token.text == ",":
            raise self.error(self.token, 'expected ")" before ",". Write lists in square brackets: ["a", "b"].')
        if not self.at_end():
            raise self.unexpected()
        raise self.error(opening, f'{opening.shown} is not closed. Add "{closing}".')
