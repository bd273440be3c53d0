"""The command `surefoot train`.

Invariant: running the same command again resumes the run. The model is never trained on evaluation data: questions of
the held-out files are removed from the training files, compared by their letters and digits.
"""

from __future__ import annotations

import argparse
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.data.records import split_name
from surefoot.errors import OptionError

if TYPE_CHECKING:
    from surefoot.train.example import Example

logger = logging.getLogger("surefoot")

ABOUT = (
    "Train a process reward model: a decoder with a two-class head that scores every step. The format of a file is "
    "detected from its rows (see docs/training.md). Run the same command again to resume a paused run."
)
FINISHED, PAUSED = 0, 1


def add_train_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("train", help="train a PRM", description=ABOUT)
    add = parser.add_argument
    add("--base", required=True, metavar="DIR", help="folder of a decoder, or of a PRM to train further")
    add(
        "--data",
        required=True,
        nargs="+",
        metavar="FILE[=WEIGHT]",
        help="training files; with weight 2, each row is drawn twice per epoch",
    )
    add("--out", required=True, metavar="DIR", help="folder for model, log and checkpoints")
    add(
        "--held-out",
        nargs="*",
        default=[],
        metavar="FILE",
        help="evaluation files; their questions are removed from the training data",
    )
    add("--keep", nargs="*", default=[], metavar="FILE", help="questions whose example solutions may be trained on")
    add(
        "--validation",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="fraction of the training questions to set aside for selecting the best weights and the threshold",
    )
    add(
        "--validation-from",
        nargs="*",
        default=[],
        metavar="NAME",
        help="validate only on examples from these files (name without extension)",
    )
    add("--variants", type=int, default=4, metavar="N", help="examples per GSM8K row (default: 4)")
    add("--layers", type=int, metavar="N", help="keep the first N layers of the base")
    add("--family", help="prompt format, qwen or mini (default: detected from the base)")
    add("--vocabulary", type=int, metavar="N", help="keep the N most frequent tokens and those that the data uses")
    add("--steps", type=int, metavar="N", help="optimizer steps, instead of --epochs")
    add("--epochs", type=float, default=1.0, metavar="E", help="passes over the data (default: 1)")
    add("--learning-rate", type=float, default=1e-4, metavar="R", help="peak learning rate (default: 1e-4)")
    add(
        "--head-learning-rate",
        type=float,
        metavar="R",
        help="peak learning rate of the head (default: five times --learning-rate)",
    )
    add("--weight-decay", type=float, default=0.01, metavar="D", help="of matrices (default: 0.01)")
    add("--warmup", type=float, default=0.05, metavar="SHARE", help="fraction of the steps (default: 0.05)")
    add("--decay", choices=("cosine", "linear", "constant"), default="cosine", help="learning rate schedule")
    add("--clip", type=float, default=1.0, metavar="NORM", help="maximum gradient norm (default: 1.0)")
    add(
        "--batch-tokens",
        type=int,
        default=4096,
        metavar="N",
        help="positions per batch, including padding (default: 4096)",
    )
    add("--multiple", type=int, default=32, metavar="N", help="pad lengths to a multiple of this (default: 32)")
    add("--fixed-rows", action="store_true", help="fill up batches, so that the length alone determines the shape")
    add("--accumulate", type=int, default=1, metavar="N", help="batches per optimizer step (default: 1)")
    add(
        "--max-tokens",
        type=int,
        default=1024,
        metavar="N",
        help="do not train on steps that end after this many tokens (default: 1024)",
    )
    add("--wrong-share", type=float, metavar="S", help="target fraction of incorrect solutions in every file")
    add("--share", action="store_true", help="merge the solutions of a question, as many correct as incorrect ones")
    add(
        "--most-repeats",
        type=int,
        default=4,
        metavar="N",
        help="draw no row more often than this to reach --wrong-share (default: 4)",
    )
    add(
        "--wrong-weight",
        type=float,
        default=1.0,
        metavar="W",
        help="weight of incorrect steps in the loss, relative to correct ones (default: 1)",
    )
    add("--freeze-embeddings", action="store_true", help="freeze all embeddings except those of added tokens")
    add("--freeze-layers", type=int, default=0, metavar="N", help="freeze the lowest N layers")
    add(
        "--ema",
        type=float,
        default=0.0,
        metavar="D",
        help="export a moving average of the weights with this decay, for example 0.999",
    )
    add("--precision", choices=("auto", "float32", "bfloat16"), default="auto", help="of the computation")
    add("--gradient-checkpointing", action="store_true", help="trade speed for memory")
    add("--seed", type=int, default=0)
    add("--device", default="auto")
    add("--minutes", type=float, metavar="M", help="pause after this time")
    add("--evaluate-minutes", type=float, default=10.0, metavar="M", help="time between evaluations (default: 10)")
    add("--evaluate-steps", type=int, metavar="N", help="evaluate every N steps instead")
    add("--save-minutes", type=float, default=10.0, metavar="M", help="time between snapshots (default: 10)")
    add("--save-steps", type=int, metavar="N", help="save every N steps instead")
    add("--keep-checkpoints", type=int, default=2, metavar="N", help="snapshots to keep (default: 2)")
    add("--export", choices=("best", "last"), default="best", help="weights to export (default: best)")
    add(
        "--dtype",
        choices=("float32", "bfloat16", "float16", "int8", "int4"),
        default="float32",
        help="data type of the exported weights; int8 and int4 files are small and are loaded as float32",
    )
    add("--quiet", action="store_true", help="hide the progress bar")
    add("-v", "--verbose", action="store_true", help="report what is read and measured")
    parser.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> int:
    """Read the data, train, and print the result. Exit code 1 means that the run is paused."""
    from surefoot.engine.hardware import choose_device
    from surefoot.train.batch import Mixture, Shape
    from surefoot.train.loop import train
    from surefoot.train.model import make_trainee
    from surefoot.train.settings import Settings, Sitting

    sources = [_source(text) for text in options.data]
    _check_names(options, [split_name(path) for path, _ in sources])
    settings = Settings(
        steps=options.steps,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        head_learning_rate=options.head_learning_rate,
        weight_decay=options.weight_decay,
        warmup=options.warmup,
        decay=options.decay,
        clip=options.clip,
        accumulate=options.accumulate,
        max_tokens=options.max_tokens,
        wrong_weight=options.wrong_weight,
        freeze_embeddings=options.freeze_embeddings,
        freeze_layers=options.freeze_layers,
        ema=options.ema,
        precision=options.precision,
        gradient_checkpointing=options.gradient_checkpointing,
        seed=options.seed,
        share=options.share,
        shape=Shape(options.batch_tokens, options.multiple, options.fixed_rows),
        mixture=Mixture(
            {split_name(path): weight for path, weight in sources}, options.wrong_share, options.most_repeats
        ),
    )
    sitting = Sitting(
        minutes=options.minutes,
        evaluate_steps=options.evaluate_steps,
        evaluate_minutes=options.evaluate_minutes,
        save_steps=options.save_steps,
        save_minutes=options.save_minutes,
        keep=options.keep_checkpoints,
        progress=not options.quiet,
        export=options.export,
        dtype=options.dtype,
    )
    examples, validation, held_out = _read(options, [path for path, _ in sources])
    trainee = make_trainee(
        options.base,
        layers=options.layers,
        family=options.family,
        vocabulary=None if options.vocabulary is None else (options.vocabulary, _texts(examples)),
        seed=options.seed,
        device=str(choose_device(options.device)),
    )
    result = train(trainee, examples, options.out, settings, sitting, held_out=held_out, validation=validation)
    if not result.finished:
        print(f"Paused at step {result.step} of {result.steps}. Run the same command again to resume.")
        return PAUSED
    print(f"Trained {result.step} steps. Load it with surefoot.load({str(result.folder)!r}).")
    if result.quality is not None:
        shown = {name: value for name, value in result.quality.to_dict().items() if value is not None}
        print(
            "  ".join(
                f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
                for name, value in shown.items()
            )
        )
    return FINISHED


def _source(text: str) -> tuple[Path, float]:
    path, equals, weight = text.rpartition("=")
    if not equals:
        return Path(text), 1.0
    try:
        number = float(weight)
    except ValueError:
        return Path(text), 1.0
    if not 0 < number < math.inf:
        raise OptionError(f"{text}: the weight must be above 0 and finite.")
    return Path(path), number


def _texts(examples: list[Example]) -> list[str]:
    """Return all distinct questions and steps."""
    return sorted({text for example in examples for text in (example.question, *example.steps)})


def _check_names(options: argparse.Namespace, names: list[str]) -> None:
    """Check that file names, without folder and extension, are unique."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"Several files of --data are called {', '.join(twice)}. Rename them so that the names are unique."
        )
    unknown = sorted(set(options.validation_from) - set(names))
    if unknown:
        raise OptionError(f"--validation-from {' '.join(unknown)}: the names in --data are {', '.join(names)}.")
    if options.validation_from and not options.validation:
        raise OptionError("--validation-from needs --validation with the share of the questions, for instance 0.1.")


def _read(options: argparse.Namespace, paths: list[Path]) -> tuple[list[Example], list[Example], list[Example]]:
    """Return the training, validation and held-out examples."""
    from surefoot.train.example import set_aside
    from surefoot.train.readers import Reading, read_examples, read_questions, without_questions

    keep = set().union(*map(read_questions, options.keep)) if options.keep else None
    reading = Reading(variants=options.variants, seed=options.seed, keep=keep)
    held_out = [example for path in options.held_out for example in read_examples(path, reading)]
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
    examples, validation = set_aside(examples, options.validation, options.seed, options.validation_from)
    if options.validation and not validation:
        raise OptionError(f"--validation {options.validation} sets no example aside. Increase it or omit it.")
    return examples, validation, held_out
