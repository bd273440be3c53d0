"""Baselines of every benchmark: what is reached without reading a solution.

They are computed from the labels of all solutions, scored or not. A constant baseline gives every step the same
verdict. The position baseline knows the index of a step and nothing else; it is fitted to the same labels, separately
for each metric, so it overstates what the index gives on other data. A model should be above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.core.threshold_sweep import harmonic_mean
from surefoot.display.tables import Cells, percent
from surefoot.evaluate.reliability import labelled_scores
from surefoot.evaluate.rows import PRMBenchRow, ProcessBenchRow
from surefoot.evaluate.step_auc import step_auc
from surefoot.evaluate.step_decisions import Decisions

PREFIX = "baseline: "
ALL_CORRECT = "every step correct"
ALL_INCORRECT = "every step incorrect"
FIRST_INCORRECT = "first step incorrect"
POSITION = "position"


@dataclass(frozen=True)
class Baseline:
    """One baseline and its value in each metric of the benchmark."""

    name: str
    about: str
    """What it predicts: a sentence."""
    values: Mapping[str, float | None]
    """Fractions of 1 by metric; best of N: by N. None if undefined."""
    fitted: bool = False
    """Whether it was fitted to the labels that it is measured on, which overstates it."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"name": self.name, "about": self.about, "fitted": self.fitted, "values": dict(self.values)}


def baseline_cells(
    metrics: Mapping[str, str], model: str, values: Sequence[str], baselines: Sequence[Baseline]
) -> Cells:
    """Return a table with the model's row first. `metrics` maps keys of `Baseline.values` to column names.

    >>> constant = Baseline("every step correct", "", {"f1": 0.0})
    >>> baseline_cells({"f1": "F1"}, "mine", ["71.2"], [constant])
    (['scorer', 'F1'], [['mine', '71.2'], ['baseline: every step correct', '0.0']])
    """
    rows = [[model, *values]]
    rows += [[PREFIX + each.name, *(percent(each.values.get(key)) for key in metrics)] for each in baselines]
    return ["scorer", *metrics.values()], rows


def about(baselines: Sequence[Baseline]) -> str:
    """Return one sentence per baseline that says what it predicts."""
    return " ".join(f"{each.name.capitalize()}: {each.about}" for each in baselines)


# --- ProcessBench --------------------------------------------------------------------------------------------------


def processbench_baselines(rows: Sequence[ProcessBenchRow]) -> tuple[Baseline, ...]:
    """Return the baselines of ProcessBench: accuracies and F1 as averages over splits, and the step AUC.

    A score that depends on the index alone predicts the same step `k` in every solution that has one, and no error in
    the others. So the position baseline tries every `k`, and takes the one with the highest F1.
    """
    longest = max((len(row.steps) for row in rows), default=0)
    by_step = [_first_errors(rows, at) for at in range(longest)]
    found = [
        Baseline(
            ALL_CORRECT, "no solution has an error.", _first_errors(rows, None) | {"step_auc": _constant_auc(rows)}
        )
    ]
    if by_step:
        best = max(range(longest), key=lambda at: [_or_zero(by_step[at][name]) for name in ("f1", "error", "correct")])
        found += [
            Baseline(
                FIRST_INCORRECT,
                "the first error of every solution is its first step.",
                by_step[0] | {"step_auc": _constant_auc(rows)},
            ),
            Baseline(
                POSITION,
                f"the first error is step {best + 1} of every solution that has one. The step with the highest F1 on "
                "these labels; the AUC is that of the share of correct steps at each index.",
                by_step[best] | {"step_auc": _position_auc(rows)},
                fitted=True,
            ),
        ]
    return tuple(found)


def _first_errors(rows: Sequence[ProcessBenchRow], at: int | None) -> dict[str, float | None]:
    """Measure the prediction that step `at` is the first error of every solution that has it; None for no step."""
    splits: dict[str, list[ProcessBenchRow]] = {}
    for row in rows:
        splits.setdefault(row.split, []).append(row)
    errors, corrects, f1s = [], [], []
    for members in splits.values():
        right = [(row.label == -1, _predicted(row, at) == row.label) for row in members]
        error = _mean([hit for correct, hit in right if not correct])
        correct = _mean([hit for correct, hit in right if correct])
        errors.append(error)
        corrects.append(correct)
        f1s.append(None if error is None or correct is None else harmonic_mean(error, correct))
    return {"error": _average(errors), "correct": _average(corrects), "f1": _average(f1s)}


def _predicted(row: ProcessBenchRow, at: int | None) -> int:
    return at if at is not None and at < len(row.steps) and row.steps[at].strip() else -1


def _constant_auc(rows: Sequence[ProcessBenchRow]) -> float | None:
    """Return 0.5, as every pair of steps is a tie; None without correct or without incorrect steps."""
    return step_auc([labelled_scores(row.steps, [0.0] * len(row.steps), row.label) for row in rows])


def _position_auc(rows: Sequence[ProcessBenchRow]) -> float | None:
    """Return the step AUC of the share of correct steps at each index: no function of the index has a higher one."""
    by_index = [labelled_scores(row.steps, [float(at) for at in range(len(row.steps))], row.label) for row in rows]
    shares = _shares((int(at), correct) for solution in by_index for at, correct in solution)
    return step_auc([[(shares[int(at)], correct) for at, correct in solution] for solution in by_index])


# --- PRMBench ------------------------------------------------------------------------------------------------------


def prmbench_baselines(rows: Sequence[PRMBenchRow]) -> tuple[Baseline, ...]:
    """Return the baselines of PRMBench over the pooled steps of `rows`, which should not include the originals.

    The position baseline rejects the indices whose share of correct steps is lowest: as many as give the highest
    PRMScore.
    """
    steps = [(at, at not in row.errors) for row in rows for at, step in enumerate(row.steps) if step.strip()]
    shares = _shares(steps)
    everything, nothing = frozenset(shares), frozenset[int]()
    found = [
        Baseline(ALL_CORRECT, "every step is accepted.", _decided(steps, nothing)),
        Baseline(ALL_INCORRECT, "every step is rejected.", _decided(steps, everything)),
        Baseline(FIRST_INCORRECT, "the first step is rejected, all others are accepted.", _decided(steps, {0})),
    ]
    choices = [
        frozenset(at for at, share in shares.items() if share <= limit) for limit in sorted(set(shares.values()))
    ]
    if choices:
        best = max([nothing, *choices], key=lambda rejected: _or_zero(_decided(steps, rejected)["prm_score"]))
        found.append(
            Baseline(
                POSITION,
                "steps at the indices with the fewest correct ones are rejected. The indices with the highest PRMScore "
                "on these labels.",
                _decided(steps, best),
                fitted=True,
            )
        )
    return tuple(found)


def _decided(steps: Sequence[tuple[int, bool]], rejected: frozenset[int] | set[int]) -> dict[str, float | None]:
    cells = Counter((correct, at not in rejected) for at, correct in steps)
    found = Decisions(cells[True, True], cells[False, True], cells[False, False], cells[True, False])
    return {"prm_score": found.prm_score, "f1": found.f1, "negative_f1": found.negative_f1}


# --- Best of N -----------------------------------------------------------------------------------------------------

SELECTIONS = {
    "one at random": "a solution is selected at random, whatever N is.",
    "first sample": "the first solution of each problem in the data is selected, whatever N is.",
    "fewest steps": "the solution with the fewest steps is selected: what scores that fall with the index amount to.",
    "majority vote": "the most frequent answer is selected; no scores are used.",
}
"""Baselines of best of N, and what they select."""


def best_of_n_baselines(curves: Mapping[str, Mapping[int, float]]) -> tuple[Baseline, ...]:
    """Return the baselines of best of N from their accuracies by N, in the order of `SELECTIONS`."""
    return tuple(
        Baseline(name, text, {str(n): value for n, value in curves[name].items()}) for name, text in SELECTIONS.items()
    )


# --- AgentProcessBench ---------------------------------------------------------------------------------------------


def trajectory_baselines(labels: Sequence[Sequence[int | None]]) -> tuple[Baseline, ...]:
    """Return the baselines of AgentProcessBench. `labels` has one list per trajectory: -1, 0, 1, or None, per step.

    The position baseline predicts, for the step accuracy, the most frequent label at each index, and for the first
    error the step (or none) that is right most often.
    """
    longest = max(map(len, labels), default=0)
    at_index = [
        Counter(each[at] for each in labels if at < len(each) and each[at] is not None) for at in range(longest)
    ]
    total = sum(counts.total() for counts in at_index)
    equal = {label: sum(counts[label] for counts in at_index) for label in (1, -1)}
    frequent = sum(max(counts.values(), default=0) for counts in at_index)
    firsts = [next((at for at, label in enumerate(each) if label == -1), -1) for each in labels]

    def first(at: int) -> float | None:
        """The share of trajectories whose first error is the first labelled step from index `at` on; -1 is none."""
        named = [
            next((step for step in range(at, len(each)) if each[step] is not None), -1) if at >= 0 else -1
            for each in labels
        ]
        return _mean([guess == label for guess, label in zip(named, firsts, strict=True)])

    best = max(range(-1, longest), key=lambda at: _or_zero(first(at)))
    place = "no trajectory has an error" if best == -1 else f"the first error is step {best + 1} of every trajectory"
    values: list[tuple[str, str, int, float | None, bool]] = [
        ("every step +1", "every step is labelled +1.", equal[1], first(-1), False),
        (
            "every step -1",
            "every step is labelled -1, so the first step is the first error.",
            equal[-1],
            first(0),
            False,
        ),
        (
            POSITION,
            f"each step gets the label that is most frequent at its index, and {place}: the best on these labels.",
            frequent,
            first(best),
            True,
        ),
    ]
    return tuple(
        Baseline(
            name,
            text,
            {"step_accuracy": hits / total if total else None, "first_error_accuracy": accuracy},
            fitted,
        )
        for name, text, hits, accuracy, fitted in values
    )


def _shares(steps: Iterable[tuple[int, bool]]) -> dict[int, float]:
    """Return the share of correct steps at each index."""
    counts: dict[int, list[bool]] = {}
    for at, correct in steps:
        counts.setdefault(at, []).append(correct)
    return {at: sum(found) / len(found) for at, found in counts.items()}


def _mean(hits: Sequence[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None


def _average(values: Sequence[float | None]) -> float | None:
    """Return the mean over splits; None unless each of them has a value."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None else value
