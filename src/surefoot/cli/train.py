"""`surefoot train`: trains a process reward model.

Running the same command again resumes the run. The model is never trained on evaluation data: questions of the held-out
files are removed from the training files, compared by their letters and digits.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.config_flags import command_class, with_flags
from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.options import Quiet, Verbose, examples
from surefoot.cli.train_options import (
    SCHEMA,
    BatchOptions,
    DataOptions,
    ModelOptions,
    OptimizerOptions,
    OutputOptions,
    RunOptions,
)
from surefoot.data.records import split_name
from surefoot.errors import OptionError

if TYPE_CHECKING:
    from surefoot.train.example import Example
    from surefoot.train.model import Trainee
    from surefoot.train.settings import Settings

logger = logging.getLogger("surefoot")

CONFIGURATION = "Configuration"
HEADING = """Options of surefoot train. Use this file with: surefoot train --config FILE
Flags on the command line override it. Relative paths start in the working directory."""

app = typer.Typer(add_completion=False)


@app.command(
    cls=command_class(SCHEMA),
    epilog=examples(
        "surefoot train --base SmolLM2-135M --data labelled.jsonl --out my-prm",
        "surefoot train --base my-prm --data a.jsonl=2 b.jsonl --out better",
        "surefoot train --print-config > train.toml",
        "surefoot train --config train.toml --log-to tensorboard",
        "surefoot score solutions.jsonl --model my-prm",
    ),
)
@with_flags(SCHEMA, "flags")
def train(
    *,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with options; flags override it.", rich_help_panel=CONFIGURATION),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print a configuration file with all options, and exit.",
            rich_help_panel=CONFIGURATION,
        ),
    ] = False,
    flags: dict[str, Any],
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Train a process reward model: a decoder with a two-class head that scores every step. --data, --base and --out
    are required, here or in the configuration file, which has many more options. The format of a file is detected from
    its rows (see docs/training.md). Run the same command again to resume a paused run."""
    in_file = {} if config is None else SCHEMA.read(config)
    if "epochs" in flags and "steps" not in flags:
        in_file.pop("steps", None)  # or the flag would have no effect
    values = in_file | flags
    if print_config:
        print(SCHEMA.write(values, HEADING), end="")
        return DONE
    try:
        return _train(values, progress=not quiet)
    except OptionError as error:
        if config is None:
            raise
        raise SCHEMA.name_in_file(error, config, in_file.keys() - flags.keys()) from error


def _train(values: Mapping[str, Any], *, progress: bool) -> int:
    from surefoot.engine.hardware import choose_device
    from surefoot.engine.heap import keep_freed_blocks
    from surefoot.engine.threads import limit_threads
    from surefoot.train.loop import train
    from surefoot.train.settings import Sitting

    data: DataOptions = SCHEMA.build("data", values)
    model: ModelOptions = SCHEMA.build("model", values)
    output: OutputOptions = SCHEMA.build("output", values)
    run: RunOptions = SCHEMA.build("run", values)
    if run.threads is not None:
        import torch

        torch.set_num_threads(run.threads)
    else:
        limit_threads()
    keep_freed_blocks()
    sources = [parse_source(text) for text in data.data]
    _check_names(data, [split_name(path) for path, _ in sources])
    settings = _settings(values, data, {split_name(path): weight for path, weight in sources})
    sitting = Sitting(
        minutes=run.minutes,
        steps=run.pause_steps,
        last_step=run.last_step,
        evaluate_steps=run.evaluate_steps,
        evaluate_minutes=run.evaluate_minutes,
        save_steps=run.save_steps,
        save_minutes=run.save_minutes,
        keep=run.keep_checkpoints,
        progress=progress,
        export=output.export,
        dtype=output.dtype,
        log_to=run.log_to or (),
    )
    examples, validation, held_out = read_data(data, settings.seed, [path for path, _ in sources])
    trainee = build_trainee(model, examples, settings.seed, str(choose_device(run.device)))
    result = train(trainee, examples, output.out, settings, sitting, held_out=held_out, validation=validation)
    if not result.finished:
        print(f"Paused at step {result.step} of {result.steps}. Run the same command again to resume.")
        return INCOMPLETE
    print(f"Trained {result.step} steps. Load it with surefoot.load({str(result.folder)!r}).")
    if result.quality is not None:
        print("  ".join(_shown(name, value) for name, value in result.quality.to_dict().items() if value is not None))
    return DONE


def _settings(values: Mapping[str, Any], data: DataOptions, weights: dict[str, float]) -> Settings:
    from surefoot.train.batch import Mixture, Shape
    from surefoot.train.settings import Settings

    optimizer: OptimizerOptions = SCHEMA.build("optimizer", values)
    batches: BatchOptions = SCHEMA.build("batches", values)
    return Settings(
        **asdict(optimizer),
        max_tokens=batches.max_tokens,
        share=data.share,
        shape=Shape(batches.batch_tokens, batches.multiple, batches.fixed_rows),
        mixture=Mixture(weights, data.wrong_share, data.most_repeats),
    )


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
        raise OptionError(f"`data` {text}: the weight must be above 0 and finite.")
    return Path(path), number


def build_trainee(model: ModelOptions, examples: Sequence[Example], seed: int, device: str = "cpu") -> Trainee:
    """Prepare the base. The training examples determine which tokens and units are kept."""
    from surefoot.train.model import average, make_trainee

    trainee = make_trainee(
        model.base,
        layers=model.layers,
        family=model.family,
        vocabulary=None if model.vocabulary is None else (model.vocabulary, _texts(examples)),
        units=None if model.units is None else (model.units, _solutions(examples, seed)),
        seed=seed,
        device=device,
    )
    if model.average_with:
        average(
            trainee,
            [make_trainee(other, family=model.family, seed=seed, device=device) for other in model.average_with],
        )
    return trainee


def _texts(examples: Sequence[Example]) -> list[str]:
    """All distinct questions and steps."""
    return sorted({text for example in examples for text in (example.question, *example.steps)})


def _solutions(examples: Sequence[Example], seed: int, count: int = 100) -> list[str]:
    """Some correct solutions, each with its question, as plain text."""
    correct = [example for example in examples if example.first_error == -1]
    some = random.Random(seed).sample(correct, min(count, len(correct)))
    return ["\n".join((example.question, *example.steps)) for example in some]


def _check_names(options: DataOptions, names: list[str]) -> None:
    """Checks that file names, without folder and extension, are unique, and the options of validation."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"Several files of `data` are called {', '.join(twice)}. Rename them so that the names are unique."
        )
    if not 0 <= options.validation < 1:
        raise OptionError(f"validation={options.validation} must be at least 0 and below 1.")
    chosen = options.validation_from or []
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise OptionError(f"`validation_from` {', '.join(unknown)}: the names in `data` are {', '.join(names)}.")
    for name, given in (("validation_from", chosen), ("validation_most", options.validation_most)):
        if given and not options.validation:
            raise OptionError(f"`{name}` needs `validation` with the share of the questions, such as 0.1.")


def read_data(
    options: DataOptions, seed: int, paths: Sequence[Path]
) -> tuple[list[Example], list[Example], list[Example]]:
    """Read the training, validation and held-out examples."""
    from surefoot.train.example import balanced_part, set_aside
    from surefoot.train.readers import Reading, read_examples, read_questions, without_questions

    keep = set().union(*map(read_questions, options.keep)) if options.keep else None
    reading = Reading(variants=options.variants, seed=seed, keep=keep, join=options.join)
    measured = replace(reading, join=0.0)
    held_out = [example for path in options.held_out or () for example in read_examples(path, measured)]
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
        raise OptionError(f"validation={options.validation} sets no example aside. Increase it or omit it.")
    if options.validation_most is not None:
        validation = balanced_part(validation, options.validation_most, seed)
    return examples, validation, held_out
