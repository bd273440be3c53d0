"""Fit a calibration and measure what it gains by cross-validation over questions.

The returned calibration is fitted on all data. The figures "after" come from folds that the map was not fitted on; all
solutions of a question are in one fold.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.core.calibration import SCALE, Calibration, FittedOn, Logistic, Map, Method
from surefoot.core.intervals import Bootstrap
from surefoot.display.tables import DASH, join_sections, percent, table
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.calibration_fit import fit
from surefoot.evaluate.reliability import (
    BinKind,
    LabelledScore,
    Reliability,
    labelled_scores,
    reliability,
)
from surefoot.evaluate.rows import ProcessBenchRow, Rows, as_rows, labelled_rows
from surefoot.evaluate.scoring import are_probabilities, name_of, scale_of, score_labelled

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer

logger = logging.getLogger("surefoot")


@dataclass(frozen=True)
class CalibrationResult:
    """A calibration, and the reliability of the scores without and with it."""

    calibration: Calibration
    before: Reliability
    after: Reliability | None
    """By cross-validation; None if that is not possible."""
    questions: int
    folds: int
    unscored: int
    """Solutions in which a labelled step has no score; their scored steps count."""
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> bool:
        """Whether held-out scores have a higher log loss or Brier score after calibration than before."""
        return self.after is not None and bool(_worse(self.before, self.after))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "calibration": self.calibration.to_dict(),
            "name": self.calibration.name,
            "before": self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "questions": self.questions,
            "folds": self.folds,
            "unscored": self.unscored,
            "worse": self.worse,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        found = self.calibration
        rows = [["before", *_reliability_row(self.before)]]
        rows.append([f"after, {self.folds} folds", *(_reliability_row(self.after) if self.after else (DASH,) * 3)])
        title = f"Calibration of {found.model}: {found.method}, {found.fitted_on.solutions} solutions"
        title += f" of {self.questions} questions, {found.fitted_on.steps} steps"
        if isinstance(found.map, Logistic):
            fitted = f"sigmoid({found.map.slope:.4g} * logit(score) + {found.map.bias:.4g})"
        else:
            fitted = f"{len(found.map.scores)} knots, values {found.map.values[0]:.4g} to {found.map.values[-1]:.4g}"
        return join_sections([title, table(["", "ECE", "log-loss", "Brier"], rows), f"Fitted: {fitted}"], self.notes)


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
    """Fit a calibration of a model on labelled solutions.

        result = evaluate.calibrate(scorer, evaluate.read_labelled("graded.jsonl"), method="isotonic")
        result.calibration.write("calibration.json")

    `rows` come from `read_labelled`, or are mappings with the fields of ProcessBench or PRMBench. `method` is
    `temperature` (a slope and, unless `bias=False`, a bias of the logit) or `isotonic` (any increasing map). `folds` is
    the number of cross-validation folds; `bins` and `kind` define the expected calibration error. See `processbench`
    for the other options. If the calibration does not help on held-out questions, a warning is logged and `worse` is
    True.
    """
    bootstrap = Bootstrap(draws, seed)
    check_folds(folds)
    if scorer is not None and scorer.calibration is not None:
        raise OptionError("This model is loaded with a calibration. Load it without one to fit another.")
    if (scale := scale_of(scorer)) != SCALE:
        raise InputError(
            f"The scores of {name_of(scorer, name)} are on the scale {scale!r}. Only probabilities can be calibrated."
        )
    labelled = as_rows(rows, ProcessBenchRow, partial(labelled_rows, scores=scores if scorer is None else None))
    scored = score_labelled(scorer, labelled, progress=progress)
    solutions = [labelled_scores(row.steps, each.scores, row.label) for row, each in zip(labelled, scored, strict=True)]
    if not are_probabilities(score for solution in solutions for score, _ in solution):
        raise InputError("A score lies outside 0..1. Only probabilities can be calibrated.")
    fitted = _fit(solutions, method, bias)
    before = reliability(solutions, bins=bins, kind=kind, bootstrap=bootstrap)
    assert before is not None  # there are steps, and their scores are probabilities
    mapped, notes = _held_out(solutions, [row.problem for row in labelled], method, bias, folds, seed)
    complete = [labelled_scores(row.steps, [0.0] * len(row.steps), row.label) for row in labelled]
    unscored = sum(len(one) < len(whole) for one, whole in zip(solutions, complete, strict=True))
    if unscored:
        notes.append(f"{unscored} of {len(labelled)} solutions have unscored labelled steps; those do not count.")
    questions = len({row.problem for row in labelled})
    after = None if mapped is None else reliability(mapped, bins=bins, kind=kind, bootstrap=bootstrap)
    if after is not None and (worse := _worse(before, after)):
        notes.append(
            f"Calibrated scores are worse than raw ones on held-out questions ({', '.join(worse)}). Use the raw "
            f"scores, or fit again on more data{_simpler(method, bias)}."
        )
        logger.warning("%s", notes[-1])
    return CalibrationResult(
        calibration=Calibration(
            map=fitted,
            model=name_of(scorer, name),
            fingerprint=None if scorer is None else scorer.fingerprint,
            fitted_on=FittedOn(len(labelled), before.steps, _digest(labelled)),
        ),
        before=before,
        after=after,
        questions=questions,
        folds=min(folds, questions),
        unscored=unscored,
        notes=tuple(notes),
    )


def _simpler(method: Method, bias: bool) -> str:
    """Name a map with fewer parameters, which needs less data."""
    if method == "isotonic":
        return " or with the method temperature"
    return " or without a bias" if bias else ""


def _worse(before: Reliability, after: Reliability) -> list[str]:
    """Name the proper scoring rules that calibration makes worse. The ECE is not proper: a constant can have 0."""
    pairs = {"log-loss": (before.log_loss, after.log_loss), "Brier": (before.brier, after.brier)}
    return [f"{name} {old:.4f} before, {new:.4f} after" for name, (old, new) in pairs.items() if new > old]


def _reliability_row(found: Reliability) -> tuple[str, str, str]:
    return percent(found.ece, found.ece_interval), f"{found.log_loss:.4f}", f"{found.brier:.4f}"


def check_folds(folds: int) -> None:
    """Reject a number of folds that leaves nothing to measure on."""
    if folds < 2:
        raise OptionError(f"folds={folds} leaves nothing to measure on. Pass 2 or more.")


def _fit(solutions: Sequence[Sequence[LabelledScore]], method: Method, bias: bool) -> Map:
    steps = [step for solution in solutions for step in solution]
    return fit(
        np.array([score for score, _ in steps], dtype=np.float64),
        np.array([correct for _, correct in steps], dtype=np.float64),
        method,
        bias=bias,
    )


def _held_out(
    solutions: Sequence[Sequence[LabelledScore]],
    questions: Sequence[str],
    method: Method,
    bias: bool,
    folds: int,
    seed: int,
) -> tuple[list[list[LabelledScore]] | None, list[str]]:
    """Return every solution with its scores mapped by a fit without its question, or a note on why that failed."""
    names = sorted(set(questions))
    if len(names) < 2:
        return None, ["There is only one question, so nothing can be held out and there are no figures 'after'."]
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[at]: number % folds for number, at in enumerate(order.tolist())}
    mapped: list[list[LabelledScore]] = [[] for _ in solutions]
    for fold in range(min(folds, len(names))):
        outside = [one for one, question in zip(solutions, questions, strict=True) if fold_of[question] != fold]
        try:
            found = _fit(outside, method, bias)
        except InputError as error:
            return None, [f"The cross-validation failed, so there are no figures 'after'. {error}"]
        for at, question in enumerate(questions):
            if fold_of[question] == fold:
                mapped[at] = [(found(score), correct) for score, correct in solutions[at]]
    return mapped, []


def _digest(rows: Sequence[ProcessBenchRow]) -> str:
    digest = sha256()
    for row in rows:
        digest.update(json.dumps([row.problem, row.steps, row.label]).encode() + b"\n")
    return digest.hexdigest()
