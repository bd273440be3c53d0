"""What the plain data of every benchmark begin with.

The rule: a reader that knows one benchmark's `to_dict` finds the common things of another under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.core.result import Scale
    from surefoot.evaluate.reliability import Reliability


def envelope(
    benchmark: str,
    model: str,
    *,
    scale: Scale,
    calibration: str | None,
    solutions: int,
    unscored: int,
    notes: Sequence[str],
    threshold: float | None = None,
    published: object | None = None,
    reliability: Reliability | None = None,
) -> dict[str, Any]:
    """The common part. `unscored` counts solutions; what does not apply to a benchmark is None."""
    return {
        "benchmark": benchmark,
        "model": model,
        "scale": scale,
        "calibration": calibration,
        "threshold": threshold,
        "solutions": solutions,
        "unscored": unscored,
        "reliability": None if reliability is None else reliability.to_dict(),
        "published": asdict(published) if is_dataclass(published) and not isinstance(published, type) else None,
        "notes": list(notes),
    }
