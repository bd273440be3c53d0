"""Judge the answers that a method selects against the reference answer.

Invariant: no answer is incorrect; an undecided comparison is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from surefoot.core.search_result import SearchResult
from surefoot.evaluate.search.measures import Method, Verdict
from surefoot.text.answer_groups import AnswerGrouper


@dataclass
class MethodVerdicts:
    """The verdicts on one method, as they are collected."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    unscored: int = 0
    """Questions with answers none of which has the score that the method needs."""


class Judge:
    """Compares answers with references and remembers every comparison."""

    def __init__(self, timeout: float) -> None:
        self._grouper = AnswerGrouper(timeout)

    def answer(self, gold: str, answer: str | None) -> Verdict:
        """Judge one answer."""
        return False if answer is None else self._grouper.same(gold, answer)

    def any(self, gold: str, answers: Sequence[str]) -> Verdict:
        """Whether any of the answers is correct; None if none is and one is undecided."""
        found = {self.answer(gold, answer) for answer in answers}
        return True if True in found else None if None in found else False

    def method(self, gold: str, result: SearchResult, method: Method) -> Verdict:
        """Judge the answer that a method selects."""
        if method.kind == "oracle":
            return self.any(gold, [each.answer for each in result.answers])
        return self.answer(gold, result.select(method.kind, method.aggregation))

    def collect(self, at: int, gold: str, result: SearchResult, into: Mapping[Method, MethodVerdicts]) -> None:
        """Add the verdicts on the samples of question `at`, if they have the scores that the method needs."""
        for method, found in into.items():
            if method.kind != "oracle" and result.answers and result.select(method.kind, method.aggregation) is None:
                found.unscored += 1
            else:
                found.verdicts[at] = self.method(gold, result, method)
