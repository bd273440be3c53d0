"""Evaluate filter expressions with the three-valued logic of SQL: a condition is true, false or unknown (None).

Invariant: values of different types are never compared in silence; that raises `EvaluationError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from surefoot.errors import SurefootError
from surefoot.jobs.expression_functions import BOOLEAN, FUNCTIONS, NUMBER, STRING, kind_of
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
from surefoot.jobs.expression_tokens import MAX_INTEGER, located
from surefoot.text.answers import reference_answer
from surefoot.text.equality import same_answer

ANSWERS = frozenset(("answer", "score.answer"))
MAX_COMPARED_ANSWERS = 100
MAX_DIGITS = 1000

# The functions take `Any`, because their operands are checked by kind, not by type.
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], int | float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
}  # fmt: skip


class EvaluationError(SurefootError):
    """An expression cannot be evaluated for this row. `position` is where, counted from 0."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True)
class Scope:
    """The text of an expression, for its errors, and the values of the names in one row."""

    text: str
    value: Callable[[str], object]

    def error(self, position: int, problem: str) -> EvaluationError:
        return EvaluationError(located(self.text, position, problem), position)


def evaluate_condition(node: Node, scope: Scope) -> bool | None:
    """Return whether the condition holds, or None if that is unknown."""
    value = _evaluate(node, scope)
    if value is None or isinstance(value, bool):
        return value
    raise scope.error(node.position, f"expected true or false, but got {kind_of(value)}. Compare it with a value.")


def _evaluate(node: Node, scope: Scope) -> object:
    match node:
        case ConstantValue():
            return node.value
        case Name():
            return _known(scope.value(node.name))
        case Not():
            return _negate(evaluate_condition(node.operand, scope))
        case IsNull():
            return (_evaluate(node.operand, scope) is None) != node.negated
        case Logic():
            return _connect((evaluate_condition(each, scope) for each in node.operands), node.operator == "or")
        case Comparison():
            return _connect(_compare_links(node, scope), False)
        case Membership():
            found = _contains(node, scope)
            return _negate(found) if node.negated else found
        case Negative():
            number = _number(_evaluate(node.operand, scope), "-", node.position, scope)
            return None if number is None else -number
        case Arithmetic():
            return _calculate(node, scope)
        case Call():
            return _call(node, scope)


def _known(value: object) -> object:
    """Return the value, or None for NaN."""
    return None if isinstance(value, float) and value != value else value


def _negate(value: bool | None) -> bool | None:
    return None if value is None else not value


def _connect(conditions: Iterable[bool | None], decisive: bool) -> bool | None:
    """Join conditions by `or` (True is decisive) or by `and` (False is). Stop at the first that is decisive."""
    result: bool | None = not decisive
    for condition in conditions:
        if condition is decisive:
            return decisive
        if condition is None:
            result = None
    return result


def _compare_links(node: Comparison, scope: Scope) -> Iterable[bool | None]:
    left_node, left = node.first, _evaluate(node.first, scope)
    for link in node.links:
        right = _evaluate(link.operand, scope)
        if link.operator in ("==", "!=") and (_is_answer(left_node) or _is_answer(link.operand)):
            pair = (left, right) if _is_answer(left_node) else (right, left)
            same = _same_answer(*pair, link.position, scope)
            yield same if link.operator == "==" else _negate(same)
        else:
            yield _compare(left, link.operator, right, link.position, scope)
        left_node, left = link.operand, right


def _compare(left: object, comparison: str, right: object, position: int, scope: Scope) -> bool | None:
    if left is None or right is None:
        return None
    kinds = kind_of(left), kind_of(right)
    allowed = (NUMBER, STRING, BOOLEAN) if comparison in ("==", "!=") else (NUMBER, STRING)
    if kinds[0] != kinds[1] or kinds[0] not in allowed:
        problem = f'"{comparison}" cannot compare {kinds[0]} with {kinds[1]}. Compare two values of one type: '
        raise scope.error(position, problem + f"{' or '.join(allowed)}.")
    return bool(_COMPARISONS[comparison](left, right))


def _is_answer(node: object) -> bool:
    return isinstance(node, Name) and node.name in ANSWERS


def _same_answer(answer: object, reference: object, position: int, scope: Scope) -> bool | None:
    """Compare an answer mathematically. A reference solution is reduced to the answer that it states."""
    if answer is None or reference is None:
        return None
    target, gold = (_answer_text(value, position, scope) for value in (answer, reference))
    gold = reference_answer(gold)
    return same_answer(gold, target) if gold else None


def _answer_text(value: object, position: int, scope: Scope) -> str:
    """Return a string as it is, and a number without an exponent."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        problem = f"an answer, which is a string, cannot be compared with {kind_of(value)}. Use a string or a number."
        raise scope.error(position, problem)
    if isinstance(value, float):
        return format(Decimal(repr(float(value))), "f")
    if abs(value) >= 10**MAX_DIGITS:
        raise scope.error(position, f"the integer has more than {MAX_DIGITS} digits. Use a string.")
    return str(int(value))


def _contains(node: Membership, scope: Scope) -> bool | None:
    item, from_answer = _evaluate(node.item, scope), _is_answer(node.item)
    if isinstance(node.container, tuple):
        elements = [(_is_answer(each), _evaluate(each, scope)) for each in node.container]
    else:
        container = _evaluate(node.container, scope)
        if not isinstance(container, (list, tuple)):
            return _has_substring(item, container, node.position, scope)
        elements = [(False, _known(each)) for each in container]
    if len(elements) > MAX_COMPARED_ANSWERS and (from_answer or any(is_answer for is_answer, _ in elements)):
        problem = f"an answer can be compared with {MAX_COMPARED_ANSWERS} values, not {len(elements)}. Use fewer."
        raise scope.error(node.position, problem)

    def equal(is_answer: bool, value: object) -> bool | None:
        if from_answer or is_answer:
            return _same_answer(*((item, value) if from_answer else (value, item)), node.position, scope)
        return _compare(item, "==", value, node.position, scope)

    return _connect((equal(*each) for each in elements), True)


def _has_substring(item: object, container: object, position: int, scope: Scope) -> bool | None:
    if item is None or container is None:
        return None
    if isinstance(item, str) and isinstance(container, str):
        return item in container
    problem = f'"in" cannot search {kind_of(item)} in {kind_of(container)}. Search a string in a string, or use a list.'
    raise scope.error(position, problem)


def _number(value: object, symbol: str, position: int, scope: Scope) -> int | float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise scope.error(position, f'"{symbol}" needs numbers, but got {kind_of(value)}.')
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise scope.error(position, f'"{symbol}" works with integers up to {MAX_INTEGER}, but got a larger one.')
    return value


def _calculate(node: Arithmetic, scope: Scope) -> int | float | None:
    def check(value: object, link: Link) -> int | float | None:
        return _number(value, link.operator, link.position, scope)

    total = check(_evaluate(node.first, scope), node.links[0])
    for link in node.links:
        right = check(_evaluate(link.operand, scope), link)
        if total is None or right is None:
            total = None
            continue
        if right == 0 and link.operator in "/%":
            problem = f'"{link.operator}" cannot divide {kind_of(total)} by zero. Add a condition that excludes zero.'
            raise scope.error(link.position, problem)
        total = check(_known(_ARITHMETIC[link.operator](total, right)), link)
    return total


def _call(node: Call, scope: Scope) -> object:
    function = FUNCTIONS[node.function]
    values = [_evaluate(argument, scope) for argument in node.arguments]
    for argument, value in zip(node.arguments, values, strict=True):
        if value is not None and kind_of(value) not in function.accepts:
            problem = f"{node.function}() needs {' or '.join(function.accepts)}, but got {kind_of(value)}."
            raise scope.error(argument.position, problem)
    if any(value is None for value in values):
        return None
    try:
        return function.compute(*values)
    except ValueError as error:
        problem = f"{node.function}() cannot read this string: it is not valid Unicode."
        raise scope.error(node.position, problem) from error
