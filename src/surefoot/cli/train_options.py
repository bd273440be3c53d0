"""The options of `surefoot train`: one dataclass per table of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from surefoot.cli.config_file import Key, Schema
from surefoot.train.trackers import TrackerName


@dataclass(frozen=True)
class DataOptions:
    """What to train on and what to measure on."""

    data: Annotated[
        list[str],
        Key(
            "Training files or folders. With weight 2, each row is drawn twice per epoch.",
            metavar="FILE[=WEIGHT]...",
            flag=True,
        ),
    ]
    held_out: Annotated[
        list[str] | None,
        Key("Evaluation files. Their questions are removed from the training data.", metavar="FILE...", flag=True),
    ] = None
    keep: Annotated[
        list[str] | None, Key("Files with questions whose example solutions may be trained on.", metavar="FILE...")
    ] = None
    validation: Annotated[
        float,
        Key(
            "Fraction of the training questions to select the best weights and the threshold on.",
            metavar="SHARE",
            flag=True,
        ),
    ] = 0.0
    validation_from: Annotated[
        list[str] | None, Key("Validate only on these files (name without extension).", metavar="NAME...")
    ] = None
    validation_most: Annotated[
        int | None,
        Key("Validate on at most N solutions of a file, half of them incorrect.", metavar="N", default="all", min=2),
    ] = None
    variants: Annotated[int, Key("Examples per GSM8K row.", min=1)] = 4
    wrong_share: Annotated[
        float | None, Key("Target fraction of incorrect solutions in every file.", metavar="SHARE")
    ] = None
    most_repeats: Annotated[int, Key("Draw no row more often than this to reach wrong_share.")] = 4
    join: Annotated[
        float, Key("Fraction of the solutions in which neighbouring steps are joined.", metavar="SHARE")
    ] = 0.0
    share: Annotated[bool, Key("Merge the solutions of a question, as many correct as incorrect ones.")] = False


@dataclass(frozen=True)
class ModelOptions:
    """What the trained model is made of."""

    base: Annotated[str, Key("Folder of a decoder, or of a PRM to train further.", metavar="DIR", flag=True)]
    average_with: Annotated[
        list[str] | None,
        Key("Folders of other PRMs of the same shape. Training starts from the mean of all.", metavar="DIR..."),
    ] = None
    family: Annotated[
        Literal["qwen", "mini", "mini-lm"] | None, Key("Prompt format.", default="detected from the base")
    ] = None
    layers: Annotated[int | None, Key("Keep the first N layers of the base.", metavar="N", default="all")] = None
    units: Annotated[
        int | None,
        Key("Keep the N most important units of every feed-forward block.", metavar="N", default="all", min=1),
    ] = None
    vocabulary: Annotated[
        int | None,
        Key("Keep the N most frequent tokens and those that the data uses.", metavar="N", default="all", min=1),
    ] = None


@dataclass(frozen=True)
class OptimizerOptions:
    """Fields of `surefoot.train.settings.Settings`, with the same defaults."""

    steps: Annotated[
        int | None,
        Key("Optimizer steps, instead of epochs.", metavar="N", default="those of epochs", flag=True),
    ] = None
    epochs: Annotated[float, Key("Passes over the data.", metavar="E", flag=True)] = 1.0
    learning_rate: Annotated[float, Key("Peak learning rate.", metavar="R", flag=True)] = 1e-4
    head_learning_rate: Annotated[
        float | None, Key("Peak learning rate of the head.", metavar="R", default="5 times learning_rate")
    ] = None
    weight_decay: Annotated[float, Key("Weight decay of matrices.")] = 0.01
    warmup: Annotated[float, Key("Fraction of the steps to warm up in.")] = 0.05
    decay: Annotated[Literal["cosine", "linear", "constant"], Key("Learning rate after the warm-up.")] = "cosine"
    clip: Annotated[float, Key("Maximum gradient norm.")] = 1.0
    accumulate: Annotated[int, Key("Batches per optimizer step.")] = 1
    wrong_weight: Annotated[float, Key("Weight of incorrect steps in the loss, relative to correct ones.")] = 1.0
    language_weight: Annotated[
        float, Key("Weight of a second loss: predicting the tokens of correct solutions.", metavar="W")
    ] = 0.0
    freeze_embeddings: Annotated[bool, Key("Freeze all embeddings except those of added tokens.")] = False
    freeze_layers: Annotated[int, Key("Freeze the lowest N layers.")] = 0
    ema: Annotated[float, Key("Export a moving average of the weights with this decay, such as 0.999.")] = 0.0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], Key("Number format of the computation; auto chooses the faster one.")
    ] = "auto"
    gradient_checkpointing: Annotated[bool, Key("Trade speed for memory.")] = False
    seed: Annotated[int, Key("Seed of the run.", metavar="N", flag=True)] = 0


@dataclass(frozen=True)
class BatchOptions:
    """How examples are put together."""

    max_tokens: Annotated[int, Key("Do not train on steps that end after N tokens.")] = 1024
    batch_tokens: Annotated[int, Key("Positions per batch, including padding.", min=1)] = 4096
    multiple: Annotated[int, Key("Pad lengths to multiples of N.")] = 32
    fixed_rows: Annotated[bool, Key("Fill up batches, so that the length alone determines the shape.")] = False


@dataclass(frozen=True)
class RunOptions:
    """What does not change the weights: mostly fields of `surefoot.train.settings.Sitting`, with the same defaults."""

    minutes: Annotated[float | None, Key("Pause after M minutes.", metavar="M", default="do not pause", flag=True)] = (
        None
    )
    pause_steps: Annotated[int | None, Key("Pause after N steps.", metavar="N", default="do not pause", min=1)] = None
    last_step: Annotated[
        int | None,
        Key(
            "Finish after step N of the schedule; 0 only selects the threshold.",
            metavar="N",
            default="finish the schedule",
            min=0,
        ),
    ] = None
    evaluate_minutes: Annotated[float, Key("Evaluate every M minutes.")] = 10.0
    evaluate_steps: Annotated[int | None, Key("Evaluate every N steps instead.", metavar="N")] = None
    save_minutes: Annotated[float, Key("Save a snapshot every M minutes.")] = 10.0
    save_steps: Annotated[int | None, Key("Save a snapshot every N steps instead.", metavar="N")] = None
    keep_checkpoints: Annotated[int, Key("Snapshots to keep.")] = 2
    log_to: Annotated[list[TrackerName] | None, Key("Log to these trackers, too.", metavar="NAME...", flag=True)] = None
    device: Annotated[str, Key("auto, cpu, cuda, cuda:1, ...", metavar="DEVICE", flag=True)] = "auto"
    threads: Annotated[int | None, Key("CPU threads.", metavar="N", default="one per usable core", min=1)] = None


@dataclass(frozen=True)
class OutputOptions:
    """What is written."""

    out: Annotated[str, Key("Folder for model, log and checkpoints.", metavar="DIR", flag=True)]
    export: Annotated[Literal["best", "last"], Key("Weights to export.")] = "best"
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16", "int8", "int4"],
        Key("Number format of the stored model. int8 and int4 load as float32."),
    ] = "float32"


SCHEMA = Schema(
    {
        "data": DataOptions,
        "model": ModelOptions,
        "optimizer": OptimizerOptions,
        "batches": BatchOptions,
        "run": RunOptions,
        "output": OutputOptions,
    }
)
"""The tables of the configuration file."""
