"""The options of loading a model, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surefoot.core.calibration import Calibration
from surefoot.core.options import PRECISIONS, QUANTIZATIONS, Precision, Quantization
from surefoot.errors import OptionError

if TYPE_CHECKING:
    import torch

    from surefoot.families import Family
    from surefoot.scoring.score_cache import ScoreCache

DEFAULT_MODEL = "mini"
VLLM_OPTIONS = ("strict", "max_tokens", "calibration", "cache", "name", "revision", "family")
"""Those of `LoadOptions` that a model on a vLLM server has, too."""
SERVER_OPTIONS = ("served_name", "api_key", "timeout", "patience")
"""Options of `surefoot.load` for a server."""

CalibrationLike = str | Path | Calibration
"""A file of `surefoot calibrate`, or its content."""


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded into this process. For the meaning of each option see `load`."""

    precision: Precision = "exact"
    quantize: Quantization | None = None
    quantize_fallback: bool = False
    quantize_cache: bool | str | Path = False
    dtype: str | torch.dtype = "auto"
    device: str | torch.device = "auto"
    attention: str = "auto"
    compile: bool = False
    threads: int | Literal["auto"] = "auto"
    revision: str | None = None
    family: str | Family | None = None
    family_options: Mapping[str, Any] | None = None
    base: str | Path | None = None
    strict: bool = False
    max_tokens: int | None = None
    calibration: CalibrationLike | Sequence[CalibrationLike | None] | None = None
    cache: str | Path | ScoreCache | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise OptionError(f"precision={self.precision!r} is not supported. Choose one of: {', '.join(PRECISIONS)}.")
        if self.precision != "exact" and (self.quantize is not None or str(self.dtype) != "auto"):
            raise OptionError(
                f'precision="{self.precision}" chooses the number format. Omit it, or omit `dtype` and `quantize`.'
            )
        if self.quantize is not None and self.quantize not in QUANTIZATIONS:
            raise OptionError(
                f"quantize={self.quantize!r} is not supported. Choose one of: {', '.join(QUANTIZATIONS)}, or None."
            )
        if self.quantize_cache is not False and self.quantize != "nf4":
            raise OptionError('`quantize_cache` stores 4-bit weights. Add quantize="nf4", or omit it.')
        if self.max_tokens is not None and self.max_tokens < 1:
            raise OptionError(
                f"max_tokens={self.max_tokens} leaves no room. Pass a number above 0, or None for the context."
            )
        if not isinstance(self.compile, bool):
            raise OptionError(f"compile={self.compile!r} is not supported. Choose True or False.")
        if self.threads != "auto" and self.threads < 1:
            raise OptionError(f"threads={self.threads!r} is not possible. Pass a number above 0, or 'auto'.")
        if self.compile and self.quantize == "int8":
            raise OptionError('compile=True and quantize="int8" exclude each other: 8-bit kernels cannot be compiled.')

    def changed(self, *except_for: str) -> list[str]:
        """The names of the options that differ from their defaults."""
        return [
            field.name
            for field in fields(self)
            if field.name not in except_for and getattr(self, field.name) != field.default
        ]
