"""Test-time search with a real policy: accuracy at equal tokens, cost, and the PRM's share of the time.

    python bench/search.py QUESTIONS --gold answer --generator http://127.0.0.1:8080 --out FOLDER
    python bench/search.py QUESTIONS --gold answer --generator FOLDER_OF_A_MODEL --quantize int8 --processes 2

Runs best-of-N, beam search and DVTS with N continuations per round, greedy decoding, and independent samples with as
many tokens as the longest search. Prints the comparison, and the cost as JSON. It continues where an earlier run with
the same options ended. With `--processes`, every process has one thread and its share of the questions.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from processes import run_shares

import surefoot
from surefoot.core.search_result import SearchRecord
from surefoot.evaluate import compare_searches, read_search_records, write_search_report


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--gold", required=True, help="column with the reference answer")
    parser.add_argument("--out", type=Path, default=Path("search-bench"))
    parser.add_argument("--report", help="HTML file for the report")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--branches", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--step-end", default="\\n\\n")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--system", help="system message of the generator")
    parser.add_argument("--prompt", type=Path, help="file with the user message; {question} stands for the question")
    parser.add_argument("--quantize", choices=("int8", "nf4"), help="for a generator in this process")
    parser.add_argument("--max-batch", type=int, help="for a generator in this process")
    parser.add_argument("--processes", type=int, default=1)
    return parser


def run(options: argparse.Namespace) -> dict[str, float]:
    """Search for the answers to all questions. Return the seconds in total, and those of the PRM."""
    given = {} if options.system is None else {"system": options.system}
    if options.prompt is not None:
        given["prompt"] = options.prompt.read_text(encoding="utf-8").strip()
    local = {"quantize": options.quantize, "max_batch": options.max_batch}
    local = {name: value for name, value in local.items() if value is not None}
    report = surefoot.search_many(
        options.questions,
        options.out,
        generator=surefoot.load_generator(options.generator, **given, **local),
        scorer=options.model,
        strategies=("best-of-n", "beam", "dvts"),
        settings=surefoot.SearchSettings(
            n=options.n,
            branches=options.branches,
            max_tokens=options.max_tokens,
            step_end=options.step_end.replace("\\n", "\n"),
            sampling=surefoot.Sampling(temperature=options.temperature),
        ),
        gold=options.gold,
        limit=options.limit,
        concurrency=options.concurrency,
        progress=True,
    )
    return {"seconds": report.seconds, "scoring": report.scoring_seconds}


def costs(records: list[SearchRecord], times: list[dict[str, float]]) -> dict[str, float]:
    searches = [search for record in records for search in record.searches.values() if search.spent.prm_tokens]
    stepwise = [search for search in searches if search.strategy["name"] != "best-of-n"]
    computed = sum(search.spent.prm_tokens for search in stepwise)
    rescored = sum(search.spent.prm_tokens_rescored for search in stepwise)
    seconds, scoring = (sum(time[name] for time in times) for name in ("seconds", "scoring"))
    return {
        "questions": len(records),
        "PRM tokens of beam search and DVTS": computed,
        "PRM tokens if every candidate were scored from scratch": rescored,
        "ratio": round(rescored / max(1, computed), 2),
        "seconds of the last run, all processes": round(seconds, 1),
        "PRM's share of the time": round(scoring / max(1e-9, seconds), 3),
    }


def main() -> None:
    options = parser().parse_args()
    if options.processes == 0:
        print(json.dumps(run(options)))
        return
    if options.processes > 1:
        given = (sys.argv[1:], options.questions, options.out, options.processes, options.limit)
        parts, times = run_shares(__file__, *given)
    else:
        parts, times = [options.out], [run(options)]
    records = [record for part in parts for record in read_search_records(part / "results.jsonl")]
    comparison = compare_searches(records)
    if options.report:
        write_search_report(comparison, records, options.report)
    print(comparison)
    print(json.dumps(costs(records, times), indent=1))


if __name__ == "__main__":
    main()
