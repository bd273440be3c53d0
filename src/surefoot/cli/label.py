"""`surefoot label`: labels the steps of solutions by rollouts. The same command continues after a crash.

`surefoot label --review` is in `review.py`.
"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.generator_options import GeneratorOptions
from surefoot.cli.groups import with_groups
from surefoot.cli.options import COMPUTE, OUTPUT, EnsembleOptions, Json, Quiet, Verbose, examples, finite
from surefoot.cli.review import ReviewCommand, ReviewOptions
from surefoot.core.generation import Sampling
from surefoot.data.output import check_place
from surefoot.display.counting import counted
from surefoot.errors import OptionError
from surefoot.labelling.rows import Target
from surefoot.labelling.settings import CountedWrong, LabelBudget, LabelSettings, Procedure, Stop
from surefoot.scoring.scorer_like import ScorerLike, as_scorer

if TYPE_CHECKING:
    from surefoot.labelling.job import LabelReport

INPUT, LABELS, FILTER, JOB = "Input", "Labels", "Filters and other scorers", "Job"

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Which solutions are labelled."""

    question: Annotated[str, typer.Option(metavar="COLUMN", help="The question.", rich_help_panel=INPUT)] = "question"
    gold: Annotated[str, typer.Option(metavar="COLUMN", help="The reference answer.", rich_help_panel=INPUT)] = "answer"
    solution: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Label the solution in this column.",
            show_default="samples solutions",
            rich_help_panel=INPUT,
        ),
    ] = None
    steps: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Instead: a list of steps.", rich_help_panel=INPUT)
    ] = None
    completions: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Instead: a list of solutions.", rich_help_panel=INPUT)
    ] = None
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N questions.", rich_help_panel=INPUT)
    ] = None
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Questions at a time.", rich_help_panel=COMPUTE)
    ] = 8
    seed: Annotated[int, typer.Option(metavar="N", help="Samples other rollouts.", rich_help_panel=JOB)] = 0
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the labels in the folder first.", rich_help_panel=JOB)
    ] = False


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """How steps are labelled."""

    procedure: Annotated[
        Procedure,
        typer.Option(
            metavar="NAME",
            help="Measure every step, stop after the first error (until-error), or search for it (binary).",
            rich_help_panel=LABELS,
        ),
    ] = "every"
    k: Annotated[
        int, typer.Option("-k", "--k", min=1, metavar="K", help="Rollouts per step.", rich_help_panel=LABELS)
    ] = 8
    round_size: Annotated[int, typer.Option(min=1, metavar="N", help="Rollouts at a time.", rich_help_panel=LABELS)] = 4
    stop: Annotated[
        Stop,
        typer.Option(
            metavar="WHEN",
            help="End before K rollouts: first-right, interval (it excludes the threshold), or never.",
            rich_help_panel=LABELS,
        ),
    ] = "never"
    threshold: Annotated[
        float,
        typer.Option(
            metavar="T", help="Shares of right rollouts above this are right.", callback=finite, rich_help_panel=LABELS
        ),
    ] = 0.0
    relative: Annotated[
        float,
        typer.Option(
            metavar="R",
            help="Relative labels: the least share of the value before.",
            callback=finite,
            rich_help_panel=LABELS,
        ),
    ] = 0.8
    count_as_wrong: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Count rollouts as wrong that are cut_off or unanswered. Repeat it for both.",
            show_default="they are unknown",
            rich_help_panel=LABELS,
        ),
    ] = None
    checks: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="For binary: measure N steps after the error, to check the assumption.",
            rich_help_panel=LABELS,
        ),
    ] = 1
    samples: Annotated[
        int, typer.Option(min=1, metavar="N", help="Solutions per question, if none are given.", rich_help_panel=LABELS)
    ] = 4
    step_end: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help=r"The text that ends a step; \n is a line break.",
            show_default=r"\n\n",
            rich_help_panel=LABELS,
        ),
    ] = "\n\n"
    max_new_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most tokens of a rollout.", rich_help_panel=LABELS)
    ] = 2048
    pass_rollouts: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Whole answers that measure the pass rate.", rich_help_panel=FILTER),
    ] = 8
    min_pass: Annotated[
        float | None,
        typer.Option(metavar="P", help="Skip harder questions.", callback=finite, rich_help_panel=FILTER),
    ] = None
    max_pass: Annotated[
        float | None,
        typer.Option(metavar="P", help="Skip easier questions.", callback=finite, rich_help_panel=FILTER),
    ] = None
    judge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Keep solutions if this PRM names the same first error. Repeat it for an ensemble.",
            rich_help_panel=FILTER,
        ),
    ] = None
    screen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Take this PRM's verdict where it is certain, without rollouts and judge. Repeat it for an ensemble.",
            rich_help_panel=FILTER,
        ),
    ] = None
    certain: Annotated[
        float,
        typer.Option(
            metavar="P", help="Its verdict is certain from this probability.", callback=finite, rich_help_panel=FILTER
        ),
    ] = 0.9
    max_spread: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="And up to this spread of its heads, or of the models of an ensemble.",
            callback=finite,
            rich_help_panel=FILTER,
        ),
    ] = 0.01
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Generated tokens per question.", rich_help_panel=LABELS)
    ] = None
    budget_calls: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rollouts per question.", rich_help_panel=LABELS)
    ] = None
    total_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Start no question after so many.", rich_help_panel=LABELS)
    ] = None
    total_calls: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Start no question after so many.", rich_help_panel=LABELS)
    ] = None

    def settings(self, sampling: Sampling) -> LabelSettings:
        """The settings of the job."""
        return LabelSettings(
            procedure=self.procedure,
            k=self.k,
            round_size=self.round_size,
            stop=self.stop,
            threshold=self.threshold,
            relative=self.relative,
            count_as_wrong=cast("tuple[CountedWrong, ...]", tuple(self.count_as_wrong or ())),  # it checks them
            checks=self.checks,
            samples=self.samples,
            pass_rollouts=self.pass_rollouts,
            min_pass=self.min_pass,
            max_pass=self.max_pass,
            step_end=self.step_end.replace("\\n", "\n"),
            max_tokens=self.max_new_tokens,
            sampling=sampling,
            budget=LabelBudget(self.budget_tokens, self.budget_calls, self.total_tokens, self.total_calls),
            certain=self.certain,
            max_spread=self.max_spread,
        )


@app.command(
    cls=ReviewCommand,
    epilog=examples(
        "surefoot label questions.jsonl --generator ./policy --out labels/",
        "surefoot label solved.jsonl --solution response --generator ./policy --out l/",
        "surefoot label q.jsonl --generator ./policy --out l/ --procedure binary",
        "surefoot label --review labels/ --model mini",
        "surefoot label --review labels/ --export corrected.jsonl",
    ),
)
@with_groups
def label(
    *,
    questions: Annotated[
        str, typer.Argument(metavar="QUESTIONS", help="JSON or JSONL file, folder, or data set of the hub.")
    ],
    input_options: QuestionOptions,
    generator: GeneratorOptions,
    labels: LabelOptions,
    ensemble: EnsembleOptions,
    review: ReviewOptions,  # for `ReviewCommand`
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder for the labels.", rich_help_panel=OUTPUT)],
    train_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also write rows for `surefoot train`.", rich_help_panel=OUTPUT),
    ] = None,
    target: Annotated[
        Target,
        typer.Option(metavar="KIND", help="Their targets: hard, soft or relative labels.", rich_help_panel=OUTPUT),
    ] = "hard",
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Label steps by rollouts: a language model continues every solution from each of its steps, and a step is right if
    the right answer is still reached. The same command continues after a crash. With --review, correct the labels on a
    local page instead."""
    settings = labels.settings(generator.sampling())
    if train_file is not None:
        check_place("training file", train_file)
        if target != "hard" and settings.adaptive:
            raise OptionError(
                f"The {target} labels of target={target!r} are values, which stop={settings.stop!r} biases. Use "
                "stop='never', or target='hard'."
            )
    combined = ensemble.arguments(labels.judge, labels.screen)
    from surefoot.labelling.job import label as run

    found = run(
        questions,
        out,
        generator=generator.load(),
        settings=settings,
        judge=_scorer(labels.judge, combined),
        screen=_scorer(labels.screen, combined),
        question=input_options.question,
        gold=input_options.gold,
        solution=input_options.solution,
        steps=input_options.steps,
        completions=input_options.completions,
        limit=input_options.limit,
        concurrency=input_options.concurrency,
        seed=input_options.seed,
        fresh=input_options.fresh,
        progress=not quiet,
    )
    if train_file is not None:
        from surefoot.labelling.rows import write_training_rows

        count = write_training_rows(train_file, found.solutions, target)
        print(f"surefoot: Wrote {count:,} rows to {train_file}", file=sys.stderr)
    return _report(found, as_json=json)


def _scorer(models: list[str] | None, combined: dict[str, Any]) -> ScorerLike | None:
    if not models:
        return None
    return as_scorer(models, **combined) if len(models) > 1 else models[0]


def _report(found: LabelReport, *, as_json: bool) -> int:
    if as_json:
        counts = {"resumed": found.resumed, "failed": found.failed, "over_budget": found.over_budget}
        seconds = {"seconds": round(found.seconds, 1)}
        print(json_format.dumps({"out": str(found.out), **counts, **seconds, **found.summary.to_dict()}))
    else:
        print(found.summary)
        print(f"{found.out / 'labels.jsonl'}: {len(found.solutions)} solutions, {found.resumed} questions resumed")
    if found.failed:
        failed = counted(found.failed, "question")
        why = (found.failure or "unknown reason").rstrip(".")
        print(f"surefoot: {failed} failed: {why}. Run the same command again to retry.", file=sys.stderr)
    if found.over_budget:
        print(f"surefoot: The budget ended before {counted(found.over_budget, 'question')}.", file=sys.stderr)
    return INCOMPLETE if found.failed or found.over_budget else DONE
