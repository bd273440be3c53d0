"""Guarantee 3 for every attention kernel and format: the part of `gpu.py` that can fail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import surefoot
from surefoot.engine.attention import ATTENTIONS
from surefoot.errors import SurefootError
from surefoot.scoring.local import load_local

FORMATS: dict[str, tuple[dict[str, Any], float]] = {
    "float32": ({"dtype": "float32"}, 1e-5),
    "bfloat16": ({"dtype": "bfloat16"}, 0.1),
    "float16": ({"dtype": "float16"}, 0.02),
    "nf4, float32": ({"dtype": "float32", "quantize": "nf4"}, 1e-5),
    "nf4, bfloat16": ({"dtype": "bfloat16", "quantize": "nf4"}, 0.1),
    "int8": ({"quantize": "int8"}, 0.02),
}
"""Load options and the largest difference that docs/scoring.md allows."""
BUDGETS = (16, 100, None)
"""Tokens per pack; None is the default."""
Item = tuple[str, list[str]]


def items() -> list[Item]:
    """Solutions that share nothing, a question, some steps, or everything; some continue others."""
    steps = ["one", "so 2 + 2 = 4.", "1 + 1 = 2", "Therefore the answer is 3."]
    shared = [(f"q {n % 5}", [steps[0], f"two {n}", *steps[1:]][: n % 6]) for n in range(16)]
    alone = [(f"Question {n}: what is {n} + {n}?", [f"It is {n + n}.", "Done."]) for n in range(3)]
    return [*shared, *alone, shared[-1], ("q 1", ["x " * 60, "y"])]


def check_formats(folder: Path, device: str, *, compiled: bool) -> list[dict[str, Any]]:
    """One row per format and attention kernel, and one for a compiled forward pass."""
    rows = []
    for name, (options, tolerance) in FORMATS.items():
        for attention in ATTENTIONS:
            if attention != "auto":
                rows.append(check_one(folder, device, name, attention, options, tolerance))
    if compiled:
        options = {"dtype": "float32", "compile": True}
        rows.append(check_one(folder, device, "float32, compiled", "auto", options, 1e-5))
    return rows


def check_one(
    folder: Path, device: str, name: str, attention: str, options: dict[str, Any], tolerance: float
) -> dict[str, Any]:
    """Compare scores alone with scores in company. `difference` is the largest one."""
    row: dict[str, Any] = {"format": name, "attention": attention, "tolerance": tolerance, "difference": None}
    try:
        scorer = load_local(folder, device=device, attention=attention, **{"compile": False} | options)
    except (SurefootError, ImportError) as error:
        return row | {"result": "cannot run", "detail": str(error)}
    try:
        worst = dict(_differences(scorer))
    except Exception as error:  # a kernel that fails to compile or to run
        return row | {"result": "failed", "detail": f"{type(error).__name__}: {str(error)[:500]}"}
    how = max(worst, key=lambda each: math.inf if math.isnan(worst[each]) else worst[each])
    row |= {"difference": worst[how], "differences": worst}
    if not worst[how] <= tolerance:  # also if it is not a number
        return row | {"result": "failed", "detail": f"{how}: scores differ by {worst[how]:.2e}, allowed {tolerance:g}"}
    return row | {"result": "passed", "detail": ""}


def _differences(scorer: surefoot.Scorer) -> Iterator[tuple[str, float]]:
    """The largest difference from a solution's scores alone, for each kind of company."""
    given = items()
    alone = [scorer.score(*item).step_scores for item in given]
    default = scorer.engine.budget
    for budget in BUDGETS:
        scorer.engine.budget = budget or default
        together = [result.step_scores for result in scorer.score_many(given)]
        yield f"packs of {scorer.engine.budget}", _largest(alone, together)
    scorer.engine.budget = default
    backwards = [result.step_scores for result in scorer.score_many(given[::-1])][::-1]
    yield "reversed", _largest(alone, backwards)
    sessions = {question: scorer.session(question) for question, _ in given}
    searched = [sessions[question].score([steps])[0].step_scores for question, steps in given]
    yield "sessions", _largest(alone, searched)
    with torch.autocast(torch.device(scorer.engine.device).type, torch.bfloat16):
        under = [result.step_scores for result in scorer.score_many(given)]
    yield "autocast", _largest(alone, under)


def _largest(expected: list[list[float | None]], found: list[list[float | None]]) -> float:
    """The largest difference; not a number if a step has no score in either."""
    pairs = [
        (one, other)
        for row, others in zip(expected, found, strict=True)
        for one, other in zip(row, others, strict=True)
    ]
    if not pairs or any(one is None or other is None for one, other in pairs):
        return math.nan
    differences = [abs(one - other) for one, other in pairs if one is not None and other is not None]
    return math.nan if any(map(math.isnan, differences)) else max(differences)
