"""How a model is named, loaded and judged from the command line: the same options for every command.

The rule: an option that a command takes reaches `surefoot.load`.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from surefoot.core.calibration import Calibration
from surefoot.families.mini import NAME

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.scoring.score_cache import ScoreCache

MODEL = f"folder or hub id of a PRM, or {NAME}, the small one that comes with Surefoot"
THRESHOLD = "a step is right above it (0.5; 0 for a model whose scores are no probabilities)"


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """`--model`, which is the embedded model unless said, and how it is loaded."""
    parser.add_argument("--model", default=NAME, help=f"{MODEL} ({NAME})")
    add_loading_options(parser)


def add_loading_options(parser: argparse.ArgumentParser) -> None:
    """How a model is loaded, whichever it is."""
    parser.add_argument("--revision", help="branch, tag or commit on the hub")
    parser.add_argument("--family", metavar="NAME", help="how the model is asked, where its name does not tell")
    parser.add_argument(
        "--family-option",
        action="append",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        help="change an option of it",
    )
    parser.add_argument(
        "--base", metavar="MODEL", help="the model that LoRA weights belong to, if not the one they name"
    )
    parser.add_argument("--quantize", choices=("nf4", "int8"), help="linear layers in 4 bits, or in 8 (CPU only)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--attention", default="auto", help="auto, flex, flash_attention_2, sdpa or eager")
    parser.add_argument("--compile", action="store_true", help="compile the forward pass, for long jobs")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="lower the limit on a prompt's length")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is loaded")


def threshold(text: str) -> float:
    """The type of `--threshold`. No score is above NaN, nor at or below it: every step would be right."""
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError("give a finite number")
    return number


def add_calibration_options(parser: argparse.ArgumentParser) -> None:
    """Which calibration the scores get."""
    parser.add_argument("--calibration", metavar="FILE", help="made by `surefoot calibrate`, applied to every score")
    parser.add_argument(
        "--any-calibration", action="store_true", help="also one that was fitted on another model; for experiments"
    )


def loading_options(options: argparse.Namespace) -> dict[str, Any]:
    """What was said of the loading, as options of `surefoot.load`."""
    return {
        "revision": options.revision,
        "family": options.family,
        "family_options": dict(options.family_option) or None,
        "base": options.base,
        "quantize": options.quantize,
        "dtype": options.dtype,
        "device": options.device,
        "attention": options.attention,
        "compile": True if options.compile else "auto",
        "max_tokens": options.max_tokens,
        "calibration": _calibration(options),
    }


def load_model(options: argparse.Namespace, cache: ScoreCache | None = None) -> StepScorer:
    """The model that the command names."""
    from surefoot.scoring.loading import load

    return load(options.model, cache=cache, **loading_options(options))


def _calibration(options: argparse.Namespace) -> Calibration | None:
    # Commands that compare raw scores have no such option.
    if (path := getattr(options, "calibration", None)) is None:
        return None
    found = Calibration.read(path)
    return found.for_any_model() if options.any_calibration else found


def _option(text: str) -> tuple[str, Any]:
    """`name=value`; the value is JSON where it can be read as such, else text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
