"""`surefoot search`: finds answers by test-time search, and compares it with baselines at equal tokens."""

from __future__ import annotations

import json as json_format
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.generator_options import GeneratorOptions
from surefoot.cli.groups import Command, with_groups
from surefoot.cli.options import (
    COMPUTE,
    OUTPUT,
    CalibrationOptions,
    Json,
    Models,
    Quiet,
    ReadingOptions,
    ScorerOptions,
    Verbose,
    chosen_models,
    examples,
    finite,
)
from surefoot.core.generation import Sampling
from surefoot.core.search_result import Selection
from surefoot.display.counting import counted
from surefoot.errors import OptionError
from surefoot.searching.settings import STEP_END, Budget, SearchSettings

if TYPE_CHECKING:
    from surefoot.core.generation import Generator
    from surefoot.core.search_result import SearchResult
    from surefoot.searching.job import SearchJobReport

INPUT, SEARCH, JOB = "Input", "Search", "Job"

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class StrategyOptions:
    """What a search does."""

    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="How to search: best-of-n, beam, dvts or backtracking. Repeat it to compare several.",
            show_default="beam",
            rich_help_panel=SEARCH,
        ),
    ] = None
    n: Annotated[
        int, typer.Option("-n", "--n", min=1, metavar="N", help="Continuations per round.", rich_help_panel=SEARCH)
    ] = 8
    branches: Annotated[
        int, typer.Option(min=1, metavar="N", help="Continuations per path and round.", rich_help_panel=SEARCH)
    ] = 2
    max_steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most steps of a path.", rich_help_panel=SEARCH)
    ] = 40
    max_new_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most generated tokens of a path.", rich_help_panel=SEARCH)
    ] = 2048
    step_end: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help=r"The text that ends a step; \n is a line break.",
            show_default=r"\n\n",
            rich_help_panel=SEARCH,
        ),
    ] = STEP_END
    rank_by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The aggregation that ranks paths.",
            show_default="as the makers of the PRM recommend, else min",
            rich_help_panel=SEARCH,
        ),
    ] = None
    uncertainty: Annotated[
        float,
        typer.Option(
            metavar="W",
            help="For an ensemble: lower the score of a step by W times the disagreement of its members.",
            callback=finite,
            rich_help_panel=SEARCH,
        ),
    ] = 0.0
    select: Annotated[
        Selection,
        typer.Option(
            metavar="HOW",
            help="Return the best path's answer, or vote: best, weighted, majority.",
            rich_help_panel=SEARCH,
        ),
    ] = "best"
    lookahead: Annotated[
        int, typer.Option(min=0, metavar="N", help="Score N further steps before ranking.", rich_help_panel=SEARCH)
    ] = 0
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="T", help="For backtracking: go back at or below this.", callback=finite, rich_help_panel=SEARCH
        ),
    ] = None
    backtracks: Annotated[
        int, typer.Option(min=0, metavar="N", help="For backtracking: at most so often.", rich_help_panel=SEARCH)
    ] = 8
    budget_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Generated tokens per question.", rich_help_panel=SEARCH),
    ] = None
    budget_calls: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Continuations per question.", rich_help_panel=SEARCH)
    ] = None
    budget_seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds per question.", callback=finite, rich_help_panel=SEARCH),
    ] = None

    def settings(self, sampling: Sampling) -> SearchSettings:
        """The settings of every strategy."""
        return SearchSettings(
            n=self.n,
            branches=self.branches,
            max_steps=self.max_steps,
            max_tokens=self.max_new_tokens,
            step_end=self.step_end.replace("\\n", "\n"),
            sampling=sampling,
            aggregation=self.rank_by,
            uncertainty=self.uncertainty,
            selection=self.select,
            lookahead=self.lookahead,
            threshold=self.threshold,
            backtracks=self.backtracks,
            budget=Budget(self.budget_tokens, self.budget_calls, self.budget_seconds),
        )


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Which questions are searched."""

    ask: Annotated[
        str | None,
        typer.Option(metavar="QUESTION", help="Search for this question instead of a file.", rich_help_panel=INPUT),
    ] = None
    question: Annotated[str, typer.Option(metavar="COLUMN", help="The question.", rich_help_panel=INPUT)] = "question"
    gold: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The reference answer, to report accuracy.", rich_help_panel=INPUT),
    ] = None
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N questions.", rich_help_panel=INPUT)
    ] = None
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Questions at a time.", rich_help_panel=COMPUTE)
    ] = 8
    seed: Annotated[int, typer.Option(metavar="N", help="Samples other continuations.", rich_help_panel=JOB)] = 0
    no_baselines: Annotated[
        bool,
        typer.Option(
            "--no-baselines",
            help="Skip greedy decoding and samples at equal tokens, which cost as much as a search.",
            rich_help_panel=JOB,
        ),
    ] = False
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the results in the folder first.", rich_help_panel=JOB)
    ] = False

    def require_only_ask(self, out: str | None, report: str | None) -> None:
        """Reject options for files of questions."""
        given = {"--out": out, "--report": report, "--gold": self.gold, "--limit": self.limit, "--fresh": self.fresh}
        given |= {"--no-baselines": self.no_baselines}
        if wrong := [flag for flag, value in given.items() if value]:
            raise OptionError(f"{', '.join(wrong)}: only for a file with questions, not for --ask.")


@app.command(
    cls=Command,
    epilog=examples(
        "surefoot search questions.jsonl --generator http://127.0.0.1:8080",
        "surefoot search questions.jsonl --generator rollouts.jsonl --gold answer",
        "surefoot search questions.jsonl --generator ./policy --strategy dvts -n 16",
        "surefoot search --ask 'A pen costs $3. What do 14 cost?' --generator ./policy",
    ),
)
@with_groups
def search(
    *,
    questions: Annotated[
        str | None, typer.Argument(metavar="QUESTIONS", help="JSON or JSONL file, folder, or data set of the hub.")
    ] = None,
    input_options: QuestionOptions,
    generator: GeneratorOptions,
    model: Models = None,
    model_options: ScorerOptions,
    reading: ReadingOptions,
    calibration: CalibrationOptions,
    strategy: StrategyOptions,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder for the results.", show_default="QUESTIONS-search", rich_help_panel=OUTPUT
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write an HTML report with every tree.", rich_help_panel=OUTPUT),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Search for answers: a language model writes steps, and a PRM chooses between them. Next to the accuracy of the
    search, report greedy decoding, majority voting and best-of-N at equal tokens. The same command continues after a
    crash."""
    if (questions is None) == (input_options.ask is None):
        raise OptionError("Give a file with questions, or one question with --ask.")
    settings = strategy.settings(generator.sampling())
    names: list[str] = list(strategy.strategy or ["beam"])
    from surefoot.searching.job import read_questions, search_many
    from surefoot.searching.requirements import require_packages
    from surefoot.searching.runner import Plan

    require_packages(generator.generator, many=questions is not None)
    for name in names:  # a wrong call fails before models are loaded
        Plan.of(name, settings)
    if report is not None:
        from surefoot.evaluate.report import prepare_report

        prepare_report(report)
    if questions is None:
        input_options.require_only_ask(out, report)
    else:
        read_questions(questions, question=input_options.question, gold=input_options.gold, limit=input_options.limit)
    writer = generator.load()
    scorer = model_options.load(chosen_models(model), calibration=calibration.read())
    if input_options.ask is not None:
        return _ask(input_options.ask, names, settings, input_options.seed, writer, scorer, reading, quiet, json)
    assert questions is not None
    found = search_many(
        questions,
        out or f"{Path(questions).name.split('.')[0]}-search",
        generator=writer,
        scorer=scorer,
        strategies=names,
        settings=settings,
        baselines=not input_options.no_baselines,
        question=input_options.question,
        gold=input_options.gold,
        limit=input_options.limit,
        concurrency=input_options.concurrency,
        seed=input_options.seed,
        options=reading.given(),
        fresh=input_options.fresh,
        progress=not quiet,
    )
    return _report(found, report, questions, scorer.fingerprint, as_json=json)


def _ask(
    question: str,
    names: list[str],
    settings: SearchSettings,
    seed: int,
    writer: Generator,
    scorer: Any,
    reading: ReadingOptions,
    quiet: bool,
    as_json: bool,
) -> int:
    from surefoot.searching.live import LiveView
    from surefoot.searching.search import search

    found: list[SearchResult] = []
    for name in names:
        with ExitStack() as stack:
            view = stack.enter_context(LiveView(name, shown=not quiet))
            options = {**vars(settings)}
            found.append(
                search(
                    question,
                    generator=writer,
                    scorer=scorer,
                    strategy=name,
                    seed=seed,
                    options=reading.given(),
                    on_event=view.show,
                    **options,
                )
            )
    for result in found:
        print(result.to_json() if as_json else _answer_text(result))
    return DONE if all(result.answer is not None for result in found) else INCOMPLETE


def _answer_text(result: SearchResult) -> str:
    from surefoot.display.terminal import printable

    votes = ", ".join(f"{each.answer} ({each.votes})" for each in result.answers)
    spent = result.spent
    lines = [
        *map(printable, (result.solution or "No path was finished.").splitlines()),
        "",
        f"answer    {printable(result.answer or 'none')}",
        f"score     {'none' if result.score is None else f'{result.score:.3f} ({result.aggregation})'}",
        f"votes     {printable(votes or 'none')}",
        f"{result.strategy['label']}: {counted(len(result.nodes) - 1, 'node')}, {len(result.finished)} finished, "
        f"{spent.generated_tokens:,} generated tokens, {spent.prm_tokens:,} PRM tokens, ended: {result.stop}",
        *(f"warning: {printable(text)}" for text in result.warnings),
    ]
    return "\n".join(lines)


def _report(found: SearchJobReport, report: str | None, data: str, fingerprint: str, *, as_json: bool) -> int:
    from surefoot.evaluate.provenance import command_line, provenance
    from surefoot.evaluate.search import compare_searches, write_search_report

    comparison = compare_searches(found.records)
    if report is not None:
        computing = f"{found.scoring_seconds:,.0f} s of {found.seconds:,.0f} s in the last run"
        write_search_report(
            comparison,
            found.records,
            report,
            command=command_line(),
            metadata={**provenance(data=data, fingerprint=fingerprint), "PRM computing": computing},
        )
        print(f"surefoot: Wrote the report to {report}", file=sys.stderr)
    seconds = {"seconds": round(found.seconds, 1), "scoring_seconds": round(found.scoring_seconds, 1)}
    if as_json:
        counts = {"questions": len(found.records), "resumed": found.resumed, "failed": found.failed}
        print(json_format.dumps({"out": str(found.out), **counts, **seconds, **comparison.to_dict()}))
    else:
        print(comparison)
        if found.seconds and len(found.records) > found.resumed:
            share = found.scoring_seconds / found.seconds
            print(f"The PRM was computing for {share:.0%} of {found.seconds:,.0f} s.")
        total = counted(len(found.records), "question")
        print(f"{found.out / 'results.jsonl'}: {total}, {found.resumed} from earlier runs")
    if found.failed:
        failed = counted(found.failed, "question")
        print(f"surefoot: {failed} failed. Run the same command again to retry.", file=sys.stderr)
    return INCOMPLETE if found.failed else DONE
