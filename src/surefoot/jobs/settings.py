"""What a bulk job computes. Two runs with equal settings, inputs and models write the same files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.data.columns import Columns
from surefoot.errors import OptionError

Format = Literal["parquet", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)

REWARD = "reward"
"""Ranks solutions by their reward."""

RUN_OPTIONS = (
    "device",
    "attention",
    "threads",
    "api_key",
    "timeout",
    "patience",
    "strict",
    "quantize_fallback",
    "quantize_cache",
)
"""Options of `surefoot.load` that may change when a job is continued."""


@dataclass(frozen=True)
class Selection:
    """Which scored rows the parts contain. It can change without scoring anything again."""

    filter: str | None = None
    best_of: int | None = None
    """How many solutions per question to keep."""
    rank_by: str | None = None
    """An aggregation, or `reward`; None for what the makers of the model recommend."""

    def __post_init__(self) -> None:
        if self.best_of is not None and self.best_of < 1:
            raise OptionError(f"best_of={self.best_of} keeps nothing. Pass a number above 0.")
        if self.rank_by is not None and self.rank_by != REWARD and self.rank_by not in AGGREGATIONS:
            choices = ", ".join([*AGGREGATIONS, REWARD])
            raise OptionError(f"rank_by={self.rank_by!r} is unknown. Choose one of: {choices}.")
        if self.rank_by is not None and self.best_of is None:
            raise OptionError("rank_by=... has no effect without best_of=...")

    def __bool__(self) -> bool:
        return self != Selection()


@dataclass(frozen=True)
class JobSettings:
    """Everything that decides what a job writes, apart from its input and its model."""

    columns: Columns = field(default_factory=Columns)
    options: ReadOptions = DEFAULT_OPTIONS
    load: Mapping[str, Any] = field(default_factory=dict)
    """Options of `surefoot.load` that change scores."""
    recipe: str | None = None
    group_by: str | None = None
    sample: float | None = None
    seed: int = 0
    unit_rows: int = 1024
    format: Format = "parquet"
    prefix: str = "prm_"
    step_text: bool = False
    selection: Selection = field(default_factory=Selection)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(f"format={self.format!r} is unknown. Choose one of: {', '.join(FORMATS)}.")
        if self.unit_rows < 1:
            raise OptionError(f"unit_rows={self.unit_rows} is empty. Pass a number above 0.")
        if self.sample is not None and not (math.isfinite(self.sample) and 0 < self.sample <= 1):
            raise OptionError(f"sample={self.sample} is not a fraction. Pass a number above 0 and at most 1.")
        if self.selection.rank_by == REWARD and self.recipe is None:
            raise OptionError("rank_by='reward' needs a reward: pass reward=...")

    @property
    def key(self) -> str:
        """The column whose rows stay together."""
        return self.group_by or self.columns.question

    @property
    def direct(self) -> bool:
        """Whether the parts are the scored rows themselves, because nothing is left out or converted."""
        return self.format == "parquet" and not self.selection

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-compatible data."""
        return asdict(self) | {"load": {name: _plain(value) for name, value in sorted(self.load.items())}}

    def sampler(self) -> Callable[[str], bool]:
        """Return a function that tells whether a question belongs to the sample."""
        if self.sample is None:
            return lambda key: True
        limit = int(self.sample * 2**64)
        salt = f"{self.seed} ".encode()
        return lambda key: int.from_bytes(hashlib.blake2b(salt + key.encode(), digest_size=8).digest(), "big") < limit


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return repr(value)


def scoring_options(load: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `surefoot.load` that change scores."""
    return {name: value for name, value in load.items() if name not in RUN_OPTIONS}
