"""Corrections on disk: durable, in order, and never applied to other texts than those that a person saw."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.review_folder import solutions, write_labels
from surefoot.core.labels import LabelledSolution
from surefoot.errors import JobError
from surefoot.labelling.review import corrected
from surefoot.labelling.review.corrections import Change, ConflictError, Corrections
from surefoot.labelling.review.labels import key_of

FIRST, SECOND = key_of(solutions()[0]), key_of(solutions()[1])


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "corrections.jsonl").read_text().splitlines()]


def test_the_last_line_on_a_step_counts(tmp_path: Path) -> None:
    store = Corrections(tmp_path)
    assert store.save(FIRST, [Change(0, "right", None)]) == {0: "right"}
    assert store.save(FIRST, [Change(0, "wrong", "right"), Change(2, "unsure", None)]) == {0: "wrong", 2: "unsure"}
    assert store.save(SECOND, [Change(0, "right", None)]) == {0: "right"}
    assert store.save(FIRST, [Change(2, None, "unsure")]) == {0: "wrong"}
    assert Corrections(tmp_path).current() == {FIRST: {0: "wrong"}, SECOND: {0: "right"}}
    found = lines(tmp_path)
    assert [(line["number"], line["step"], line["verdict"]) for line in found] == [
        (0, 0, "right"),
        (0, 0, "wrong"),
        (0, 2, "unsure"),
        (1, 0, "right"),
        (0, 2, None),
    ]
    assert {line["hash"] for line in found if line["number"] == 0} == {FIRST.hash}
    assert all(line["time"].endswith("+00:00") for line in found)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"index": 0, "number": 0, "ha',
        # Whole but for the line break: it was never confirmed to the person, so it must not appear later either.
        json.dumps({**vars(FIRST), "step": 1, "verdict": "wrong", "time": ""}).encode(),
    ],
)
def test_a_torn_last_line_is_ignored_and_replaced(tmp_path: Path, torn: bytes) -> None:
    Corrections(tmp_path).save(FIRST, [Change(0, "right", None)])
    with (tmp_path / "corrections.jsonl").open("ab") as stream:
        stream.write(torn)
    store = Corrections(tmp_path)
    assert store.of(FIRST) == {0: "right"}
    assert store.save(FIRST, [Change(2, "wrong", None)]) == {0: "right", 2: "wrong"}
    assert [line["step"] for line in lines(tmp_path)] == [0, 2]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "5",
        "[" * 100_000,
        '{"index": 0}',
        json.dumps({**vars(FIRST), "step": True, "verdict": "wrong"}),
        json.dumps({**vars(FIRST), "step": -1, "verdict": "wrong"}),
        json.dumps({**vars(FIRST), "step": 0, "verdict": "maybe"}),
        json.dumps({**vars(FIRST), "step": 0, "verdict": ["wrong"]}),
        json.dumps({**vars(FIRST), "hash": [], "step": 0, "verdict": "wrong"}),
        "\u2028",
    ],
)
def test_a_damaged_line_is_skipped(tmp_path: Path, line: str) -> None:
    good = json.dumps({**vars(FIRST), "step": 1, "verdict": "wrong", "time": ""})
    (tmp_path / "corrections.jsonl").write_text(f"{line}\n{good}\n", encoding="utf-8")
    store = Corrections(tmp_path)
    assert store.current() == {FIRST: {1: "wrong"}}
    assert store.damaged == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda one: replace(one, question="Another one?"),
        lambda one: replace(one, steps=(replace(one.steps[0], text="12 * 2 = 25.\n\n"), *one.steps[1:])),
        lambda one: replace(one, steps=one.steps[:2]),
        lambda one: replace(one, number=7),
    ],
)
def test_corrections_do_not_apply_to_changed_labels(tmp_path: Path, other: Any) -> None:
    before = solutions()
    Corrections(write_labels(tmp_path)).save(FIRST, [Change(0, "wrong", None)])
    assert corrected(tmp_path).solutions[0].first_error == 0
    write_labels(tmp_path, [other(before[0]), *before[1:]])
    found = corrected(tmp_path)
    assert found.solutions[0].first_error == -1
    assert (found.summary.not_applied, found.summary.changed) == (1, 0)
    # They are kept, for the case that the labels come back.
    write_labels(tmp_path, before)
    assert corrected(tmp_path).solutions[0].first_error == 0


def test_new_labels_of_the_same_text_keep_the_corrections(tmp_path: Path) -> None:
    before = solutions()
    Corrections(write_labels(tmp_path)).save(FIRST, [Change(0, "wrong", None)])
    again = replace(before[0], steps=(replace(before[0].steps[0], hard=False), *before[0].steps[1:]))
    write_labels(tmp_path, [again])
    assert corrected(tmp_path).summary.confirmed == 1


def test_a_change_of_another_page_is_not_overwritten(tmp_path: Path) -> None:
    mine, theirs = Corrections(tmp_path), Corrections(tmp_path)
    mine.save(FIRST, [Change(0, "right", None)])
    theirs.save(FIRST, [Change(1, "wrong", None)])
    with pytest.raises(ConflictError, match="Step 2 was changed on another page: it is wrong now"):
        mine.save(FIRST, [Change(0, "wrong", "right"), Change(1, "right", None)])
    assert mine.of(FIRST) == theirs.of(FIRST) == {0: "right", 1: "wrong"}, "all changes or none"


WRITER = """
import sys
from pathlib import Path
from surefoot.labelling.review.corrections import Change, ConflictError, Corrections
from surefoot.labelling.review.labels import SolutionKey
store, won = Corrections(Path(sys.argv[1])), 0
own, shared = SolutionKey(int(sys.argv[2]), 0, "own"), SolutionKey(9, 9, "x")
print("ready", flush=True)
input()
for step in range(60):
    store.save(own, [Change(step, "right", None)])
    try:
        store.save(shared, [Change(step, "wrong", None)])
        won += 1
    except ConflictError:
        pass
print(won)
"""


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    """Each writes 60 steps of its own, and both try the same 60 steps, of which exactly one of them may change each."""
    commands = [[sys.executable, "-c", WRITER, str(tmp_path), str(which)] for which in range(2)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for command in commands]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(process.communicate(timeout=120)[0]) for process in processes]
    found = lines(tmp_path)  # raises if two lines are mixed
    assert (sum(won), len(found)) == (60, 180)
    assert sorted(line["step"] for line in found if line["hash"] == "x") == list(range(60))
    assert sorted(len(opinions) for opinions in Corrections(tmp_path).current().values()) == [60, 60, 60]


def test_threads_write_at_the_same_time(tmp_path: Path) -> None:
    store = Corrections(tmp_path)

    def write(offset: int) -> None:
        for step in range(offset, 40, 4):
            store.save(FIRST, [Change(step, "wrong", None)])

    threads = [threading.Thread(target=write, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["step"] for line in lines(tmp_path)) == list(range(40))
    assert len(store.of(FIRST)) == 40


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the data is synced: half of it may be in the file by then."""
    store = Corrections(tmp_path)
    store.save(FIRST, [Change(0, "right", None)])

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(JobError, match=r"corrections\.jsonl cannot be written: No space left .* is not saved"):
            store.save(FIRST, [Change(1, "wrong", None)])
    assert store.of(FIRST) == {0: "right"}
    assert len(lines(tmp_path)) == 1
    assert store.save(FIRST, [Change(1, "wrong", None)]) == {0: "right", 1: "wrong"}


def test_a_deleted_file_is_an_empty_one(tmp_path: Path) -> None:
    store = Corrections(tmp_path)
    store.save(FIRST, [Change(0, "right", None)])
    (tmp_path / "corrections.jsonl").unlink()
    assert store.current() == {}
    assert store.save(FIRST, [Change(1, "right", None)]) == {1: "right"}


def test_labels_are_never_touched_and_texts_never_written(tmp_path: Path) -> None:
    hostile = 'a"}\n{"index": 0, "verdict": "wrong"\u2028\ud800</script>'
    one = solutions()[0]
    steps = (replace(one.steps[0], text=hostile), *one.steps[1:])
    data = json.dumps(
        replace(one, question=hostile, gold=hostile, steps=steps).to_dict()
    )  # a lone surrogate is escaped
    (tmp_path / "labels.jsonl").write_text(data + "\n")
    before = (tmp_path / "labels.jsonl").read_bytes()
    key = key_of(LabelledSolution.from_dict(json.loads(data)))
    Corrections(tmp_path).save(key, [Change(0, "wrong", None)])
    assert (tmp_path / "labels.jsonl").read_bytes() == before
    (line,) = lines(tmp_path)
    assert set(line) == {"index", "number", "hash", "step", "verdict", "time"}
    assert corrected(tmp_path).write(tmp_path / "out.jsonl") == 1
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (row["question"], row["targets"]) == (hostile, [0.0, None, None])
