"""Faults of bulk jobs, for real: SIGKILL at random moments, a full disk, damaged files, dead workers, two runs at once.

Every job has to end with the files of a run that nothing disturbed, to the last bit.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import surefoot
from helpers.bulk import content, die, parts, results, run_job, sums, write_jsonl
from surefoot.errors import JobError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc, SIGKILL and tmpfs")

ROUNDS = 30
SECONDS = 120.0
"""After which a test gives up."""

PROCESSES = get_context("forkserver")
# What takes long to import is imported once, so that a killed process costs only the loading of its model.
PROCESSES.set_forkserver_preload(
    ["helpers.bulk", "surefoot.jobs.bulk", "surefoot.scoring.local", "transformers.models.qwen2.modeling_qwen2"]
)


def start(source: Path, out: Path, options: dict[str, Any]) -> BaseProcess:
    process = PROCESSES.Process(target=run_job, args=(source, out, options))
    process.start()
    return process


def finish(source: Path, out: Path, options: dict[str, Any]) -> float:
    """Run a job in a process of its own, to its end. Returns how long it took."""
    started = time.monotonic()
    process = start(source, out, options)
    process.join(SECONDS)
    assert process.exitcode == 0
    return time.monotonic() - started


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows: list[Any] = list(sums(questions=12, solutions=4))
    rows[5:5] = ["{bad"]
    rows[30:30] = ['{"question": "What?"}']
    return write_jsonl(tmp_path / "in.jsonl", rows)


JOBS: dict[str, dict[str, Any]] = {
    "all rows": {"unit_rows": 4},
    "filter": {"unit_rows": 4, "filter": "row.id != '3-1'"},
    "groups": {"unit_rows": 4, "best_of": 2, "format": "jsonl"},
}


@pytest.mark.parametrize("name", JOBS)
def test_killed_at_random_moments(name: str, source: Path, tmp_path: Path, checkpoint: Path) -> None:
    options = JOBS[name] | {"model": str(checkpoint)}
    finish(source, tmp_path / "whole", options)
    expected = content(tmp_path / "whole")
    seconds = finish(source, tmp_path / "timed", options)
    out = tmp_path / "out"
    rng, killed, until = random.Random(name), 0, time.monotonic() + 5 * SECONDS
    while killed < ROUNDS // len(JOBS):
        assert time.monotonic() < until
        process = start(source, out, options)
        process.join(rng.uniform(0, seconds))
        if process.exitcode is None:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join(SECONDS)
        assert process.exitcode in (0, -signal.SIGKILL)
        # Whatever is there is whole and right.
        assert {part.name: part.read_bytes() for part in parts(out)}.items() <= expected.items()
        if process.exitcode == 0:
            assert content(out) == expected
            shutil.rmtree(out)
    finish(source, out, options)
    assert content(out) == expected
    assert not list(out.rglob(".*.tmp"))


def test_killed_while_it_selects_again(source: Path, tmp_path: Path, checkpoint: Path) -> None:
    model = {"model": str(checkpoint)}
    finish(source, tmp_path / "all", model | {"unit_rows": 4})
    finish(source, tmp_path / "whole", model | {"unit_rows": 4, "filter": "row.id != '3-1'"})
    again = {"refilter": True, "filter": "row.id != '3-1'"}
    shutil.copytree(tmp_path / "all", tmp_path / "timed")
    seconds = finish(source, tmp_path / "timed", again)
    rng = random.Random(0)
    for round in range(8):
        out = tmp_path / f"out-{round}"
        shutil.copytree(tmp_path / "all", out)
        process = start(source, out, again)
        process.join(rng.uniform(0, seconds))
        assert process.pid is not None
        process.kill()
        process.join(SECONDS)
        finish(source, out, again)
        assert content(out) == content(tmp_path / "whole")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(source: Path, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    surefoot.bulk(source, tmp_path / "whole", model=scorer, unit_rows=4)
    with small_disk(tmp_path / "disk") as disk:
        out = disk / "out"
        (disk / "filler").write_bytes(b"x" * (250 << 10))
        with pytest.raises(JobError, match=r"cannot be written: No space left.*Free some space and run the same"):
            surefoot.bulk(source, out, model=scorer, unit_rows=4)
        finished = len(parts(out))
        assert not list(out.rglob(".*.tmp"))
        for part in parts(out):
            pq.ParquetFile(part).read()
        (disk / "filler").unlink()
        report = surefoot.bulk(source, out, model=scorer, unit_rows=4)
        assert 0 < report.resumed_units <= finished < report.units
        assert content(out) == content(tmp_path / "whole")


def limit_file_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))


def test_a_file_that_may_not_grow(source: Path, tmp_path: Path, checkpoint: Path) -> None:
    """The same for users who cannot mount a small disk: the system refuses to write more than 9,000 bytes."""
    command = [
        sys.executable,
        "-m",
        "surefoot.cli",
        "bulk",
        str(source),
        str(tmp_path / "out"),
        "--model",
        str(checkpoint),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=limit_file_size, check=False, timeout=SECONDS
    )
    assert done.returncode == 2
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not parts(tmp_path / "out")
    assert subprocess.run(command, capture_output=True, check=False, timeout=SECONDS).returncode == 1  # two bad rows
    assert len(results(tmp_path / "out")) == 48


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a flipped bit in a part": ("part-000002.*", flip),
    "half a part": ("part-000002.*", lambda path: os.truncate(path, 100)),
    "a lost part": ("part-000002.*", Path.unlink),
    "a flipped bit in the errors": ("_surefoot/errors/part-000001.jsonl", flip),
    "a lost journal": ("_surefoot/journal.jsonl", Path.unlink),
    "half a line in the journal": ("_surefoot/journal.jsonl", lambda path: os.truncate(path, path.stat().st_size - 9)),
    "a damaged journal": ("_surefoot/journal.jsonl", flip),
    "lost progress": ("_surefoot/progress.json", Path.unlink),
}


@pytest.mark.parametrize("job", ["all rows", "filter"])
@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_made_again(
    name: str, job: str, source: Path, tmp_path: Path, scorer: surefoot.Scorer
) -> None:
    surefoot.bulk(source, tmp_path / "out", model=scorer, **JOBS[job])
    expected = content(tmp_path / "out")
    pattern, damage = DAMAGES[name]
    (path,) = (tmp_path / "out").glob(pattern)
    damage(path)
    surefoot.bulk(source, tmp_path / "out", model=scorer, **JOBS[job])
    assert content(tmp_path / "out") == expected


def test_damaged_scores_behind_a_filter_are_made_again(source: Path, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    surefoot.bulk(source, tmp_path / "out", model=scorer, **JOBS["filter"])
    expected = content(tmp_path / "out")
    flip(tmp_path / "out" / "_surefoot" / "scored" / "part-000002.parquet")
    with pytest.raises(JobError, match="1 of 12 units are not scored"):
        surefoot.bulk(source, tmp_path / "out", refilter=True, filter="min > 0")
    surefoot.bulk(source, tmp_path / "out", model=scorer, fresh=True, **JOBS["filter"])
    assert content(tmp_path / "out") == expected


def test_a_damaged_job_says_what_to_do(source: Path, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    for name in ("job.json", "plan.parquet"):
        surefoot.bulk(source, tmp_path / "out", model=scorer, fresh=True)
        os.truncate(tmp_path / "out" / "_surefoot" / name, 20)
        with pytest.raises(JobError, match="cannot be read: .*Start anew with fresh=True"):
            surefoot.bulk(source, tmp_path / "out", model=scorer)


def test_one_run_at_a_time(source: Path, tmp_path: Path, checkpoint: Path, scorer: surefoot.Scorer) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"model": str(checkpoint), "unit_rows": 1}
    process = start(source, out, options)
    until = time.monotonic() + SECONDS
    while not parts(out):
        assert time.monotonic() < until
        time.sleep(0.01)
    with pytest.raises(JobError, match=rf"in use by process {process.pid} on .* since"):
        surefoot.bulk(source, out, **options)
    assert "running by process" in status(out)
    process.kill()
    process.join(SECONDS)
    assert "stopped" in status(out)
    surefoot.bulk(source, out, **options)  # the lock has ended with its process
    assert "finished" in status(out)


def status(out: Path) -> str:
    from surefoot.jobs.status import job_status

    return job_status(out).text()


def children(pid: int) -> set[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each) for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()}


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_for(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def test_workers_that_die(source: Path, tmp_path: Path, checkpoint: Path) -> None:
    """One worker is killed in the middle; then the process that started them, which takes the others with it."""
    options = {"model": str(checkpoint), "unit_rows": 2}
    finish(source, tmp_path / "whole", options)
    out = tmp_path / "out"
    process = start(source, out, options | {"workers": 2})
    assert process.pid is not None
    wait_for(lambda: len(parts(out)) > 2)
    os.kill(children(process.pid).pop(), signal.SIGKILL)
    before = len(parts(out))
    wait_for(lambda: len(parts(out)) > before + 2 or process.exitcode is not None)
    workers = children(process.pid) if process.exitcode is None else set()
    os.kill(process.pid, signal.SIGKILL)
    process.join(SECONDS)
    wait_for(lambda: not any(map(is_alive, workers)))
    finish(source, out, options | {"workers": 2})
    assert content(out) == content(tmp_path / "whole")  # to the last bit, however many workers there were
    told = json.loads((out / "_surefoot" / "progress.json").read_text())
    assert (told["state"], told["rows"], told["total_rows"], told["bad_rows"]) == ("finished", 50, 50, 2)


def test_a_worker_that_always_dies_stops_the_job(
    source: Path, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surefoot.jobs import local

    monkeypatch.setattr(local, "_run", die)
    with pytest.raises(JobError, match="3 workers died while they scored unit"):
        surefoot.bulk(source, tmp_path / "out", model=str(checkpoint), workers=2, unit_rows=24)
    monkeypatch.undo()
    assert surefoot.bulk(source, tmp_path / "out", model=str(checkpoint), unit_rows=24).rows == 48


def test_errors_of_a_worker_arrive_as_they_are(source: Path, tmp_path: Path) -> None:
    with pytest.raises(surefoot.SurefootError, match="no-such-model"):
        surefoot.bulk(source, tmp_path / "out", model=str(tmp_path / "no-such-model"), workers=2)
