"""The number of threads of a computation, and that the rest of the process keeps its own."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot
from surefoot.engine import thread_limit
from surefoot.engine.cpu_load import Counters, LoadMeter
from surefoot.engine.thread_limit import ThreadLimit, fix_threads, fixed_threads, threads_here
from surefoot.engine.threads import THREAD_VARIABLES
from surefoot.errors import OptionError
from surefoot.scoring.local import load_local

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MKL_"))}
ITEM = ("What is 2 + 3?", ["2 + 3 = 5.", "So the answer is 5."])


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(thread_limit, "_fixed", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def meter(free: float) -> LoadMeter:
    """A meter on which this many CPUs are free. Time stands still, so that stays so."""
    still = Counters(0.0, None, 0.0, 0.0, 0.0)
    return LoadMeter(read=lambda: still, cpus=lambda: 64, free=free, _start=still)


def in_new_thread() -> int:
    """Torch's number of threads in a thread that is started now."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(
    ("free", "threads", "expected"),
    [
        (math.inf, None, 2),
        (2.0, None, 2),
        (1.7, None, 2),
        (1.5, None, 2),
        (1.4, None, 1),
        (0.2, None, 1),
        (0.0, None, 1),
        (0.0, 2, 2),  # a chosen number does not depend on the load
        (64.0, 1, 1),
        (64.0, 3, 3),
    ],
)
def test_a_computation_has_as_many_threads_as_free_cpus(free: float, threads: int | None, expected: int) -> None:
    with ThreadLimit(threads, meter(free)).applied() as chosen:
        assert chosen == torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("how", ["environment", "compiled", "fixed", "fixed for ever"])
def test_the_load_does_not_matter_where_a_number_is_chosen(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    if how == "fixed for ever":
        fix_threads()
    busy = ThreadLimit(None, meter(0.0))
    if how == "fixed":
        with fixed_threads(), busy.applied() as chosen:
            assert chosen == torch.get_num_threads() == 2
        with busy.applied() as chosen:
            assert chosen == 1
        return
    with busy.applied(adapt=how != "compiled") as chosen:
        assert chosen == torch.get_num_threads() == 2


def test_other_threads_keep_their_number() -> None:
    with threads_here(1):
        assert torch.get_num_threads() == 1
        assert in_new_thread() == 2
    assert torch.get_num_threads() == in_new_thread() == 2


def test_a_number_that_other_code_sets_meanwhile_stays() -> None:
    with threads_here(1):
        setter = threading.Thread(target=torch.set_num_threads, args=(3,))
        setter.start()
        setter.join()
    assert torch.get_num_threads() == 2
    assert in_new_thread() == 3


def test_an_error_restores_the_number() -> None:
    with pytest.raises(ZeroDivisionError), fixed_threads(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == in_new_thread() == 2
    with ThreadLimit(None, meter(0.0)).applied() as chosen:
        assert chosen == 1  # no longer fixed


@pytest.mark.parametrize(
    ("threads", "free", "expected"), [("auto", 1.0, 1), ("auto", 2.0, 2), (1, 2.0, 1), (2, 0.0, 2)]
)
def test_a_scorer_computes_with_its_threads_and_restores_them(
    threads: Any, free: float, expected: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = load_local(tiny, device="cpu", threads=threads)
    monkeypatch.setattr(scorer.engine._threads, "_meter", meter(free))
    seen: list[int] = []
    scorer.engine.backbone.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    scores = scorer.score(*ITEM).step_scores
    session = scorer.session(ITEM[0])
    assert session.score([ITEM[1]])[0].step_scores == pytest.approx(scores, abs=1e-5)
    assert set(seen) == {expected}
    assert torch.get_num_threads() == in_new_thread() == 2


@pytest.mark.parametrize("threads", [0, -1])
def test_an_impossible_number(threads: int, tiny: Path) -> None:
    with pytest.raises(OptionError, match="Pass a number above 0, or 'auto'"):
        surefoot.load(str(tiny), threads=threads)


def test_a_bulk_job_does_not_adapt_and_restores_the_number(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = load_local(tiny, device="cpu")
    monkeypatch.setattr(scorer.engine._threads, "_meter", meter(0.0))
    seen: list[int] = []
    scorer.engine.backbone.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    source = tmp_path / "in.jsonl"
    source.write_text('{"question": "What is 2 + 3?", "solution": "2 + 3 = 5."}\n')
    surefoot.bulk(source, tmp_path / "out", model=scorer)
    surefoot.bulk(source, tmp_path / "one", model=scorer, threads=1)
    assert seen == [2, 1]
    assert torch.get_num_threads() == 2


BUSY = '''
import subprocess, sys, time, torch, surefoot
scorer = surefoot.load()
torch.set_num_threads(2)
seen = []
scorer.engine.backbone.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
loop = """
import os, time
end, parent = time.monotonic() + 60, os.getppid()
while time.monotonic() < end and os.getppid() == parent: pass
"""
busy = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(3)]
try:
    time.sleep(1)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        scorer.score("What is 2 + 3?", ["2 + 3 = 5.", "So the answer is 5."])
finally:
    for each in busy:
        each.kill()
        each.wait()
print(seen[-1], torch.get_num_threads())
'''


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell the load")
def test_a_busy_machine_lowers_the_number() -> None:
    """Three real processes keep two CPUs busy."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    child = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {cpus})\n{BUSY}"],
        env=PLAIN,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["1", "2"]
