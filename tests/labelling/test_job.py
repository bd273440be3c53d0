"""Labelling many questions: order, independence of concurrency, resuming after kill -9, coverage of the intervals."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from helpers.search_parties import Judge, Policy
from surefoot.errors import JobError
from surefoot.generate.recorded import RecordingGenerator
from surefoot.labelling.job import LabelReport, label
from surefoot.labelling.settings import LabelBudget, LabelSettings

STEPS = 4
CHANCES = (0.7, 0.6, 0.3, 0.1)
"""The chance of a right answer after 0, 1, 2 and 3 steps."""
BOX = re.compile(r"\\boxed\{(\d+)\}")


def write(prefix: str, seed: int) -> str:
    """A policy with known chances of success. Right is 7."""
    rng = random.Random(f"{prefix}|{seed}")
    done = prefix.count("\n\n")
    answer = 7 if rng.random() < CHANCES[done] else rng.randrange(7)
    steps = [f"Step {at} says {rng.randrange(1000)}." for at in range(done, STEPS - 1)]
    return "\n\n".join([*steps, f"The answer is \\boxed{{{answer}}}."])


def rows(count: int = 12) -> list[dict[str, Any]]:
    return [{"question": f"What is {at}?", "answer": "7", "id": at} for at in range(count)]


SETTINGS = LabelSettings(k=6, samples=2, pass_rollouts=4, procedure="binary")


def run(out: Path, source: Any = None, **given: Any) -> LabelReport:
    arguments: dict[str, Any] = {"generator": Policy(write), "settings": SETTINGS}
    return label(rows() if source is None else source, out, **arguments | given)


def content(out: Path) -> bytes:
    return (out / "labels.jsonl").read_bytes()


def test_labels_do_not_depend_on_what_runs_at_a_time(tmp_path: Path) -> None:
    report = run(tmp_path / "one", concurrency=1)
    assert [(each.index, each.number) for each in report.solutions] == [(at // 2, at % 2) for at in range(24)]
    assert [each.id for each in report.solutions[::2]] == [str(at) for at in range(12)]
    run(tmp_path / "many", concurrency=7)
    assert content(tmp_path / "one") == content(tmp_path / "many")
    alone = run(tmp_path / "alone", [rows()[5]])
    assert [each.steps for each in alone.solutions] == [each.steps for each in report.solutions[10:12]]
    run(tmp_path / "other", concurrency=7, seed=1)
    assert content(tmp_path / "one") != content(tmp_path / "other")


def test_values_are_those_of_the_continuations_that_were_returned(tmp_path: Path) -> None:
    policy = Policy(write)
    report = run(tmp_path / "out", generator=policy, settings=LabelSettings(k=7, samples=3, stop="never"))
    # Count the answers of every request again, without any of the code under test.
    right: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for request in policy.requests:
        for index in range(request.n):
            (answer,) = BOX.findall(write(request.prefix, request.seed_of(index)))
            right[request.question, request.prefix][answer == "7"] += 1
    measured = 0
    for found in report.solutions:
        for at, step in enumerate(found.steps[:-1]):
            counts = right[found.question, "".join(each.text for each in found.steps[: at + 1])]
            assert (step.outcomes.right, step.outcomes.wrong) == (counts[True], counts[False])
            assert (step.hard, counts.total()) == (None if at > _error(found, right) else counts[True] > 0, 7)
            measured += 1
        (answer,) = BOX.findall(found.text)
        assert found.outcome == ("right" if answer == "7" else "wrong")
    assert measured == 12 * 3 * 3


def _error(found: Any, right: Any) -> int:
    for at in range(len(found.steps) - 1):
        if not right[found.question, "".join(each.text for each in found.steps[: at + 1])][True]:
            return at
    return len(found.steps)


def test_the_seeds_of_all_rollouts_differ(tmp_path: Path) -> None:
    policy = Policy(write)
    run(tmp_path / "out", generator=policy)
    seeds = [request.seed_of(index) for request in policy.requests for index in range(request.n)]
    assert len(set(seeds)) == len(seeds)


def test_the_interval_covers_the_true_chance_as_often_as_it_should(tmp_path: Path) -> None:
    k, count = 16, 200
    settings = LabelSettings(k=k, round_size=k, pass_rollouts=0)
    given = [{"question": f"q{at}", "answer": "7", "text": f"One {at}.\n\nTwo."} for at in range(count)]
    report = run(tmp_path / "out", given, settings=settings, solution="text")
    for step, chance in ((0, CHANCES[1]), (1, CHANCES[1])):  # the second step has no delimiter after it
        # The exact coverage: the chance of those counts whose interval, solved from |p - r/k| <= z * sqrt(p(1-p)/k),
        # contains the true value.
        covered = [r for r in range(k + 1) if abs(r / k - chance) <= 1.959964 * math.sqrt(chance * (1 - chance) / k)]
        exact = sum(math.comb(k, r) * chance**r * (1 - chance) ** (k - r) for r in covered)
        intervals = [found.steps[step].interval for found in report.solutions]
        seen = sum(each is not None and each.low <= chance <= each.high for each in intervals) / count
        assert seen == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / count))
        assert exact > 0.9


def test_binary_search_saves_calls_where_once_zero_is_always_zero(tmp_path: Path) -> None:
    def monotone(prefix: str, seed: int) -> str:
        done = prefix.count("\n\n")
        return "The answer is 7." if done <= 5 else "The answer is 3."

    text = "\n\n".join([*(f"Step {at}." for at in range(15)), "The answer is 3."])
    found = {}
    for procedure in ("every", "until-error", "binary"):
        settings = LabelSettings(procedure=procedure, k=8, pass_rollouts=0)
        given = [{"question": "q", "answer": "7", "text": text}]
        report = run(tmp_path / procedure, given, generator=Policy(monotone), settings=settings, solution="text")
        (found[procedure],) = report.solutions
        assert report.solutions[0].first_error == 5
        assert report.summary.violations == 0
    spent = {name: each.spent.rollouts for name, each in found.items()}
    # 15 steps; 6 up to the error; 4 of a search among 15, of which the check after the error may be one.
    assert spent["every"] == 15 * 8
    assert spent["until-error"] == 6 * 8
    assert spent["binary"] in (4 * 8, 5 * 8)


def test_a_finished_job_generates_nothing_and_questions_can_be_added(tmp_path: Path) -> None:
    first = run(tmp_path / "out", limit=5)
    policy = Policy(write)
    again = run(tmp_path / "out", limit=5, generator=policy)
    assert (again.solutions, again.resumed, policy.requests) == (first.solutions, 5, [])
    assert run(tmp_path / "out").resumed == 5
    run(tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"settings": LabelSettings(k=5, samples=2, pass_rollouts=4, procedure="binary")}, "settings.k: 6 -> 5"),
        ({"generator": Policy(write, fingerprint="other")}, "generator.fingerprint: 'policy-1'"),
        ({"judge": Judge(default=0.9)}, "judge: None -> "),
    ],
)
def test_a_job_with_other_options_is_rejected_and_names_the_difference(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    run(tmp_path / "out", limit=2)
    before = content(tmp_path / "out")
    with pytest.raises(JobError, match=message):
        run(tmp_path / "out", limit=2, **changed)
    assert content(tmp_path / "out") == before
    run(tmp_path / "out", limit=2, fresh=True, **changed)


def test_a_changed_question_is_labelled_again(tmp_path: Path) -> None:
    run(tmp_path / "out", limit=3)
    changed = [rows()[0], rows()[1] | {"answer": "3"}, rows()[2]]
    report = run(tmp_path / "out", changed)
    assert (report.resumed, report.solutions[2].gold) == (2, "3")


def test_a_damaged_journal_costs_only_its_lines(tmp_path: Path) -> None:
    run(tmp_path / "out")
    whole = content(tmp_path / "out")
    journal = tmp_path / "out" / "_surefoot" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = lines[0] + b"{broken\n" + b"[1, 2]\n" + b'{"hash": "x", "solutions": []}\n'
    journal.write_bytes(damaged + b"".join(lines[4:7]) + lines[7][:100])
    assert run(tmp_path / "out").resumed == 4
    assert content(tmp_path / "out") == whole


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(JobError, match="not empty and holds no labelling"):
        run(tmp_path)


def test_labels_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def notebook() -> LabelReport:
        return run(tmp_path / "out", limit=1)

    assert len(asyncio.run(notebook()).solutions) == 2


KILLS = 20
CHILD = """
import sys, time
from pathlib import Path
from surefoot.generate.recorded import ReplayGenerator
from labelling.test_job import SETTINGS, label, rows

class Slowly(ReplayGenerator):
    async def generate(self, request):
        time.sleep(0.0005)
        return await super().generate(request)

label(rows(1000), Path(sys.argv[2]), generator=Slowly(sys.argv[1]), settings=SETTINGS, concurrency=4)
"""


def test_a_job_that_is_killed_again_and_again_gives_the_same_bytes(tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"
    run(tmp_path / "whole", rows(1000), generator=RecordingGenerator(Policy(write), recording))
    tests = str(Path(__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    journal, rng, kills = tmp_path / "out" / "_surefoot" / "journal.jsonl", random.Random(7), 0
    for _ in range(KILLS + 10):
        command = [sys.executable, "-c", CHILD, str(recording), str(tmp_path / "out")]
        child = subprocess.Popen(command, env=environment)
        before = journal.stat().st_size if journal.exists() else 0
        deadline = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline and kills < KILLS:
            if journal.exists() and journal.stat().st_size > before:
                time.sleep(rng.random() * 0.4)
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        ended = child.wait(300)  # a busy machine needs more than a minute for what is left
        kills += ended == -signal.SIGKILL
        if ended == 0:
            break
    assert ended == 0
    assert kills == KILLS
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert len(journal.read_bytes().splitlines()) == 1000, "no question was labelled twice"
    job = json.loads((tmp_path / "out" / "_surefoot" / "job.json").read_text())
    assert job["settings"]["k"] == 6


def test_the_budget_in_total_may_change_between_runs(tmp_path: Path) -> None:
    small = LabelSettings(k=6, samples=2, pass_rollouts=4, procedure="binary", budget=LabelBudget(total_calls=60))
    first = run(tmp_path / "out", settings=small, concurrency=3)
    assert 0 < len(first.solutions) < 24
    spent = [each.question_spent.rollouts for each in first.solutions[::2]]
    assert sum(spent[:-1]) < 60 <= sum(spent)
    run(tmp_path / "out")
    run(tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")
