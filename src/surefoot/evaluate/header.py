"""The fields that the results of all benchmarks share, under the same names in every `to_dict`."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from surefoot.core.result import Scale
    from surefoot.evaluate.baselines import Baseline
    from surefoot.evaluate.reliability import Reliability
    from surefoot.evaluate.scoring import ThresholdSource


class BenchmarkResult(Protocol):
    """What every benchmark result offers. `print(result)` shows its tables."""

    @property
    def model(self) -> str:
        """The name of the model."""

    @property
    def scale(self) -> Scale:
        """What the scores are."""

    @property
    def calibration(self) -> str | None:
        """The name of the calibration applied to the scores, or None."""

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """What is reached without reading a solution."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know besides the numbers."""

    @property
    def unscored(self) -> int:
        """The number of solutions with a step that should have a score and has none."""

    @property
    def complete(self) -> bool:
        """Whether every solution could be judged."""

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data."""


def header_fields(
    benchmark: str,
    result: BenchmarkResult,
    *,
    solutions: int,
    threshold: float | None = None,
    threshold_source: ThresholdSource | None = None,
    published: object | None = None,
    reliability: Reliability | None = None,
) -> dict[str, Any]:
    """Return the shared fields. Fields that do not apply to a benchmark are None."""
    return {
        "benchmark": benchmark,
        "model": result.model,
        "scale": result.scale,
        "calibration": result.calibration,
        "threshold": threshold,
        "threshold_source": threshold_source,
        "solutions": solutions,
        "unscored": result.unscored,
        "reliability": None if reliability is None else reliability.to_dict(),
        "published": asdict(published) if is_dataclass(published) and not isinstance(published, type) else None,
        "baselines": [baseline.to_dict() for baseline in result.baselines],
        "notes": list(result.notes),
    }


def model_label(result: BenchmarkResult) -> str:
    """Return the model's name, followed by its calibration if there is one."""
    return result.model if result.calibration is None else f"{result.model} (calibrated: {result.calibration})"


def threshold_label(threshold: float, source: ThresholdSource, tuned_on: str | None = None) -> str:
    """Return the threshold and where it comes from: `0.5 (default)`, `0.7 (given)`, `0.62 (tuned on gsm8k)`."""
    return f"{threshold:.4g} ({source if tuned_on is None else f'{source} on {tuned_on}'})"
