"""A chat model as ProcessBench's critic, alone and in an ensemble: F1 with intervals, readable verdicts, and cost.

    python bench/critics.py ROWS --critic-model FOLDER_OR_URL --limit 100 --cache FILE

Every verdict is stored in the cache, so an interrupted run continues, and the ensemble costs nothing more. Several
votes use temperature 1.0 and top_p 0.9, as the makers of ProcessBench do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import surefoot
from surefoot.core.result import SolutionScore
from surefoot.evaluate import ProcessBenchRow


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="rows of ProcessBench")
    parser.add_argument("--critic-model", required=True, help="folder of a chat model, or the address of a server")
    parser.add_argument("--critic", default="processbench")
    parser.add_argument("--other", default="mini", help="the other member of the ensemble")
    parser.add_argument("--every", type=int, default=2, help="take every second row: files are sorted by label")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--votes", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--quantize", choices=("int8", "nf4"))
    parser.add_argument("--cache", type=Path, default=Path("critics.sqlite"))
    return parser


def cost(results: list[SolutionScore], seconds: float) -> dict[str, Any]:
    statuses = Counter(step.status for result in results for step in result.steps)
    return {
        "calls": sum(result.calls for result in results),
        "tokens read per solution": sum(result.tokens for result in results) / len(results),
        "tokens written per solution": sum(result.generated_tokens for result in results) / len(results),
        "seconds": seconds,
        "steps by status": dict(statuses),
        "solutions without a verdict": sum(result.steps[0].score is None for result in results),
    }


def measure(scorer: Any, rows: list[ProcessBenchRow]) -> dict[str, Any]:
    result = surefoot.evaluate.processbench(scorer, rows, progress=True)
    (split,) = result.splits
    wrong = sum(row.label >= 0 for row in rows)
    shares = [split.error.hits / max(1, wrong), split.correct.hits / max(1, len(rows) - wrong)]
    return {
        "f1 if a solution without a verdict counts as wrong, as in ProcessBench": 2
        / sum(1 / max(s, 1e-12) for s in shares),
        "f1": split.f1,
        "f1 interval": split.f1_interval,
        "errors found": split.error.to_dict(),
        "correct accepted": split.correct.to_dict(),
        "unscored": split.unscored,
    }


def main() -> None:
    options = parser().parse_args()
    rows = list(surefoot.evaluate.read_processbench(options.rows))[:: options.every][: options.limit]
    sampling = {} if options.votes == 1 else {"votes": options.votes, "temperature": 1.0, "top_p": 0.9}
    critic = surefoot.load(
        options.critic_model,
        critic=options.critic,
        critic_options={"max_tokens": options.max_tokens, **sampling},
        quantize=options.quantize,
        cache=options.cache,
    )
    started = time.perf_counter()
    results = critic.score_many([(row.problem, row.steps) for row in rows], progress=True)
    seconds = time.perf_counter() - started
    other = surefoot.load(options.other, cache=options.cache)
    found = {
        "rows": len(rows),
        "critic": {"model": critic.name, **measure(critic, rows), **cost(results, seconds)},
        options.other: measure(other, rows),
        "ensemble": measure(surefoot.load([other, critic], missing="skip"), rows),
    }
    print(json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    main()
