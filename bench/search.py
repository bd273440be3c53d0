"""Test-time search with a real policy: accuracy at equal tokens, cost, and the PRM's share of the time.

    python bench/search.py QUESTIONS --gold answer --generator http://127.0.0.1:8080 --out FOLDER
    python bench/search.py QUESTIONS --gold answer --generator FOLDER_OF_A_MODEL --limit 100

Runs beam search and DVTS with N continuations per round, greedy decoding, and independent samples with as many tokens,
and prints the comparison as JSON. It continues where an earlier run with the same options ended. Seconds are those of
the last run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import surefoot
from surefoot.evaluate import compare_searches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions")
    parser.add_argument("--generator", required=True)
    parser.add_argument("--gold", required=True, help="column with the reference answer")
    parser.add_argument("--out", default="search-bench")
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
    options = parser.parse_args()
    given = {} if options.system is None else {"system": options.system}
    if options.prompt is not None:
        given["prompt"] = options.prompt.read_text(encoding="utf-8").strip()
    report = surefoot.search_many(
        options.questions,
        options.out,
        generator=surefoot.load_generator(options.generator, **given),
        scorer=options.model,
        strategies=("beam", "dvts"),
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
    searches = [search for record in report.records for search in record.searches.values()]
    computed = sum(search.spent.prm_tokens for search in searches)
    rescored = sum(search.spent.prm_tokens_rescored for search in searches)
    print(compare_searches(report.records))
    print(
        json.dumps(
            {
                "questions": len(report.records),
                "PRM tokens": computed,
                "PRM tokens if every candidate were scored from scratch": rescored,
                "ratio": round(rescored / max(1, computed), 2),
                "seconds": round(report.seconds, 1),
                "PRM's share of the time": round(report.scoring_seconds / max(1e-9, report.seconds), 3),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
