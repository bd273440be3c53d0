"""`surefoot train`: trains a process reward model.

Running the same command again resumes the run. The model is never trained on evaluation data: questions of the held-out
files are removed from the training files, compared by their letters and digits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import SeveralValues, with_groups
from surefoot.cli.options import OUTPUT, Quiet, Verbose, examples
from surefoot.data.records import split_name
from surefoot.errors import OptionError

if TYPE_CHECKING:
    from surefoot.train.example import Example

logger = logging.getLogger("surefoot")

_data_option = partial(typer.Option, rich_help_panel="Data")
_model_option = partial(typer.Option, rich_help_panel="Model")
_output_option = partial(typer.Option, rich_help_panel=OUTPUT)
_optimizer_option = partial(typer.Option, rich_help_panel="Optimizer")
_batch_option = partial(typer.Option, rich_help_panel="Batches")
_run_option = partial(typer.Option, rich_help_panel="Run")


@dataclass(frozen=True)
class DataOptions:
    """What to train on and what to measure on."""

    data: Annotated[
        list[str],
        _data_option(
            metavar="FILE[=WEIGHT]...",
            help="Training files or folders. With weight 2, each row is drawn twice per epoch.",
        ),
    ]
    held_out: Annotated[
        list[str] | None,
        _data_option(metavar="FILE...", help="Evaluation files. Their questions are removed from the training data."),
    ] = None
    keep: Annotated[
        list[str] | None,
        _data_option(metavar="FILE...", help="Files with questions whose example solutions may be trained on."),
    ] = None
    validation: Annotated[
        float,
        _data_option(
            metavar="SHARE", help="Fraction of the training questions to select the best weights and the threshold on."
        ),
    ] = 0.0
    validation_from: Annotated[
        list[str] | None, _data_option(metavar="NAME...", help="Validate only on these files (name without extension).")
    ] = None
    variants: Annotated[int, _data_option(metavar="N", help="Examples per GSM8K row.")] = 4
    wrong_share: Annotated[
        float | None, _data_option(metavar="SHARE", help="Target fraction of incorrect solutions in every file.")
    ] = None
    most_repeats: Annotated[
        int, _data_option(metavar="N", help="Draw no row more often than this to reach --wrong-share.")
    ] = 4
    share: Annotated[
        bool, _data_option("--share", help="Merge the solutions of a question, as many correct as incorrect ones.")
    ] = False


@dataclass(frozen=True)
class ModelOptions:
    """What the trained model is made of."""

    base: Annotated[str, _model_option(metavar="DIR", help="Folder of a decoder, or of a PRM to train further.")]
    family: Annotated[
        Literal["qwen", "mini"] | None, _model_option(help="Prompt format.", show_default="detected from the base")
    ] = None
    layers: Annotated[int | None, _model_option(metavar="N", help="Keep the first N layers of the base.")] = None
    vocabulary: Annotated[
        int | None, _model_option(metavar="N", help="Keep the N most frequent tokens and those that the data uses.")
    ] = None


@dataclass(frozen=True)
class OptimizationOptions:
    """Fields of `surefoot.train.settings.Settings`, with the same defaults."""

    steps: Annotated[int | None, _optimizer_option(metavar="N", help="Optimizer steps, instead of --epochs.")] = None
    epochs: Annotated[float, _optimizer_option(metavar="E", help="Passes over the data.")] = 1.0
    learning_rate: Annotated[float, _optimizer_option(metavar="R", help="Peak learning rate.")] = 1e-4
    head_learning_rate: Annotated[
        float | None,
        _optimizer_option(metavar="R", help="Peak learning rate of the head.", show_default="5 times --learning-rate"),
    ] = None
    weight_decay: Annotated[float, _optimizer_option(metavar="D", help="Weight decay of matrices.")] = 0.01
    warmup: Annotated[float, _optimizer_option(metavar="SHARE", help="Fraction of the steps to warm up in.")] = 0.05
    decay: Annotated[
        Literal["cosine", "linear", "constant"],
        _optimizer_option(metavar="CURVE", help="Learning rate after the warm-up: cosine, linear or constant."),
    ] = "cosine"
    clip: Annotated[float, _optimizer_option(metavar="NORM", help="Maximum gradient norm.")] = 1.0
    accumulate: Annotated[int, _optimizer_option(metavar="N", help="Batches per optimizer step.")] = 1
    wrong_weight: Annotated[
        float, _optimizer_option(metavar="W", help="Weight of incorrect steps in the loss, relative to correct ones.")
    ] = 1.0
    freeze_embeddings: Annotated[
        bool, _optimizer_option("--freeze-embeddings", help="Freeze all embeddings except those of added tokens.")
    ] = False
    freeze_layers: Annotated[int, _optimizer_option(metavar="N", help="Freeze the lowest N layers.")] = 0
    ema: Annotated[
        float,
        _optimizer_option(metavar="D", help="Export a moving average of the weights with this decay, such as 0.999."),
    ] = 0.0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        _optimizer_option(metavar="DTYPE", help="Compute in float32 or bfloat16, or choose (auto)."),
    ] = "auto"
    gradient_checkpointing: Annotated[
        bool, _optimizer_option("--gradient-checkpointing", help="Trade speed for memory.")
    ] = False
    seed: Annotated[int, _optimizer_option(metavar="N", help="Seed of the run.")] = 0
    max_tokens: Annotated[int, _batch_option(metavar="N", help="Do not train on steps that end after N tokens.")] = 1024


@dataclass(frozen=True)
class BatchOptions:
    """Fields of `surefoot.train.batch.Shape`."""

    batch_tokens: Annotated[int, _batch_option(min=1, metavar="N", help="Positions per batch, including padding.")] = (
        4096
    )
    multiple: Annotated[int, _batch_option(metavar="N", help="Pad lengths to multiples of N.")] = 32
    fixed_rows: Annotated[
        bool, _batch_option("--fixed-rows", help="Fill up batches, so that the length alone determines the shape.")
    ] = False


@dataclass(frozen=True)
class SittingOptions:
    """Fields of `surefoot.train.settings.Sitting`, with the same defaults."""

    minutes: Annotated[float | None, _run_option(metavar="M", help="Pause after M minutes.")] = None
    evaluate_minutes: Annotated[float, _run_option(metavar="M", help="Evaluate every M minutes.")] = 10.0
    evaluate_steps: Annotated[int | None, _run_option(metavar="N", help="Evaluate every N steps instead.")] = None
    save_minutes: Annotated[float, _run_option(metavar="M", help="Save a snapshot every M minutes.")] = 10.0
    save_steps: Annotated[int | None, _run_option(metavar="N", help="Save a snapshot every N steps instead.")] = None
    keep_checkpoints: Annotated[int, _run_option(metavar="N", help="Snapshots to keep.")] = 2
    export: Annotated[Literal["best", "last"], _output_option(help="Weights to export.")] = "best"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16", "int8", "int4"],
        _output_option(
            metavar="DTYPE",
            help="Store the model in float32, bfloat16, float16, int8 or int4. The last two load as float32.",
        ),
    ] = "float32"


app = typer.Typer(add_completion=False)


@app.command(
    cls=SeveralValues,
    epilog=examples(
        "surefoot train --base SmolLM2-135M --data labelled.jsonl --out my-prm",
        "surefoot train --base my-prm --data a.jsonl=2 b.jsonl --out better",
        "surefoot score solutions.jsonl --model my-prm",
    ),
)
@with_groups
def train(
    *,
    data_options: DataOptions,
    model_options: ModelOptions,
    out: Annotated[str, _output_option(metavar="DIR", help="Folder for model, log and checkpoints.")],
    optimization: OptimizationOptions,
    batches: BatchOptions,
    sitting: SittingOptions,
    device: Annotated[str, _run_option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    threads: Annotated[
        int | None, _run_option(min=1, metavar="N", help="Use N CPU threads.", show_default="one per usable core")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Train a process reward model: a decoder with a two-class head that scores every step. The format of a file is
    detected from its rows (see docs/training.md). Run the same command again to resume a paused run."""
    from surefoot.engine.hardware import choose_device
    from surefoot.engine.threads import limit_threads
    from surefoot.train.batch import Mixture, Shape
    from surefoot.train.loop import train
    from surefoot.train.model import make_trainee
    from surefoot.train.settings import Settings, Sitting

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    else:
        limit_threads()
    sources = [parse_source(text) for text in data_options.data]
    _check_names(data_options, [split_name(path) for path, _ in sources])
    weights = {split_name(path): weight for path, weight in sources}
    settings = Settings(
        **asdict(optimization),
        share=data_options.share,
        shape=Shape(batches.batch_tokens, batches.multiple, batches.fixed_rows),
        mixture=Mixture(weights, data_options.wrong_share, data_options.most_repeats),
    )
    chosen = asdict(sitting)
    plan = Sitting(keep=chosen.pop("keep_checkpoints"), progress=not quiet, **chosen)
    examples, validation, held_out = _read(data_options, optimization.seed, [path for path, _ in sources])
    trainee = make_trainee(
        model_options.base,
        layers=model_options.layers,
        family=model_options.family,
        vocabulary=None if model_options.vocabulary is None else (model_options.vocabulary, _texts(examples)),
        seed=optimization.seed,
        device=str(choose_device(device)),
    )
    result = train(trainee, examples, out, settings, plan, held_out=held_out, validation=validation)
    if not result.finished:
        print(f"Paused at step {result.step} of {result.steps}. Run the same command again to resume.")
        return INCOMPLETE
    print(f"Trained {result.step} steps. Load it with surefoot.load({str(result.folder)!r}).")
    if result.quality is not None:
        print("  ".join(_shown(name, value) for name, value in result.quality.to_dict().items() if value is not None))
    return DONE


def _shown(name: str, value: Any) -> str:
    return f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"


def parse_source(text: str) -> tuple[Path, float]:
    path, equals, weight = text.rpartition("=")
    if not equals:
        return Path(text), 1.0
    try:
        number = float(weight)
    except ValueError:
        return Path(text), 1.0
    if not 0 < number < math.inf:
        raise OptionError(f"--data {text}: the weight must be above 0 and finite.")
    return Path(path), number


def _texts(examples: list[Example]) -> list[str]:
    """All distinct questions and steps."""
    return sorted({text for example in examples for text in (example.question, *example.steps)})


def _check_names(options: DataOptions, names: list[str]) -> None:
    """Checks that file names, without folder and extension, are unique."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"Several files of --data are called {', '.join(twice)}. Rename them so that the names are unique."
        )
    chosen = options.validation_from or []
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise OptionError(f"--validation-from {' '.join(unknown)}: the names in --data are {', '.join(names)}.")
    if chosen and not options.validation:
        raise OptionError("--validation-from needs --validation with the share of the questions, such as 0.1.")


def _read(options: DataOptions, seed: int, paths: Sequence[Path]) -> tuple[list[Example], list[Example], list[Example]]:
    """Reads the training, validation and held-out examples."""
    from surefoot.train.example import set_aside
    from surefoot.train.readers import Reading, read_examples, read_questions, without_questions

    keep = set().union(*map(read_questions, options.keep)) if options.keep else None
    reading = Reading(variants=options.variants, seed=seed, keep=keep)
    held_out = [example for path in options.held_out or () for example in read_examples(path, reading)]
    forbidden = set().union(*map(read_questions, options.held_out)) if options.held_out else set()
    examples: list[Example] = []
    for path in paths:
        found = read_examples(path, reading)
        clean = without_questions(found, forbidden)
        if len(clean) < len(found):
            logger.warning(
                "%s: skipped %d examples that share a question with the held-out files.", path, len(found) - len(clean)
            )
        wrong = sum(example.first_error >= 0 for example in clean)
        logger.info("%s: %d examples, %d of them with an error.", path, len(clean), wrong)
        # A folder of files is one source, with one weight.
        examples += [replace(example, source=split_name(path)) for example in clean]
    examples, validation = set_aside(examples, options.validation, seed, options.validation_from or [])
    if options.validation and not validation:
        raise OptionError(f"--validation {options.validation} sets no example aside. Increase it or omit it.")
    return examples, validation, held_out
