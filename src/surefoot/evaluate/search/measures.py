"""The numbers of a comparison: accuracies, paired differences, token budgets and costs.

Invariant: a number that cannot be computed is None, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from surefoot.core.aggregation import find_aggregation
from surefoot.core.intervals import Bootstrap, Interval, as_list
from surefoot.core.search_result import Selection

MethodKind = Literal["best", "weighted", "majority", "oracle"]
"""How one of several answers is selected. `oracle` asks whether any of them is correct."""

Verdict = bool | None
"""Whether the answer to a question is correct; None if that is undecided."""
Verdicts = Mapping[int, Verdict]
"""By position of the record. Questions that do not count, such as those without a reference answer, are absent."""


@dataclass(frozen=True)
class Method:
    """A way to select an answer."""

    kind: MethodKind
    aggregation: str | None = None
    """Ranks or weighs solutions. None for `majority` and `oracle`, which need no scores."""

    def label(self, count: str = "N") -> str:
        """What tables call it.

        >>> Method("best", "min").label()
        'best of N by min'
        """
        if self.kind == "majority":
            return f"majority of {count}"
        if self.kind == "oracle":
            return f"pass@{count} (oracle)"
        scores = find_aggregation(self.aggregation or "").label
        return f"best of {count} by {scores}" if self.kind == "best" else f"vote of {count} weighted by {scores}"


@dataclass(frozen=True)
class Accuracy:
    """The share of questions that were answered correctly."""

    value: float | None
    interval: Interval | None
    correct: int
    questions: int
    """Questions with a verdict. The others are excluded."""
    undecided: int = 0
    """Excluded: the answer could not be compared with the reference."""
    unscored: int = 0
    """Excluded: no candidate has the score that the method needs."""
    reason: str | None = None
    """Why there is no value."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"interval": as_list(self.interval)}


@dataclass(frozen=True)
class Difference:
    """The accuracy of a search minus that of a baseline, over the questions for which both have a verdict."""

    value: float | None
    interval: Interval | None
    """None without draws, and if all questions differ equally: the bootstrap then shows no uncertainty."""
    questions: int
    won: int
    """Questions that only the search answers correctly."""
    lost: int
    """Questions that only the baseline answers correctly."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"interval": as_list(self.interval)}


@dataclass(frozen=True)
class Baseline:
    """A baseline and how a search differs from it."""

    method: Method | None
    """None for greedy decoding."""
    accuracy: Accuracy
    difference: Difference

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        method = {"kind": "greedy", "aggregation": None} if self.method is None else asdict(self.method)
        return method | {"accuracy": self.accuracy.to_dict(), "search_minus_baseline": self.difference.to_dict()}


@dataclass(frozen=True)
class EqualTokens:
    """The samples that the tokens of a search pay for, question by question."""

    questions: int
    """Questions with this search and with samples."""
    without_samples: int
    """Questions with this search and without samples."""
    search_tokens: float | None
    """Tokens that the search generated per question, on those with samples."""
    sample_tokens: float | None
    """Tokens of the samples that were used, per question."""
    samples: float | None
    """Samples that were used, per question."""
    used_up: int
    """Questions whose samples are too few: all of them together cost fewer tokens than the search."""
    exceeded: int
    """Questions whose first sample alone costs more tokens than the search."""


@dataclass(frozen=True)
class Costs:
    """What a search cost: means per question, unless stated otherwise."""

    questions: int
    generated_tokens: float
    prompt_tokens: float
    generator_calls: float
    prm_tokens: float
    prm_tokens_rescored: float
    """Tokens that the PRM would have computed if every candidate were scored from scratch."""
    prm_ratio: float | None
    """All tokens if rescored, divided by all computed tokens; None if nothing was computed."""
    prm_calls: float
    unfinished: int
    """Questions without a finished path."""
    stops: Mapping[str, int]
    """Why the searches ended: questions by reason."""


@dataclass(frozen=True)
class GreedyMeasurement:
    """Greedy decoding on its own: one whole answer per question, at its own cost."""

    accuracy: Accuracy
    questions: int
    """Questions with a greedy answer."""
    tokens: float | None
    """Generated tokens per question."""


@dataclass(frozen=True)
class SearchMeasurement:
    """One search: its accuracy, what the same tokens buy without it, and its costs."""

    label: str
    selection: Selection
    aggregation: str
    accuracy: Accuracy
    """Of the answer that the search returned."""
    selections: Mapping[Method, Accuracy]
    """The same trees with every other selection and aggregation."""
    baselines: tuple[Baseline, ...]
    """At equal tokens, and greedy decoding."""
    equal_tokens: EqualTokens
    costs: Costs

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "label": self.label,
            "selection": self.selection,
            "aggregation": self.aggregation,
            "accuracy": self.accuracy.to_dict(),
            "selections": [asdict(method) | {"accuracy": at.to_dict()} for method, at in self.selections.items()],
            "baselines": [baseline.to_dict() for baseline in self.baselines],
            "equal_tokens": asdict(self.equal_tokens),
            "costs": asdict(self.costs) | {"stops": dict(self.costs.stops)},
        }


def accuracy(verdicts: Verdicts, bootstrap: Bootstrap, *, absent: str, unscored: int = 0) -> Accuracy:
    """Count verdicts. `absent` is the reason to give if there are none at all."""
    decided = [verdict for verdict in verdicts.values() if verdict is not None]
    correct, undecided = sum(decided), len(verdicts) - len(decided)
    if decided:
        interval = bootstrap.wilson(correct, len(decided))
        return Accuracy(correct / len(decided), interval, correct, len(decided), undecided, unscored)
    reason = "no answer could be compared with its reference" if undecided else absent
    if not undecided and unscored:
        reason = "the solutions are unscored"
    return Accuracy(None, None, 0, 0, undecided, unscored, reason)


def difference(search: Verdicts, baseline: Verdicts, bootstrap: Bootstrap, name: str) -> Difference:
    """Compare two methods question by question. `name` decides the random draws."""
    pairs = [
        (mine, other) for at, mine in search.items() if mine is not None and (other := baseline.get(at)) is not None
    ]
    if not pairs:
        return Difference(None, None, 0, 0, 0)
    won = sum(mine and not other for mine, other in pairs)
    lost = sum(other and not mine for mine, other in pairs)
    tied = len(pairs) - won - lost
    drawn = bootstrap.resampled_counts(name, [won, lost, tied])
    interval = bootstrap.interval((drawn[:, 0] - drawn[:, 1]) / len(pairs))
    certain = len(pairs) in (won, lost, tied)
    return Difference((won - lost) / len(pairs), None if certain else interval, len(pairs), won, lost)
