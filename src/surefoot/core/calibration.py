"""A calibration: the map from what a model says to how often it is right.

The rule: a map is monotone, so that the order of scores stays, and never gives 0 or 1 exactly, so that a product of
scores cannot be decided by one step alone. It belongs to the model on which it was fitted and to scores that are
probabilities; for anything else it is refused. A step without a score stays without one, and the raw score is kept.
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
"""Of the JSON file."""
SCALE = "probability"
EDGE = 1e-7
"""Scores nearer than this to 0 or 1 are taken as this far away: single precision can round to 0 or 1, whose logit is
infinite."""
TINY = 1e-15
"""No calibrated score is nearer to 0 or 1: a sigmoid far out rounds to them."""

Method = Literal["temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "isotonic")


@dataclass(frozen=True)
class Logistic:
    """Platt's map: `sigmoid(slope * logit(score) + bias)`. The temperature is 1 / slope."""

    slope: float
    bias: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and self.slope > 0.0 and math.isfinite(self.bias)):
            raise CalibrationError(
                f"slope={self.slope}, bias={self.bias} is no map that keeps the order of scores: the slope must be "
                "above 0 and both must be finite. Fit it again."
            )

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        safe = min(max(score, EDGE), 1.0 - EDGE)
        found = _sigmoid(self.slope * math.log(safe / (1.0 - safe)) + self.bias)
        return min(max(found, TINY), 1.0 - TINY)


@dataclass(frozen=True)
class Isotonic:
    """Straight lines through knots; what lies outside them gets the value of the nearest one."""

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.values) or len(self.scores) < 2:
            raise CalibrationError("An isotonic map has as many scores as values, two at least. Fit it again.")
        rising = all(a < b for a, b in zip(self.scores, self.scores[1:], strict=False))
        climbing = all(a <= b for a, b in zip(self.values, self.values[1:], strict=False))
        if not (rising and climbing and self.values[0] > 0.0 and self.values[-1] < 1.0):
            raise CalibrationError("An isotonic map rises, and its values lie between 0 and 1. Fit it again.")

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        at = bisect_right(self.scores, score)
        if at == 0:
            return self.values[0]
        if at == len(self.scores):
            return self.values[-1]
        share = (score - self.scores[at - 1]) / (self.scores[at] - self.scores[at - 1])
        # Rounding may not leave the stretch between the two values.
        return min(self.values[at - 1] + share * (self.values[at] - self.values[at - 1]), self.values[at])


Map = Logistic | Isotonic


@dataclass(frozen=True)
class FittedOn:
    """The data that a map was fitted on."""

    solutions: int
    steps: int
    sha256: str
    """Of problems, steps and labels, in their order."""


@dataclass(frozen=True)
class Calibration:
    """A map, and what it belongs to. Made by `evaluate.calibrate`, used by `surefoot.load(calibration=...)`."""

    map: Map
    model: str
    fingerprint: str | None
    """Of the model; None when it was fitted on ready-made scores, whose model is not known."""
    fitted_on: FittedOn
    any_model: bool = False
    """Whether it may be used with any model. Not written into the file: whoever wants it says so."""

    @property
    def method(self) -> Method:
        """How it was fitted."""
        return "temperature" if isinstance(self.map, Logistic) else "isotonic"

    @property
    def name(self) -> str:
        """The method and a few digits that change with the map: what `SolutionScore.calibration` shows."""
        digest = sha256(json.dumps(asdict(self.map), sort_keys=True).encode()).hexdigest()
        return f"{self.method}-{digest[:8]}"

    def for_any_model(self) -> Calibration:
        """The same, not refused by a model on which it was not fitted. Its probabilities may then mean nothing."""
        return replace(self, any_model=True)

    def check(self, model: str, fingerprint: str) -> None:
        """Refuses a model on which it was not fitted."""
        if self.any_model or self.fingerprint == fingerprint:
            return
        known = "ready-made scores" if self.fingerprint is None else f"the fingerprint {self.fingerprint[:12]}"
        raise CalibrationError(
            f"This calibration was fitted on {self.model} ({known}), not on {model} as it is loaded here (fingerprint "
            f"{fingerprint[:12]}; type and quantisation count). Fit one with `surefoot calibrate`, or use it all the "
            "same: Calibration.read(path).for_any_model(), --any-calibration."
        )

    def apply(self, result: SolutionScore) -> SolutionScore:
        """The result with calibrated scores, the raw ones beside them."""
        if result.scale != SCALE:
            raise CalibrationError(
                f"The scores of {result.model} are on the scale {result.scale!r}; only a probability can be "
                "calibrated. Load the model without a calibration."
            )
        if result.calibration is not None:
            raise CalibrationError(f"This result is calibrated already, with {result.calibration}.")
        steps = tuple(
            step if step.score is None else replace(step, score=self.map(step.score), raw=step.score)
            for step in result.steps
        )
        return replace(result, steps=steps, calibration=self.name)

    def to_dict(self) -> dict[str, Any]:
        """As the file has it."""
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
        """Writes a JSON file."""
        try:
            Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise CalibrationError(f"The calibration cannot be written to {path}: {error}") from error

    @staticmethod
    def read(path: str | Path) -> Calibration:
        """Reads what `write` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CalibrationError(f"{path} cannot be read as a calibration: {error}") from error
        try:
            return _from_dict(data)
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(
                f"{path} is no calibration: {type(error).__name__}: {error}. Make one with `surefoot calibrate`."
            ) from error
        except CalibrationError as error:
            raise CalibrationError(f"{path}: {error}") from error


def _from_dict(data: dict[str, Any]) -> Calibration:
    if data["format"] != FORMAT:
        raise CalibrationError(f"format {data['format']!r} is not known here, only {FORMAT}. Update surefoot.")
    if data["scale"] != SCALE:
        raise CalibrationError(f"the scale {data['scale']!r} cannot be calibrated, only {SCALE}.")
    if data["method"] not in METHODS:
        raise CalibrationError(f"the method {data['method']!r} is not known. Known are: {', '.join(METHODS)}.")
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
