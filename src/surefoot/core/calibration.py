"""A calibration maps a model's scores to the observed frequency of correct steps.

Invariant: a map is monotone, so it preserves the order of scores, and never returns exactly 0 or 1, so a single step
cannot decide a product. A calibration is accepted only for the model it was fitted on and only for probabilities. An
unscored step stays unscored, and the raw score is kept.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surefoot.errors import CalibrationError

if TYPE_CHECKING:
    from surefoot.core.result import SolutionScore

FORMAT = 1
"""Version of the JSON file format."""
SCALE = "probability"
EDGE = 1e-7
"""Scores are clamped to [EDGE, 1 - EDGE]: single precision can round them to 0 or 1, whose logit is infinite."""
TINY = 1e-15
"""Calibrated scores are clamped to [TINY, 1 - TINY]: the sigmoid of a large value rounds to 1."""

Method = Literal["temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "isotonic")


@dataclass(frozen=True)
class Logistic:
    """Platt scaling: `sigmoid(slope * logit(score) + bias)`. The temperature is 1 / slope."""

    slope: float
    bias: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and self.slope > 0.0 and math.isfinite(self.bias)):
            raise CalibrationError(
                f"slope={self.slope}, bias={self.bias} does not preserve the order of scores: the slope must be "
                "above 0 and both must be finite. Fit the calibration again."
            )

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        safe = min(max(score, EDGE), 1.0 - EDGE)
        found = _sigmoid(self.slope * math.log(safe / (1.0 - safe)) + self.bias)
        return min(max(found, TINY), 1.0 - TINY)


@dataclass(frozen=True)
class Isotonic:
    """Linear interpolation between knots; scores outside them get the value of the nearest knot."""

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.values) or len(self.scores) < 2:
            raise CalibrationError(
                "An isotonic map needs as many scores as values, and at least two. Fit the calibration again."
            )
        rising = all(a < b for a, b in zip(self.scores, self.scores[1:], strict=False))
        climbing = all(a <= b for a, b in zip(self.values, self.values[1:], strict=False))
        if not (rising and climbing and self.values[0] > 0.0 and self.values[-1] < 1.0):
            raise CalibrationError(
                "An isotonic map must be increasing, with values between 0 and 1. Fit the calibration again."
            )

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        at = bisect_right(self.scores, score)
        if at == 0:
            return self.values[0]
        if at == len(self.scores):
            return self.values[-1]
        share = (score - self.scores[at - 1]) / (self.scores[at] - self.scores[at - 1])
        # Rounding must not exceed the upper of the two values.
        return min(self.values[at - 1] + share * (self.values[at] - self.values[at - 1]), self.values[at])


Map = Logistic | Isotonic


@dataclass(frozen=True)
class FittedOn:
    """The data that a map was fitted on."""

    solutions: int
    steps: int
    sha256: str
    """Hash of the problems, steps and labels, in order."""


@dataclass(frozen=True)
class Calibration:
    """A map and the model it belongs to. Fit one with `evaluate.calibrate` and pass it to `surefoot.load`.

    >>> scorer = surefoot.load("mini", calibration=Calibration.read("calibration.json"))
    """

    map: Map
    model: str
    fingerprint: str | None
    """Fingerprint of the model; None if the map was fitted on precomputed scores, whose model is unknown."""
    fitted_on: FittedOn
    any_model: bool = False
    """Whether any model is accepted. Not written to the file: callers opt in each time."""

    @property
    def method(self) -> Method:
        """How the map was fitted."""
        return "temperature" if isinstance(self.map, Logistic) else "isotonic"

    @property
    def name(self) -> str:
        """The method and a short hash of the map, as shown by `SolutionScore.calibration`."""
        digest = sha256(json.dumps(asdict(self.map), sort_keys=True).encode()).hexdigest()
        return f"{self.method}-{digest[:8]}"

    def for_any_model(self) -> Calibration:
        """Return a copy that any model accepts. Its probabilities may then be meaningless."""
        return replace(self, any_model=True)

    def check(self, model: str, fingerprint: str) -> None:
        """Raise CalibrationError if the calibration was fitted on another model."""
        if self.any_model or self.fingerprint == fingerprint:
            return
        known = "precomputed scores" if self.fingerprint is None else f"fingerprint {self.fingerprint[:12]}"
        raise CalibrationError(
            f"This calibration was fitted on {self.model} ({known}), but the loaded model is {model} (fingerprint "
            f"{fingerprint[:12]}, which depends on dtype and quantization). Fit one with `surefoot calibrate`, or use "
            "this one anyway with Calibration.read(path).for_any_model() or --any-calibration."
        )

    def apply(self, result: SolutionScore) -> SolutionScore:
        """Return the result with calibrated scores. The raw scores are kept in `StepScore.raw`."""
        if result.scale != SCALE:
            raise CalibrationError(
                f"The scores of {result.model} are on the scale {result.scale!r}, but only probabilities can be "
                "calibrated. Load the model without a calibration."
            )
        if result.calibration is not None:
            raise CalibrationError(f"This result is already calibrated with {result.calibration}.")
        steps = tuple(
            step if step.score is None else replace(step, score=self.map(step.score), raw=step.score)
            for step in result.steps
        )
        return replace(result, steps=steps, calibration=self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "format": FORMAT,
            "method": self.method,
            "parameters": asdict(self.map),
            "scale": SCALE,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "fitted_on": asdict(self.fitted_on),
        }

    def write(self, path: str | Path) -> None:
        """Write a JSON file."""
        try:
            Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise CalibrationError(f"Cannot write the calibration to {path}: {error}") from error

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Calibration:
        """Rebuild a calibration from its `to_dict`."""
        return _from_dict(data)

    @staticmethod
    def read(path: str | Path) -> Calibration:
        """Read a file written by `write`."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CalibrationError(f"Cannot read {path} as a calibration: {error}") from error
        try:
            return _from_dict(data)
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(
                f"{path} is not a calibration ({type(error).__name__}: {error}). Fit one with `surefoot calibrate`."
            ) from error
        except CalibrationError as error:
            raise CalibrationError(f"{path}: {error}") from error


def _from_dict(data: dict[str, Any]) -> Calibration:
    if data["format"] != FORMAT:
        raise CalibrationError(f"format {data['format']!r} is unknown; this version reads {FORMAT}. Update surefoot.")
    if data["scale"] != SCALE:
        raise CalibrationError(f"the scale {data['scale']!r} cannot be calibrated; only {SCALE!r} can.")
    if data["method"] not in METHODS:
        raise CalibrationError(f"the method {data['method']!r} is unknown. Choose one of: {', '.join(METHODS)}.")
    given = data["parameters"]
    found: Map
    if data["method"] == "temperature":
        found = Logistic(float(given["slope"]), float(given["bias"]))
    else:
        found = Isotonic(tuple(map(float, given["scores"])), tuple(map(float, given["values"])))
    mark = data["fingerprint"]
    return Calibration(found, str(data["model"]), None if mark is None else str(mark), FittedOn(**data["fitted_on"]))


def _sigmoid(value: float) -> float:
    if value >= 0.0:
        return 1.0 / (1.0 + math.exp(-value))
    small = math.exp(max(value, -700.0))
    return small / (1.0 + small)
