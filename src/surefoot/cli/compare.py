"""`surefoot compare`: puts two or more models side by side on the same solutions.

Options are checked and data read before a model is loaded. Files are written before anything is printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surefoot.cli.benchmark_options import option_parameter, option_value
from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import Command, with_groups
from surefoot.cli.measurement import DATA, DATA_HELP, Cache, Draws, NoCache, Seed
from surefoot.cli.options import (
    MODEL,
    OUTPUT,
    Json,
    LoadingOptions,
    ModelOptions,
    Quiet,
    Verbose,
    complete_model,
    examples,
)
from surefoot.core.addresses import is_server
from surefoot.core.intervals import Bootstrap
from surefoot.errors import OptionError
from surefoot.evaluate.comparison import COMPARABLE, check_compared
from surefoot.evaluate.registry import BENCHMARKS, Option

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.scoring.score_cache import ScoreCache


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """Options that do not belong to a benchmark."""

    scores: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Compare the step scores in this field of the data as well. Repeat for several.",
            rich_help_panel=MODEL,
        ),
    ] = None
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--as", metavar="NAME", help="What to call a scorer: once per scorer, in order.", rich_help_panel=MODEL
        ),
    ] = None
    model_options: ModelOptions
    cache: Cache = None
    no_cache: NoCache = False
    draws: Draws = 1000
    seed: Seed = 0
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write an HTML report with every disagreement.", rich_help_panel=OUTPUT),
    ] = None
    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False

    def check(self) -> None:
        """Rejects a wrong call before the data are read."""
        Bootstrap(self.draws, self.seed)
        if self.cache is not None and self.no_cache:
            raise OptionError("Give --cache or --no-cache, not both.")
        if self.report is not None:
            from surefoot.evaluate.report import prepare_report

            prepare_report(self.report)

    def open_cache(self) -> ScoreCache | nullcontext[None]:
        """Opens the score cache, unless it is turned off."""
        if self.no_cache:
            return nullcontext()
        from surefoot.scoring.score_cache import ScoreCache

        return ScoreCache(self.cache)

    def load(self, model: str, cache: ScoreCache | None) -> StepScorer:
        """Loads a model. Options for a model in this process do not reach servers, and the other way round.

        `--critic` makes critics of all models that do not name their own; other options of critics reach critics only.
        """
        from surefoot.critics.registry import critic_of, split_critic

        loading, key = self.model_options.loading, self.model_options.api_key
        named, _ = split_critic(model)
        if named is None and loading.critic is None and critic_of(model) is None:
            loading = replace(loading, critic_option=None, critic_generator=None)
        elif named is not None:
            loading = replace(loading, critic=None)
        if is_server(model):
            served = LoadingOptions(
                tokenizer=loading.tokenizer,
                served_name=loading.served_name,
                critic=loading.critic,
                critic_option=loading.critic_option,
            )
            # A server may change its weights behind the same address, so its scores are stored only on request.
            return ModelOptions(loading=served, api_key=key).load(model)
        if loading.critic_generator is not None:
            return ModelOptions(loading=loading, api_key=key).load(model)
        local = replace(loading, tokenizer=None, served_name=None)
        return ModelOptions(loading=local, threads=self.model_options.threads).load(model, cache=cache)


def _options() -> Iterator[tuple[Option, str]]:
    """Yields the options of all benchmarks. None is given by default, so that the benchmark's own default holds."""
    seen: set[str] = set()
    for name in COMPARABLE:
        benchmark = BENCHMARKS[name]
        for option in benchmark.options:
            if option.flag not in seen:
                seen.add(option.flag)
                known = option.default is None or "(default:" in option.help
                text = option.help if known else f"{option.help} (default: {option.default})"
                yield replace(option, default=None, help=text), benchmark.title


app = typer.Typer(add_completion=False)


def compare(*, models: list[str], data: str, benchmark: str, options: ComparisonOptions, **given: Any) -> int:
    """Measure models on the same solutions, one after the other, and show their differences with paired intervals,
    what each cost, and where they disagree. Models are folders, hub ids, mini, or addresses of services; options for
    loading hold for all of them. CRITIC@MODEL uses a chat model as a critic: processbench@http://127.0.0.1:8002."""
    options.check()
    values = {
        option.parameter: option_value(option, given[option.parameter])
        for option, _ in _options()
        if given[option.parameter] not in (None, [])
    }
    fields, names = options.scores or [], options.name or None
    check_compared(benchmark, models, fields, names, values)
    from surefoot.scoring.member_options import options_of_each

    options_of_each(models, options.model_options.loading.given(), server=())
    from surefoot.evaluate import compare as run
    from surefoot.evaluate import provenance, write_comparison
    from surefoot.evaluate.provenance import command_line

    fingerprints: list[str] = []

    def load(model: str) -> StepScorer:
        scorer = options.load(model, cache)
        fingerprints.append(f"{model} {scorer.fingerprint}")
        return scorer

    with options.open_cache() if models else nullcontext() as cache:
        result = run(
            models,
            data,
            benchmark=benchmark,
            scores=fields,
            names=names,
            seed=options.seed,
            draws=options.draws,
            progress=not options.quiet,
            load=load,
            cache=cache,
            **values,
        )
    if options.report is not None:
        made = provenance(data=data, fingerprint=", ".join(fingerprints) or None, command=command_line())
        write_comparison(result, options.report, made=made)
        print(f"surefoot: Wrote the report to {options.report}", file=sys.stderr)
    print(json.dumps(result.to_dict(), ensure_ascii=False) if options.json else result)
    return DONE if result.complete else INCOMPLETE


_MODELS = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="Models to compare.", autocompletion=complete_model, show_default=False),
]
_DATA = Annotated[str, typer.Option("--data", metavar="DATA", help=DATA_HELP, rich_help_panel=DATA)]
_BENCHMARK: Any = Annotated[
    Literal.__getitem__(COMPARABLE),
    typer.Option("--benchmark", help="What the data is, and what is measured.", rich_help_panel=DATA),
]


def _command(*, models: list[str] | None, **given: Any) -> int:
    return compare(models=models or [], **given)


_command.__doc__ = compare.__doc__
_command.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        Parameter("models", Parameter.KEYWORD_ONLY, default=None, annotation=_MODELS),
        Parameter("data", Parameter.KEYWORD_ONLY, annotation=_DATA),
        Parameter("benchmark", Parameter.KEYWORD_ONLY, default=COMPARABLE[0], annotation=_BENCHMARK),
        *(option_parameter(option, title) for option, title in _options()),
        Parameter("options", Parameter.KEYWORD_ONLY, annotation=ComparisonOptions),
    ]
)
app.command(
    "compare",
    cls=Command,
    epilog=examples(
        "surefoot compare mini http://127.0.0.1:8000 --data ProcessBench/",
        "surefoot compare mini processbench@http://127.0.0.1:8002 --data ProcessBench/",
        "surefoot compare mini my-prm/ --data rows.jsonl --report compare.html",
        "surefoot compare mini --scores prm --data rollouts.jsonl --benchmark best-of-n",
    ),
)(with_groups(_command))
