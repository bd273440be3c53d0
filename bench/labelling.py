"""Step labels from rollouts of a real generator: agreement with people, and the cost of each procedure.

    python bench/labelling.py ROWS --references QUESTIONS --generator FOLDER_OF_A_MODEL --quantize int8 --out FOLDER
    python bench/labelling.py ROWS --references QUESTIONS --generator http://127.0.0.1:8080 --out FOLDER

ROWS are solutions with people's labels (`problem`, `steps`, and `label`, the index of the first wrong step or -1), as
JSONL. QUESTIONS have `question` and `answer`, the reference. Labels the same solutions with every procedure and prints
one JSON object each: agreement with the people on the first error and per step, rollouts and tokens per label, and
which labels binary search changed. The same command continues after a crash.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from processes import run_shares

import surefoot
from surefoot.core.intervals import Bootstrap
from surefoot.core.labels import LabelledSolution
from surefoot.labelling.settings import LabelSettings, Procedure
from surefoot.train.example import question_key

PROCEDURES: tuple[Procedure, ...] = ("every", "until-error", "binary")
Labels = dict[str, list[LabelledSolution]]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--references", type=Path, help="JSONL with `question` and `answer`")
    parser.add_argument("--generator", required=True)
    parser.add_argument("--out", type=Path, default=Path("labelling-bench"))
    parser.add_argument("--limit", type=int, help="solutions")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--pass-rollouts", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--system", help="system message of the generator")
    parser.add_argument("--prompt", type=Path, help="file with the user message; {question} stands for the question")
    parser.add_argument("--quantize", choices=("int8", "nf4"), help="for a generator in this process")
    parser.add_argument("--max-batch", type=int, help="for a generator in this process")
    parser.add_argument("--procedure", action="append", choices=PROCEDURES, help="default: all")
    parser.add_argument("--processes", type=int, default=1)
    return parser


def with_references(options: argparse.Namespace) -> Path:
    """Write the solutions whose question has a reference answer, and return the file."""
    rows = map(json.loads, options.references.read_text(encoding="utf-8").strip().split("\n"))
    references = {question_key(row["question"]): row["answer"] for row in rows}
    file: Path = options.out / "solutions.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as stream:
        for at, line in enumerate(options.rows.read_text(encoding="utf-8").strip().split("\n")):
            row = json.loads(line)
            answer = references.get(question_key(row["problem"]))
            steps = [step for step in row["steps"] if step.strip()]
            if answer is not None and len(steps) == len(row["steps"]):
                kept = {"id": at, "question": row["problem"], "answer": answer, "steps": steps, "people": row["label"]}
                stream.write(json.dumps(kept) + "\n")
    return file


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Label the solutions with every procedure. Return the wall times."""
    given: dict[str, Any] = {} if options.system is None else {"system": options.system}
    if options.prompt is not None:
        given["prompt"] = options.prompt.read_text(encoding="utf-8").strip()
    local = {"quantize": options.quantize, "max_batch": options.max_batch}
    given |= {name: value for name, value in local.items() if value is not None}
    generator = surefoot.load_generator(options.generator, **given)
    seconds: dict[str, Any] = {}
    procedures: tuple[Procedure, ...] = options.procedure or PROCEDURES
    for procedure in procedures:
        settings = LabelSettings(
            procedure=procedure,
            k=options.k,
            round_size=options.k,
            pass_rollouts=options.pass_rollouts,
            max_tokens=options.max_tokens,
            sampling=surefoot.Sampling(temperature=options.temperature),
        )
        report = surefoot.label(
            options.rows,
            options.out / procedure,
            generator=generator,
            settings=settings,
            steps="steps",
            limit=options.limit,
            concurrency=options.concurrency,
            progress=True,
        )
        seconds[procedure] = round(report.seconds, 1)
    return seconds


def agreement(solutions: list[LabelledSolution], people: dict[str, int]) -> dict[str, Any]:
    """Compare hard labels with those of people: on the first error, and on the steps up to the people's first error."""
    decided = [each for each in solutions if each.first_error is not None]
    steps = [
        (step.hard, at != people[str(each.id)])
        for each in solutions
        for at, step in enumerate(each.steps)
        if step.hard is not None and (people[str(each.id)] == -1 or at <= people[str(each.id)])
    ]
    right = [hard for hard, person in steps if person]
    wrong = [not hard for hard, person in steps if not person]
    spent = [each.spent for each in solutions]
    labels = sum(step.hard is not None for each in solutions for step in each.steps)
    return {
        "solutions": len(solutions),
        "first error decided": len(decided),
        "same first error": share([each.first_error == people[str(each.id)] for each in decided]),
        "steps that people call right, labelled right": share(right),
        "steps that people call wrong, labelled wrong": share(wrong),
        "rollouts per label": round(sum(each.rollouts for each in spent) / max(1, labels), 2),
        "tokens per label": round(sum(each.generated_tokens for each in spent) / max(1, labels)),
        "rollouts": sum(each.rollouts for each in spent),
        "generated tokens": sum(each.generated_tokens for each in spent),
        "right after wrong": f"{sum(bool(each.violations) for each in solutions)} of "
        f"{sum(each.checked for each in solutions)} checked solutions",
    }


def share(hits: list[bool]) -> str:
    if not hits:
        return "none"
    interval = Bootstrap().wilson(sum(hits), len(hits))
    assert interval is not None
    return f"{100 * sum(hits) / len(hits):.1f} [{100 * interval.low:.1f}-{100 * interval.high:.1f}] % of {len(hits)}"


def changed(labels: Labels) -> dict[str, Any]:
    """How binary search differs from labelling every step of the same solutions."""
    pairs = list(zip(labels["every"], labels["binary"], strict=True))
    steps = [
        (one.hard, other.hard)
        for every, binary in pairs
        for one, other in zip(every.steps, binary.steps, strict=True)
        if one.hard is not None and other.hard is not None
    ]
    both = [(a.first_error, b.first_error) for a, b in pairs if a.first_error is not None and b.first_error is not None]
    rollouts = [sum(each.spent.rollouts for each in labels[name]) for name in ("every", "binary")]
    return {
        "rollouts saved by binary search": f"{100 * (1 - rollouts[1] / max(1, rollouts[0])):.0f} %",
        "steps with another label": share([one != other for one, other in steps]),
        "solutions with another first error": share([one != other for one, other in both]),
    }


def main() -> None:
    options = parser().parse_args()
    if options.processes == 0:
        print(json.dumps(run(options)))
        return
    if options.references is None:
        sys.exit("Give the file with the reference answers: --references FILE.")
    given = [each for each in sys.argv[1:] if Path(each) != options.rows]
    file = with_references(options)
    folders, seconds = run_shares(
        __file__, [*given, str(file)], file, options.out, max(1, options.processes), options.limit
    )
    people = {
        str(row["id"]): row["people"] for row in map(json.loads, file.read_text(encoding="utf-8").strip().split("\n"))
    }
    labels: Labels = {}
    for procedure in options.procedure or PROCEDURES:
        lines = [
            line
            for folder in folders
            for line in (folder / procedure / "labels.jsonl").read_text(encoding="utf-8").strip().split("\n")
        ]
        labels[procedure] = [LabelledSolution.from_dict(json.loads(line)) for line in lines]
        times = {"seconds, all processes": sum(each[procedure] for each in seconds)}
        print(json.dumps({"procedure": procedure, **agreement(labels[procedure], people), **times}, indent=1))
    if {"every", "binary"} <= labels.keys():
        print(json.dumps(changed(labels), indent=1))


if __name__ == "__main__":
    main()
