"""Run several scorers on the same rows and compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from surefoot.core.intervals import Bootstrap, Interval
from surefoot.core.protocols import StepScorer
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.best_of_n.result import BestOfNResult
from surefoot.evaluate.comparison import best_of_n, processbench
from surefoot.evaluate.comparison.result import Comparison
from surefoot.evaluate.comparison.scorers import LETTERS, ComparedScorer, run_scorer
from surefoot.evaluate.processbench.result import ProcessBenchResult, average
from surefoot.evaluate.registry import BENCHMARKS, Benchmark

if TYPE_CHECKING:
    from surefoot.scoring.score_cache import ScoreCache

COMPARABLE = ("processbench", "best-of-n")
"""The benchmarks on which scorers can be compared."""

Metrics = tuple[tuple[str, tuple[tuple[float | None, Interval | None], ...]], ...]


def compare(
    models: Sequence[Any],
    data: str | Path | Iterable[Any],
    *,
    benchmark: str = "processbench",
    scores: Sequence[str] = (),
    names: Sequence[str] | None = None,
    seed: int = 0,
    draws: int = 1000,
    progress: bool = False,
    load: Callable[[Any], StepScorer] | None = None,
    cache: ScoreCache | None = None,
    **options: Any,
) -> Comparison:
    """Put scorers side by side on ProcessBench or best of N, with paired intervals for their differences.

        comparison = evaluate.compare(["mini", "Qwen/Qwen2.5-Math-PRM-7B"], "ProcessBench/")
        print(comparison)
        comparison.pair().find("F1").interval  # of the second minus the first
        evaluate.write_comparison(comparison, "compare.html")

    `models` are scorers, or whatever `surefoot.load` takes. Models are loaded one after the other, and each is released
    before the next one is loaded. `scores` names fields with precomputed step scores, which are compared like models.
    `data` is a file, a folder, a Hub id, or rows of the benchmark. `names` replace the names of models and fields.
    `options` are those of the benchmark: `threshold`, `tune_on`, `splits`; or `ns`, `aggregation`, `correct_by`,
    `timeout`. `load` replaces `surefoot.load`; `cache` is the cache that it passes on, so that the cost can tell how
    many scores came from there. A solution counts in a difference only if both scorers have a prediction for it.
    """
    entry = check_compared(benchmark, models, scores, names, options)
    bootstrap = Bootstrap(draws, seed)
    reading = {option.parameter for option in entry.options if option.passed_to == "read"}
    read_options = {name: value for name, value in options.items() if name in reading}
    settings = {name: value for name, value in options.items() if name not in reading}
    settings |= {"seed": seed, "draws": draws}
    is_path = isinstance(data, str | Path)
    if not is_path and read_options:
        raise OptionError(
            f"{', '.join(read_options)}: only for data that is read from a file. Filter the rows instead."
        )

    def rows(field: str | None) -> list[Any]:
        found = list(entry.read(data, scores=field, **read_options)) if is_path else given
        if not found:
            raise InputError("There are no rows to compare on.")
        return found

    given = [] if is_path else list(cast("Iterable[Any]", data))
    found: list[ComparedScorer] = []
    if models:
        shared = rows(None)
        if entry.check is not None and is_path:
            entry.check(shared, **{name: value for name, value in settings.items() if name not in ("seed", "draws")})
        for model in models:
            name, result, cost = run_scorer(
                model,
                lambda scorer: entry.run(scorer, shared, progress=progress, **settings),
                load or _load,
                cache,
            )
            found.append(ComparedScorer(LETTERS[len(found)], name, result, cost))
    for field in scores:
        result = entry.run(None, rows(field), scores=field, name=field, **settings)
        found.append(ComparedScorer(LETTERS[len(found)], field, cast("Any", result), None))
    if names is not None:
        found = [
            ComparedScorer(each.letter, name, each.result, each.cost) for each, name in zip(found, names, strict=True)
        ]
    _check_same_rows(found)
    build = _processbench if benchmark == "processbench" else _best_of_n
    return build(entry, tuple(found), bootstrap)


def check_compared(
    benchmark: str,
    models: Sequence[Any],
    scores: Sequence[str],
    names: Sequence[str] | None,
    options: Mapping[str, Any],
) -> Benchmark:
    """Reject a wrong call before anything is read or loaded, and return the benchmark."""
    if benchmark not in COMPARABLE:
        raise OptionError(f"benchmark={benchmark!r} cannot be compared. Choose one of: {', '.join(COMPARABLE)}.")
    if isinstance(models, str | Path):
        raise OptionError("models is one name. Pass a list of at least two.")
    count = len(models) + len(scores)
    if not 2 <= count <= len(LETTERS):
        raise OptionError(f"{count} scorers cannot be compared. Pass from 2 to {len(LETTERS)} models or score fields.")
    if names is not None and len(names) != count:
        raise OptionError(f"There are {len(names)} names for {count} scorers. Pass one name per scorer, models first.")
    entry = BENCHMARKS[benchmark]
    known = [option.parameter for option in entry.options]
    if unknown := [name for name in options if name not in known]:
        raise OptionError(f"{', '.join(unknown)}: not an option of {benchmark}. Its options: {', '.join(known)}.")
    return entry


def _load(model: Any) -> StepScorer:
    from surefoot.scoring.loading import load

    return load(model)


def _check_same_rows(scorers: Sequence[ComparedScorer]) -> None:
    """Raise if scorers saw different solutions, as can happen if rows have scores for another number of steps."""

    def seen(scorer: ComparedScorer) -> list[Any]:
        result = scorer.result
        if isinstance(result, ProcessBenchResult):
            return [(item.row.id, item.row.problem, item.row.steps) for item in result.judgements]
        return [(item.row.group, item.row.solution) for item in result.candidates]

    first = seen(scorers[0])
    for scorer in scorers[1:]:
        if seen(scorer) != first:
            raise InputError(f"{scorer.label} was measured on other solutions than {scorers[0].label}.")


def _processbench(entry: Benchmark, scorers: tuple[ComparedScorer, ...], bootstrap: Bootstrap) -> Comparison:
    results = [scorer.result for scorer in scorers if isinstance(scorer.result, ProcessBenchResult)]
    metrics: Metrics = (
        ("F1", tuple((result.f1, result.f1_interval) for result in results)),
        ("error", tuple((average([split.error.value for split in result.splits]), None) for result in results)),
        ("correct", tuple((average([split.correct.value for split in result.splits]), None) for result in results)),
        ("step AUC", tuple((result.step_auc, result.step_auc_interval) for result in results)),
    )
    return Comparison(
        benchmark=entry.name,
        title=entry.title,
        scorers=scorers,
        pairs=tuple(
            processbench.compare_pair((a, b), (results[a], results[b]), bootstrap)
            for a, b in combinations(range(len(results)), 2)
        ),
        metrics=metrics,
        disagreements=tuple(processbench.disagreements(results)),
        rows=len(results[0].judgements),
        noun="solutions",
        baselines=results[0].baselines,
        baseline_keys=("f1", "error", "correct", "step_auc"),
        notes=tuple(_notes(scorers)),
        scales=tuple(result.scale for result in results),
    )


def _best_of_n(entry: Benchmark, scorers: tuple[ComparedScorer, ...], bootstrap: Bootstrap) -> Comparison:
    results = [scorer.result for scorer in scorers if isinstance(scorer.result, BestOfNResult)]
    metrics: Metrics = tuple(
        (
            f"N={n}",
            tuple(
                (result.best[result.aggregation][n].value, result.best[result.aggregation][n].interval)
                for result in results
            ),
        )
        for n in results[0].ns
    )
    return Comparison(
        benchmark=entry.name,
        title=entry.title,
        scorers=scorers,
        pairs=tuple(
            best_of_n.compare_pair((a, b), (results[a], results[b]), bootstrap)
            for a, b in combinations(range(len(results)), 2)
        ),
        metrics=metrics,
        disagreements=tuple(best_of_n.disagreements(results)),
        rows=len(best_of_n.problems(results)),
        noun="problems",
        baselines=results[0].baselines,
        baseline_keys=tuple(str(n) for n in results[0].ns),
        notes=tuple(_notes(scorers)),
        scales=tuple(result.scale for result in results),
    )


def _notes(scorers: Sequence[ComparedScorer]) -> Iterable[str]:
    for scorer in scorers:
        result = scorer.result
        if isinstance(result, BestOfNResult):
            yield f"{scorer.letter} aggregates by {result.aggregation_label}."
        else:
            tuned = "" if result.tuned_on is None else f" on {result.tuned_on}"
            yield f"{scorer.letter} uses the threshold {result.threshold:.4g} ({result.threshold_source}{tuned})."
        yield from (f"{scorer.letter}: {note}" for note in result.notes)
        if scorer.cost is not None and scorer.cost.cached:
            yield (
                f"{scorer.letter}: {scorer.cost.cached} prompts came from the score cache, so its seconds do not show "
                "its speed."
            )
    if len(scorers) > 2:
        yield "Intervals and p-values are for each pair alone; they are not adjusted for the number of pairs."
