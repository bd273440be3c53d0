"""Options that several commands share.

Every option that describes a model reaches `surefoot.load`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surefoot.core.options import ReadOptions, SplitRule, Thinking
from surefoot.engine.threads import limit_threads
from surefoot.errors import OptionError
from surefoot.scoring.combining import Combine, MissingMember
from surefoot.scoring.load_options import DEFAULT_MODEL
from surefoot.scoring.scorer_like import as_scorer, computes_here

if TYPE_CHECKING:
    from surefoot.core.calibration import Calibration
    from surefoot.core.protocols import StepScorer
    from surefoot.scoring.score_cache import ScoreCache

MODEL, COMPUTE, READING, OUTPUT = "Model", "Computation", "Reading", "Output"
"""Titles of option groups in help texts."""

OWN_MODEL_HELP = "Folder or hub id of a PRM; mini, the model inside the package; or vllm+http://... of a vLLM server."
MODEL_HELP = (
    "Folder or hub id of a PRM; mini, the model inside the package; http://... of a service; or vllm+http://..."
)


def examples(*lines: str) -> str:
    """The end of a help text."""
    return "\n".join(["[bold]Examples[/bold]", "", *(line.replace("[", "\\[") for line in lines)])


def finite(number: float | None) -> float | None:
    """Rejects NaN and infinity. No score is above or below NaN, so every step would count as correct."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter("give a finite number")
    return number


def set_verbosity(verbose: bool) -> bool:
    """Shows or hides what the package logs about its work."""
    logging.getLogger("surefoot").setLevel(logging.INFO if verbose else logging.NOTSET)
    return verbose


def complete_model(incomplete: str) -> list[str]:
    """The models that load by name, for the shell."""
    from surefoot.families import all_models

    return [entry.id for entry in all_models() if entry.id.startswith(incomplete)]


def complete_family(incomplete: str) -> list[str]:
    """The families, for the shell."""
    from surefoot.families import all_families

    return [name for name in all_families() if name.startswith(incomplete)]


def complete_critic(incomplete: str) -> list[str]:
    """The critics, for the shell."""
    from surefoot.critics.registry import all_critics

    return [name for name in all_critics() if name.startswith(incomplete)]


def _pair(text: str) -> str:
    if "=" not in text:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return text


def _pairs(texts: list[str] | None) -> list[str] | None:
    return texts and [_pair(text) for text in texts]


def _models(default: str | bool) -> Any:
    return typer.Option(
        "--model",
        metavar="MODEL",
        help=f"{MODEL_HELP} Repeat it for an ensemble.",
        show_default=default,
        autocompletion=complete_model,
        rich_help_panel=MODEL,
    )


Models = Annotated[list[str] | None, _models(DEFAULT_MODEL)]
OptionalModels = Annotated[list[str] | None, _models(False)]
Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="T",
        help="Scores above this count as correct.",
        show_default="0.5; 0 for margins and log-ratios",
        callback=finite,
        rich_help_panel=READING,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Report no progress.", rich_help_panel=OUTPUT)]
Verbose = Annotated[
    bool,
    typer.Option(
        "-v", "--verbose", help="Log what is loaded and read.", callback=set_verbosity, rich_help_panel=OUTPUT
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="The model's published name, if its folder has another.", rich_help_panel=MODEL
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Use N CPU threads.", show_default="one per usable core", rich_help_panel=COMPUTE
    ),
]


@dataclass(frozen=True)
class LoadingOptions:
    """How a model is loaded."""

    revision: Annotated[
        str | None, typer.Option(metavar="REV", help="Branch, tag or commit on the hub.", rich_help_panel=MODEL)
    ] = None
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How the model is prompted and read, if it cannot be inferred from its name.",
            autocompletion=complete_family,
            rich_help_panel=MODEL,
        ),
    ] = None
    family_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Change an option of the family. Repeat for several.",
            callback=_pairs,
            rich_help_panel=MODEL,
        ),
    ] = None
    critic: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use the model as a critic, which writes an analysis before it judges: see surefoot models --critics.",
            autocompletion=complete_critic,
            rich_help_panel=MODEL,
        ),
    ] = None
    critic_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Change an option of the critic, such as votes=4. Repeat for several.",
            callback=_pairs,
            rich_help_panel=MODEL,
        ),
    ] = None
    critic_generator: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where the critic runs: the address of an OpenAI-compatible server.",
            show_default="in this process",
            rich_help_panel=MODEL,
        ),
    ] = None
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Base model of LoRA weights, if not the one they name.", rich_help_panel=MODEL
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Folder or hub id with the tokenizer and config.json of the model on a vLLM server.",
            rich_help_panel=MODEL,
        ),
    ] = None
    served_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Which model to use, if the server of --model has several.", rich_help_panel=MODEL
        ),
    ] = None
    precision: Annotated[
        Literal["exact", "auto", "fast"],
        typer.Option(
            metavar="KIND",
            help="Exact scores, or faster ones: auto allows bfloat16 on a CPU, fast also 8-bit weights.",
            rich_help_panel=COMPUTE,
        ),
    ] = "exact"
    quantize: Annotated[
        Literal["nf4", "int8"] | None,
        typer.Option(
            metavar="FORMAT",
            help="Store linear layers in 4 bits (nf4), or in 8 bits (int8, CPU only).",
            rich_help_panel=COMPUTE,
        ),
    ] = None
    quantize_cache: Annotated[
        bool,
        typer.Option(
            "--quantize-cache",
            help="Store nf4 weights on disk, so that a CPU quantizes a model only once.",
            rich_help_panel=COMPUTE,
        ),
    ] = False
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        typer.Option(
            metavar="DTYPE", help="Number format: auto, float32, bfloat16 or float16.", rich_help_panel=COMPUTE
        ),
    ] = "auto"
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=COMPUTE)
    ] = "auto"
    attention: Annotated[
        Literal["auto", "flex", "flash_attention_2", "sdpa", "eager"],
        typer.Option(
            metavar="KERNEL",
            help="Attention kernel: auto, flex, flash_attention_2, sdpa or eager.",
            rich_help_panel=COMPUTE,
        ),
    ] = "auto"
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the forward pass, for long jobs.", rich_help_panel=COMPUTE)
    ] = False
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Fail if the model's tokenizer files disagree with the prompt of its family.",
            rich_help_panel=MODEL,
        ),
    ] = False
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Longest prompt in tokens.",
            show_default="the model's context",
            rich_help_panel=COMPUTE,
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, as arguments of `surefoot.load`."""
        arguments = {
            "revision": self.revision,
            "family": self.family,
            "family_options": dict(map(_name_and_value, self.family_option or ())) or None,
            "critic": self.critic,
            "critic_options": dict(map(_name_and_value, self.critic_option or ())) or None,
            "generator": self.critic_generator,
            "base": self.base,
            "precision": None if self.precision == "exact" else self.precision,
            "quantize": self.quantize,
            "quantize_cache": True if self.quantize_cache else None,
            "dtype": None if self.dtype == "auto" else self.dtype,
            "device": None if self.device == "auto" else self.device,
            "attention": None if self.attention == "auto" else self.attention,
            "compile": True if self.compile else None,
            "strict": True if self.strict else None,
            "max_tokens": self.max_tokens,
            "tokenizer": self.tokenizer,
            "served_name": self.served_name,
        }
        return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True)
class CalibrationOptions:
    """Which calibration is applied to the scores."""

    calibration: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Apply a calibration of surefoot calibrate, or that of mini with --calibration mini. For an ensemble, "
            "repeat it: one per model, in order.",
            rich_help_panel=READING,
        ),
    ] = None
    any_calibration: Annotated[
        bool,
        typer.Option(
            "--any-calibration",
            help="Accept a calibration that was fitted on another model, for experiments.",
            rich_help_panel=READING,
        ),
    ] = False

    def read(self) -> Calibration | list[Calibration] | None:
        """Reads the file, or several as a list."""
        if not self.calibration:
            return None
        from surefoot.core.calibration import Calibration
        from surefoot.families.mini import locate_calibration

        found = [Calibration.read(locate_calibration(file)) for file in self.calibration]
        found = [each.for_any_model() for each in found] if self.any_calibration else found
        return found[0] if len(found) == 1 else found


@dataclass(frozen=True)
class ReadingOptions:
    """How solutions are read."""

    split: Annotated[
        SplitRule,
        typer.Option(
            metavar="RULE",
            help="How to find the steps of a text: auto, steps, paragraphs or lines.",
            rich_help_panel=READING,
        ),
    ] = "auto"
    no_closing: Annotated[
        bool,
        typer.Option("--no-closing", help="Do not make the final answer a step of its own.", rich_help_panel=READING),
    ] = False
    thinking: Annotated[
        Thinking,
        typer.Option(
            metavar="PART",
            help="What to score of a text with </think>: the response after it (skip), the thinking (only) or all.",
            rich_help_panel=READING,
        ),
    ] = "skip"

    def given(self) -> ReadOptions:
        """The options as scorers take them."""
        return ReadOptions(split=self.split, closing=not self.no_closing, thinking=self.thinking)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is loaded or reached."""

    loading: LoadingOptions
    threads: Threads = None
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with the key for the server of the model, or env for the variable SUREFOOT_API_KEY.",
            rich_help_panel=MODEL,
        ),
    ] = None

    def load(
        self,
        model: str | Sequence[str],
        *,
        calibration: Calibration | Sequence[Calibration] | None = None,
        cache: ScoreCache | None = None,
    ) -> StepScorer:
        """Loads a model, or a list of them as an ensemble."""
        arguments = self.arguments(model) | {"calibration": calibration, "cache": cache}
        if self.threads is not None:
            from surefoot.engine.thread_limit import fix_threads

            fix_threads(self.threads)
        elif computes_here(model):
            limit_threads()
        return as_scorer(model, **{name: value for name, value in arguments.items() if value is not None})

    def arguments(self, model: str | Sequence[str]) -> dict[str, Any]:
        """The arguments of `surefoot.load`."""
        if self.threads is not None and not computes_here(model):
            where = model if isinstance(model, str) else ", ".join(model)
            raise OptionError(f"--threads is for a model in this process, not for one on {where}.")
        key = {} if self.api_key is None else {"api_key": read_key(self.api_key)}
        return self.loading.given() | key


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions:
    """How the scores of several models are combined."""

    combine: Annotated[
        Combine | None,
        typer.Option(
            metavar="RULE",
            help="For an ensemble: mean or min of the models' scores, or calibrated, the mean of calibrated ones.",
            show_default="mean",
            rich_help_panel=MODEL,
        ),
    ] = None
    missing_member: Annotated[
        MissingMember | None,
        typer.Option(
            metavar="HOW",
            help="For an ensemble: if a model gives no score, the step is unscored, or skip combines the others.",
            show_default="unscored",
            rich_help_panel=MODEL,
        ),
    ] = None

    def arguments(self, *choices: Sequence[str] | None) -> dict[str, Any]:
        """The arguments of `surefoot.load` for a list. One of the `choices` of models must be an ensemble."""
        pairs = {"combine": self.combine, "missing": self.missing_member}
        given = {name: value for name, value in pairs.items() if value is not None}
        if given and all(isinstance(each, str) or len(each or ()) < 2 for each in choices):
            raise OptionError("--combine and --missing-member are for an ensemble. Name several models.")
        return given


@dataclass(frozen=True, kw_only=True)
class ScorerOptions(ModelOptions):
    """How one model, or several as an ensemble, are loaded or reached."""

    ensemble: EnsembleOptions

    def arguments(self, model: str | Sequence[str]) -> dict[str, Any]:
        """The arguments of `surefoot.load`."""
        return super().arguments(model) | self.ensemble.arguments(model)


def chosen_models(given: Sequence[str] | None) -> str | list[str]:
    """What `surefoot.load` takes for the values of --model: a name, or a list of several."""
    models = list(given or [DEFAULT_MODEL])
    return models if len(models) > 1 else models[0]


def read_key(where: str) -> str:
    """Reads the key from the file or, for `env`, from the environment."""
    from surefoot.client.api_key import read_key

    return read_key(where)


def _name_and_value(text: str) -> tuple[str, Any]:
    """Reads the value as JSON where it is JSON, else as text."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
