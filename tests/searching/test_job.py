"""Searches over many questions: order, resuming after kill -9, changed options, failures."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.search_parties import Judge, Policy, random_policy
from surefoot.core.search_result import SearchRecord
from surefoot.errors import InputError, JobError, OptionError
from surefoot.evaluate import read_search_records
from surefoot.searching.job import SearchJobReport, search_many
from surefoot.searching.settings import Budget, SearchSettings

ROWS = [
    {"question": f"What is {number}?", "answer": f"So it is.\n#### {number % 3}", "id": number} for number in range(12)
]
SETTINGS = SearchSettings(n=4, branches=2)


def run(out: Path, rows: Any = ROWS, policy: Policy | None = None, **given: Any) -> SearchJobReport:
    arguments: dict[str, Any] = {"strategies": ("beam", "dvts"), "settings": SETTINGS, "gold": "answer"}
    return search_many(rows, out, generator=policy or random_policy(5), scorer=Judge(), **arguments | given)


def content(out: Path) -> bytes:
    return (out / "results.jsonl").read_bytes()


def test_records_are_in_the_order_of_the_input_whatever_runs_at_a_time(tmp_path: Path) -> None:
    report = run(tmp_path / "one", concurrency=1)
    assert [record.index for record in report.records] == list(range(12))
    assert [record.gold for record in report.records] == [str(number % 3) for number in range(12)]
    assert [record.id for record in report.records] == [str(number) for number in range(12)]
    run(tmp_path / "many", concurrency=7)
    assert content(tmp_path / "one") == content(tmp_path / "many")
    assert tuple(read_search_records(tmp_path / "many")) == report.records
    # A question alone gets the result that it gets among others.
    alone = run(tmp_path / "alone", [ROWS[5]])
    assert alone.records[0].searches == report.records[5].searches
    assert alone.records[0].samples == report.records[5].samples


def test_baselines_have_as_many_tokens_as_the_longest_search(tmp_path: Path) -> None:
    for record in run(tmp_path / "out").records:
        longest = max(search.spent.generated_tokens for search in record.searches.values())
        assert record.samples is not None
        assert record.greedy is not None
        spent = [node.tokens for node in record.samples.nodes]
        assert sum(spent) >= longest
        assert len(record.greedy.nodes) == 2
        texts = [node.text for node in record.samples.nodes[1:]]
        assert all(node.count == 1 for node in record.samples.nodes), "identical samples are kept apart"
        assert len(texts) >= 4


def test_a_best_of_n_is_the_first_n_of_the_samples(tmp_path: Path) -> None:
    for record in run(tmp_path / "out", strategies=("beam", "best-of-n")).records:
        assert record.samples is not None
        assert record.searches["best-of-n 4"].nodes[1:] == record.samples.nodes[1:5]
        assert record.searches["best-of-n 4"].spent.generated_tokens == sum(
            node.tokens for node in record.samples.nodes[:5]
        )


def test_without_baselines_nothing_else_is_generated(tmp_path: Path) -> None:
    policy = random_policy(5)
    (record,) = run(tmp_path / "out", ROWS[:1], policy, baselines=False, strategies=("best-of-n",)).records
    assert (record.samples, record.greedy) == (None, None)
    assert sum(request.n for request in policy.requests) == 4


def test_a_finished_job_generates_nothing_and_questions_can_be_added(tmp_path: Path) -> None:
    first = run(tmp_path / "out", limit=5)
    policy = random_policy(5)
    again = run(tmp_path / "out", limit=5, policy=policy)
    assert (again.records, again.resumed, policy.requests) == (first.records, 5, [])
    assert run(tmp_path / "out").resumed == 5
    run(tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"strategies": ("beam",)}, "strategies.dvts 2x2"),
        ({"settings": SearchSettings(n=4, branches=2, budget=Budget(tokens=9))}, r"budget.tokens: None -> 9"),
        (
            {"policy": Policy(random_policy(5).write, fingerprint="other")},
            "generator.fingerprint: 'policy-1'",
        ),
        ({"baselines": False}, "baselines: True -> False"),
    ],
)
def test_a_job_with_other_options_is_rejected_and_names_the_difference(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    run(tmp_path / "out", ROWS[:2])
    before = content(tmp_path / "out")
    with pytest.raises(JobError, match=message):
        run(tmp_path / "out", ROWS[:2], **changed)
    assert content(tmp_path / "out") == before
    run(tmp_path / "out", ROWS[:2], fresh=True, **changed)


def test_a_changed_question_is_searched_again(tmp_path: Path) -> None:
    run(tmp_path / "out", ROWS[:3])
    rows = [ROWS[0], ROWS[1] | {"question": "What else?"}, ROWS[2]]
    report = run(tmp_path / "out", rows)
    assert (report.resumed, report.records[1].question) == (2, "What else?")


def runs(out: Path) -> int:
    return len((out / "_surefoot" / "journal.jsonl").read_text().splitlines())


def test_a_generator_that_is_gone_stops_the_job_and_nothing_is_lost(tmp_path: Path) -> None:
    good = random_policy(5)
    policy = Policy(lambda prefix, seed: "ERROR" if len(policy.requests) > 60 else good.write(prefix, seed))
    with pytest.raises(JobError, match=r"4 questions in a row failed: the policy is asleep"):
        run(tmp_path / "out", policy=policy, concurrency=2)
    assert 4 < runs(tmp_path / "out") < 4 * 12
    again = random_policy(5)
    assert 0 < run(tmp_path / "out", policy=again).resumed < 12
    whole = random_policy(5)
    run(tmp_path / "whole", policy=whole)
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert len(again.requests) < len(whole.requests) - 40, "finished searches are not repeated"


def test_questions_that_always_fail_do_not_block_the_others(tmp_path: Path) -> None:
    good = random_policy(5)

    def write(prefix: str, seed: int) -> str:
        bad = policy.requests[-1].question in ("What is 0?", "What is 1?", "What is 2?")
        return "ERROR" if bad else good.write(prefix, seed)

    policy = Policy(write)
    report = run(tmp_path / "out", policy=policy, concurrency=8)
    assert (report.failed, len(report.records)) == (3, 9)


def test_a_scorer_that_cannot_score_is_not_taken_for_a_failure_of_the_generator(tmp_path: Path) -> None:
    policy = Policy(lambda prefix, seed: "No number\n\nIt is \\boxed{1}.")
    report = run(tmp_path / "out", policy=policy)
    assert (report.failed, len(report.records)) == (0, 12)
    assert {search.answer for record in report.records for search in record.searches.values()} == {None}
    assert "the judge has no opinion" in report.records[0].searches["beam 2x2"].warnings[0]


def test_a_best_of_n_with_a_budget_keeps_to_it(tmp_path: Path) -> None:
    settings = SearchSettings(n=4, budget=Budget(tokens=20))
    for record in run(tmp_path / "out", strategies=("best-of-n",), settings=settings).records:
        assert record.searches["best-of-n 4"].spent.generated_tokens <= 20
        assert record.samples is not None
        assert record.samples.spent.generated_tokens >= record.searches["best-of-n 4"].spent.generated_tokens


def test_one_question_that_fails_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    good, broken = random_policy(5), {"now": True}

    def write(prefix: str, seed: int) -> str:
        return "ERROR" if broken["now"] and policy.requests[-1].question == "What is 4?" else good.write(prefix, seed)

    policy = Policy(write)
    report = run(tmp_path / "out", policy=policy)
    assert (report.failed, len(report.records)) == (1, 11)
    broken["now"] = False
    assert run(tmp_path / "out", policy=policy).failed == 0
    run(tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.parametrize(
    ("rows", "given", "error", "message"),
    [
        ([], {}, InputError, "no question"),
        ([{"text": "x"}], {}, InputError, r"row 0 \(from 0\): `question` is missing"),
        ([{"question": "x"}], {}, InputError, "`answer` is missing"),
        (ROWS, {"strategies": ()}, OptionError, "Name one or more"),
        (ROWS, {"strategies": ("beam", "beam")}, OptionError, "different strategies"),
        (ROWS, {"concurrency": 0}, OptionError, "concurrency=0"),
        (ROWS, {"concurrency": 1.5}, OptionError, "concurrency=1.5"),
        (ROWS, {"limit": -1}, OptionError, "limit=-1"),
        (ROWS, {"seed": "x"}, OptionError, "seed='x'"),
        (ROWS, {"settings": {"n": 4}}, OptionError, "pass surefoot.SearchSettings"),
        ("nowhere.jsonl", {}, InputError, "nowhere.jsonl"),
    ],
)
def test_a_wrong_call_fails_before_anything_is_written(
    tmp_path: Path, rows: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path / "out", rows, **given)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(JobError, match="not empty and holds no search"):
        run(tmp_path)


def test_a_damaged_journal_costs_only_its_lines(tmp_path: Path) -> None:
    run(tmp_path / "out")
    whole = content(tmp_path / "out")
    journal = tmp_path / "out" / "_surefoot" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 12 * 4  # two searches and two baselines each
    foreign = b'{"index": 99, "run": "beam 2x2", "hash": "", "result": {}}\n'
    journal.write_bytes(b"{broken\n" + b"[1, 2]\n" + foreign + b"".join(lines[3:40]) + lines[40][:100])
    policy = random_policy(5)
    assert 0 < run(tmp_path / "out", policy=policy).resumed < 12
    assert policy.requests
    assert content(tmp_path / "out") == whole


CHILD = """
import sys, time
from pathlib import Path
from helpers.search_parties import Judge, Policy, random_policy
from searching.test_job import ROWS, run

good = random_policy(5)

def slowly(prefix, seed):
    time.sleep(0.002)
    return good.write(prefix, seed)

run(Path(sys.argv[1]), policy=Policy(slowly), concurrency=4)
"""


def test_a_job_that_is_killed_again_and_again_gives_the_same_bytes(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    rng = random.Random(7)
    tests = str(Path(__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    kills = 0
    for _ in range(40):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "out")], env=environment)
        journal = tmp_path / "out" / "_surefoot" / "journal.jsonl"
        before = journal.stat().st_size if journal.exists() else 0
        deadline = time.monotonic() + 60
        # Kill it at a random moment after it has made some progress.
        while child.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.stat().st_size > before:
                time.sleep(rng.random() * 0.1)
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        kills += child.wait() == -signal.SIGKILL
        if child.returncode == 0:
            break
    assert child.returncode == 0
    assert kills >= 2
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    seen: list[str] = []

    def write(prefix: str, seed: int) -> str:
        if not seen:
            seen.append("here")
            with pytest.raises(JobError, match="is in use by process"):
                run(tmp_path / "out", ROWS[:1])
        return random_policy(5).write(prefix, seed)

    run(tmp_path / "out", ROWS[:1], Policy(write))
    assert seen


def test_a_record_survives_json(tmp_path: Path) -> None:
    for record in run(tmp_path / "out", ROWS[:2]).records:
        assert SearchRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
