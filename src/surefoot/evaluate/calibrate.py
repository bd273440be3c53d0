"""Fitting a calibration, and telling honestly what it gains.

The rule: what is written was fitted on all data; what is reported as "after" was measured on questions that the map
had not seen, each in the turn in which its fold was left out. All solutions of a question are in one fold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.core.calibration import SCALE, Calibration, FittedOn, Map, Method
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.calibration_fit import fit
from surefoot.evaluate.intervals import Bootstrap
from surefoot.evaluate.reliability import BinKind, Known, Reliability, are_probabilities, known_steps, reliability
from surefoot.evaluate.rows import ProcessBenchRow, Rows, as_rows, labelled_rows
from surefoot.evaluate.scoring import name_of, scale_of, score_labelled

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer


@dataclass(frozen=True)
class CalibrationResult:
    """A calibration, and how well calibrated the scores are without and with it."""

    calibration: Calibration
    before: Reliability
    after: Reliability | None
    """By cross-validation; None where that cannot be done."""
    questions: int
    folds: int
    unscored: int
    """Solutions in which a step whose truth is known has no score; their scored steps count."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "calibration": self.calibration.to_dict(),
            "name": self.calibration.name,
            "before": self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "questions": self.questions,
            "folds": self.folds,
            "unscored": self.unscored,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        from surefoot.evaluate.tables import calibration_tables

        return calibration_tables(self)


def calibrate(
    scorer: StepScorer | None,
    rows: Rows[ProcessBenchRow],
    *,
    method: Method = "temperature",
    bias: bool = True,
    folds: int = 5,
    bins: int = 10,
    kind: BinKind = "width",
    seed: int = 0,
    draws: int = 1000,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> CalibrationResult:
    """Fits a calibration of a model on labelled solutions.

    `rows` come from `read_labelled`, or are mappings with the fields of ProcessBench or PRMBench. `method` is
    `temperature`, a slope and (unless `bias=False`) a bias of the logit, or `isotonic`, any rising map. `folds` are
    those of the cross-validation over questions, `bins` and `kind` those of the expected calibration error. The other
    options are those of `processbench`.
    """
    bootstrap = Bootstrap(draws, seed)
    check_folds(folds)
    if scorer is not None and scorer.calibration is not None:
        raise OptionError("This model is loaded with a calibration. Load it without one to fit another.")
    if (scale := scale_of(scorer)) != SCALE:
        raise InputError(
            f"The scores of {name_of(scorer, name)} are on the scale {scale!r}. Only probabilities can be calibrated."
        )
    asked = as_rows(rows, ProcessBenchRow, partial(labelled_rows, scores=scores if scorer is None else None))
    found = score_labelled(scorer, asked, progress=progress)
    known = [known_steps(row.steps, each.scores, row.label) for row, each in zip(asked, found, strict=True)]
    if not are_probabilities(score for solution in known for score, _ in solution):
        raise InputError("A score lies outside 0..1. Only probabilities can be calibrated.")
    fitted = _fit(known, method, bias)
    before = reliability(known, bins=bins, kind=kind, bootstrap=bootstrap)
    assert before is not None  # something was fitted, on probabilities
    mapped, notes = _held_out(known, [row.problem for row in asked], method, bias, folds, seed)
    everything = [known_steps(row.steps, [0.0] * len(row.steps), row.label) for row in asked]
    unscored = sum(len(one) < len(whole) for one, whole in zip(known, everything, strict=True))
    if unscored:
        notes.append(f"{unscored} of {len(asked)} solutions have labelled steps without a score; those do not count.")
    questions = len({row.problem for row in asked})
    return CalibrationResult(
        calibration=Calibration(
            map=fitted,
            model=name_of(scorer, name),
            fingerprint=None if scorer is None else scorer.fingerprint,
            fitted_on=FittedOn(len(asked), before.steps, _digest(asked)),
        ),
        before=before,
        after=None if mapped is None else reliability(mapped, bins=bins, kind=kind, bootstrap=bootstrap),
        questions=questions,
        folds=min(folds, questions),
        unscored=unscored,
        notes=tuple(notes),
    )


def check_folds(folds: int) -> None:
    """Refuses what cannot be cross-validated."""
    if folds < 2:
        raise OptionError(f"folds={folds} leave nothing to measure on. Give 2 or more.")


def _fit(solutions: Sequence[Sequence[Known]], method: Method, bias: bool) -> Map:
    steps = [step for solution in solutions for step in solution]
    return fit(
        np.array([score for score, _ in steps], dtype=np.float64),
        np.array([right for _, right in steps], dtype=np.float64),
        method,
        bias=bias,
    )


def _held_out(
    solutions: Sequence[Sequence[Known]], questions: Sequence[str], method: Method, bias: bool, folds: int, seed: int
) -> tuple[list[list[Known]] | None, list[str]]:
    """Every solution, its scores mapped by what was fitted without its question; or why that cannot be done."""
    names = sorted(set(questions))
    if len(names) < 2:
        return None, ["There is one question only, so nothing is held out and no figure stands under 'after'."]
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[at]: number % folds for number, at in enumerate(order.tolist())}
    mapped: list[list[Known]] = [[] for _ in solutions]
    for fold in range(min(folds, len(names))):
        outside = [one for one, question in zip(solutions, questions, strict=True) if fold_of[question] != fold]
        try:
            found = _fit(outside, method, bias)
        except InputError as error:
            return None, [f"The cross-validation failed, so no figure stands under 'after'. {error}"]
        for at, question in enumerate(questions):
            if fold_of[question] == fold:
                mapped[at] = [(found(score), right) for score, right in solutions[at]]
    return mapped, []


def _digest(rows: Sequence[ProcessBenchRow]) -> str:
    digest = sha256()
    for row in rows:
        digest.update(json.dumps([row.problem, row.steps, row.label]).encode() + b"\n")
    return digest.hexdigest()
