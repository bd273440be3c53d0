"""The summary line and the notes of a scored solution, in the words that every rendering shares."""

from __future__ import annotations

from surefoot.display.numbers import short_score
from surefoot.display.views import SolutionView


def summary(result: SolutionView, threshold: float | None = None) -> list[str]:
    """Return the aggregated scores and the first error, one phrase each."""
    values = dict(result.aggregates)
    if result.recommended is not None:
        values[result.recommended] = result.aggregate(result.recommended)
    phrases = [
        f"{name.replace('_', ' ')} {'none' if value is None else short_score(value)}"
        for name, value in values.items()
        # On another scale than probabilities, some aggregations are undefined although every step has a score.
        if value is not None or result.scale == "probability" or None in (step.score for step in result.steps)
    ]
    error = result.first_error(threshold)
    if error is None:
        return [*phrases, "first error unknown"]
    return [*phrases, "no error found" if error == -1 else f"first error at step {error + 1}"]


def notes(result: SolutionView) -> list[str]:
    """Return what a reader has to know besides the numbers."""
    found = [] if result.reason is None else [result.reason]
    if outside := sum(end - start for start, end in result.outside):
        found.append(f"{outside} characters are outside the steps and were not scored.")
    if skipped := sum(end - start for start, end in result.skipped):
        found.append(f"{skipped} characters were skipped: see the option thinking.")
    if result.empty_steps:
        found.append(f"Dropped empty steps: {result.empty_steps}.")
    if result.calibration is not None:
        found.append(f"The scores are calibrated: {result.calibration}.")
    return found + list(result.warnings)
