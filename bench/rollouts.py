"""Solutions to measure with: real ones from a file, or procedural ones.

A file has one JSON object a line (gzip allowed) with `question` and `steps`; rows of one question stand together.
Without a file, problems and their worked solutions come from reasoning-gym, and samples differ as rollouts do: each
keeps the first steps of the solution and goes its own way after that.
"""

from __future__ import annotations

import gzip
import json
import random
from itertools import islice
from pathlib import Path

Group = tuple[str, list[list[str]]]


def load_groups(file: Path | None, questions: int, samples: int) -> list[Group]:
    """So many questions with so many solutions each."""
    groups = _from_file(file) if file else _procedural(questions, samples)
    large = [(question, solutions[:samples]) for question, solutions in groups.items() if len(solutions) >= samples]
    if len(large) < questions:
        raise SystemExit(f"Only {len(large)} questions have {samples} solutions; {questions} were asked for.")
    return large[:questions]


def _from_file(file: Path) -> dict[str, list[list[str]]]:
    groups: dict[str, list[list[str]]] = {}
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    for line in content.decode().splitlines():
        row = json.loads(line)
        groups.setdefault(row["question"], []).append(row["steps"])
    return groups


def _procedural(questions: int, samples: int) -> dict[str, list[list[str]]]:
    import reasoning_gym

    rng = random.Random(0)
    rows = list(islice(iter(reasoning_gym.create_dataset("gsm_symbolic", size=questions * 2, seed=0)), questions * 2))
    worked = [[line for line in row["metadata"]["answer_cot"].splitlines() if line.strip()] for row in rows]
    groups = {}
    for row, steps in islice(zip(rows, worked, strict=True), questions):
        groups[row["question"]] = [
            steps[: (keep := rng.randint(0, len(steps)))] + rng.choice(worked)[keep:] for _ in range(samples)
        ]
    return {question: [s or ["Nothing."] for s in solutions] for question, solutions in groups.items()}
