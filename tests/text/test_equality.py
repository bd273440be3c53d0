"""Equality: when two answers are the same, when that is not decided, and that the time limit holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from surefoot.errors import InputError, MissingDependencyError, OptionError
from surefoot.text import math_verify_pool
from surefoot.text.equality import same_answer

# --- comparing without algebra -------------------------------------------------------------------------------------

SAME_AT_SIGHT = [
    ("5", "5"), ("5", " $5$. "), ("5", "\\boxed{5}"), ("5", "5.0"), ("5", "+5"), ("5", "05"), ("0.5", ".5"),
    ("5", "5."), ("18", "$18"), ("18", "\\$18"), ("-18", "-$18"), ("-18", "$-18"), ("1234.5", "1,234.50"),
    ("1234", "1{,}234"), ("1234", "1\\,234"), ("0.5", "\\frac{1}{2}"), ("\\frac{1}{2}", "\\dfrac12"),
    ("-0.5", "-\\frac{1}{2}"), ("0.5", "1/2"), ("-1/2", "\\frac{-1}{2}"), ("3/4", "6/8"), ("1.5", "1 1/2"),
    ("1.5", "1\\frac{1}{2}"), ("50%", "0.5"), ("50\\%", "1/2"), ("50%", "50"), ("-5", "\u22125"), ("1500", "1.5e3"),
    ("٣", "3"), ("Yes", "yes"), ("\\text{Monday}", "monday"), ("x + 1", "x  +  1"), ("\\left(1, 2\\right)", "(1, 2)"),
    ("\\tfrac{x}{2}", "\\frac{x}{2}"), ("x" * 10**6, "x" * 10**6),
    ("14", "14 eggs"), ("14", "14 people"), ("14", "$14 in total"), ("14", "14 dollars per day"), ("14", "14 Kids."),
    ("14", "14 apples left"), ("1,400", "1400 books"), ("0.5", "1/2 cups"), ("14", "14\\text{ eggs}"),
    ("14", "14 \\text{ cups}"), ("-3", "\u22123 points"), ("7", "7 boxes a day"),
]  # fmt: skip

DIFFERENT_AT_SIGHT = [
    ("5", "6"), ("5", "-5"), ("1/3", "0.333333"), ("1234", "1.234"), ("50%", "5"), ("1 1/2", "1"), ("1/2", "2"),
    ("", "5"), ("5", ""), ("", ""), ("5", "$$"), ("5", "5}"), ("{5", "5"), ("listen", "silent"),
    ("15", "14 eggs"), ("14", "-14 points"),
    ("Monday", "Tuesday"), ("5 dog", "5 god"), ("1" * 200, "1" * 199 + "2"), ("1e999", "1e998"),
]  # fmt: skip


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(math_verify_pool, "compare", refuse)


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize(("a", "b"), SAME_AT_SIGHT)
def test_same_at_sight(a: str, b: str) -> None:
    assert same_answer(a, b) is True
    assert same_answer(b, a) is True


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize(("a", "b"), DIFFERENT_AT_SIGHT)
def test_different_at_sight(a: str, b: str) -> None:
    assert same_answer(a, b) is False
    assert same_answer(b, a) is False


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize("long", ["1" * 10**6, "x+" * 5000, "\\sqrt{" * 10_000 + "2" + "}" * 10_000])
def test_what_is_too_long_is_not_decided(long: str) -> None:
    began = time.process_time()
    assert same_answer(long, "5") is None
    assert same_answer("5", long) is None
    assert time.process_time() - began < 3.0


HOSTILE = [
    "\\boxed{", "\\boxed{}", "\\boxed ", "the answer is ", "the answer is. ", "#### 5\n", "Final Answer:\n", "$", "*",
    "`", "\\[", "{", "}", "\\", "\n", " ", "1", "\\text{",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    text = unit * (250_000 // len(unit))
    # CPU time: a busy machine must not fail the test. Quadratic time would miss the bound by far.
    began = time.process_time()
    assert same_answer(text, text + "x") in (None, False)
    assert time.process_time() - began < 5.0


def test_numbers_of_up_to_300_characters_are_compared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(math_verify_pool, "compare", lambda *args: asked.append(args))
    ones = "1" * 299
    assert same_answer(ones, "0" + ones) is True
    assert same_answer("0" + ones, ones) is True
    assert not asked
    assert same_answer(ones, "00" + ones) is None
    assert same_answer("00" + ones, ones) is None
    assert len(asked) == 2


@pytest.mark.parametrize("bad", [None, 5, 5.0, ["5"]])
def test_answers_must_be_text(bad: Any) -> None:
    message = f"^same_answer\\(\\) expects two strings, but got {type(bad).__name__}.$"
    with pytest.raises(InputError, match=message):
        same_answer(bad, "5")
    with pytest.raises(InputError, match=message):
        same_answer("5", bad)


def test_bytes_must_be_decoded() -> None:
    with pytest.raises(InputError, match=r"but got bytes\. Decode the bytes first\.$"):
        same_answer("5", b"5")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e9, "3", None, True])
def test_the_limit_must_be_a_limit(timeout: Any) -> None:
    with pytest.raises(OptionError) as caught:
        same_answer("5", "6", timeout=timeout)
    assert str(caught.value) == f"timeout={timeout!r} must be a number of seconds above 0 and at most 3600."


# --- comparing with math-verify ------------------------------------------------------------------------------------

needs_math_verify = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import math_verify"], capture_output=True).returncode != 0,
    reason="math-verify is not installed",
)

# reference, answer, verdict
BY_ALGEBRA = [
    ("x+1", "1+x", True),
    ("x+1", "x+2", False),
    ("2\\sqrt{2}", "\\sqrt{8}", True),
    ("x^2", "x**2", True),
    ("2x", "x \\cdot 2", True),
    ("\\{1,2\\}", "\\{2,1\\}", True),
    ("(1,2)", "(2,1)", False),
    ("90", "90°", True),
    ("2π", "2\\pi", True),
    ("120", "5!", True),
    ("x=5", "5", True),
    ("\\begin{pmatrix}1\\\\ 2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", True),
    ("\\begin{pmatrix}1\\\\ 2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}", False),
    ("5", "I do not know", False),
    ("\ud800x", "x", False),
    # An unsolved inequality may restate the question: only as the reference does it accept an interval.
    ("2x+1<7", "(-\\infty,3)", True),
    ("(-\\infty,3)", "2x+1<7", False),
    # Nor is an equation in several terms its right side.
    ("2x+z=1", "1", False),
]


@needs_math_verify
@pytest.mark.parametrize(("reference", "answer", "same"), BY_ALGEBRA)
def test_by_algebra(reference: str, answer: str, same: bool) -> None:
    assert same_answer(reference, answer, timeout=30) is same


@needs_math_verify
@pytest.mark.parametrize(
    "hostile", ["9^{9^{9^{9}}}", "(10^{9})!", "((((9!)!)!)!)!", "\\sqrt{" * 250 + "2" + "}" * 250, "9**9**9**9"]
)
def test_the_limit_holds(hostile: str) -> None:
    same_answer("x+1", "1+x", timeout=30)  # a worker is running: its start is not part of what is timed
    began = time.monotonic()
    assert same_answer("5", hostile, timeout=0.5) in (None, False)
    assert time.monotonic() - began < 3.0
    assert same_answer("x+1", "1+x", timeout=30) is True


@needs_math_verify
def test_an_endless_comparison_is_not_decided() -> None:
    assert same_answer("5", "9^{9^{9^{9}}}", timeout=0.3) is None


@needs_math_verify
@pytest.mark.skipif(os.name == "nt", reason="reads a signal")
def test_the_caller_ends_a_comparison_itself() -> None:
    worker = math_verify_pool.Worker()
    try:
        assert worker.wait_until_ready()
        # The worker's own alarm, which would hide that the caller no longer kills, is set too late to ring first.
        request = {"gold": "5", "target": "9^{9^{9^{9}}}", "limit": 20.0}
        assert worker.exchange(request, 0.3) is None
        assert worker.process.wait(timeout=10) == -signal.SIGKILL
    finally:
        worker.stop()


@needs_math_verify
def test_no_code_is_run(tmp_path: Any) -> None:
    witness = tmp_path / "witness"
    same_answer("5", f"__import__('os').system('touch {witness}')", timeout=5)
    same_answer("5", f"\\text{{__import__('os').system('touch {witness}')}}", timeout=5)
    assert not witness.exists()


def workers() -> list[int]:
    return [worker.process.pid for worker in math_verify_pool.pool.workers]


@needs_math_verify
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_a_dead_worker_is_replaced() -> None:
    assert same_answer("x+1", "1+x", timeout=30) is True
    dead = workers()
    assert dead
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    assert same_answer("x+1", "1+x", timeout=30) is True
    assert not set(dead) & set(workers())


@needs_math_verify
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_a_worker_that_dies_at_work_gives_none() -> None:
    assert same_answer("x+1", "1+x", timeout=30) is True

    def kill() -> None:
        for pid in workers():
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(0.5, kill)
    timer.start()
    began = time.monotonic()
    assert same_answer("5", "9^{9^{9^{9}}}", timeout=60) is None
    assert time.monotonic() - began < 20
    timer.join()
    assert same_answer("x+1", "1+x", timeout=30) is True


@needs_math_verify
def test_many_threads_may_ask_at_once() -> None:
    def ask(at: int) -> bool | None:
        if at % 8 == 0:
            return same_answer("5", "9^{9^{9^{9}}}", timeout=0.3)
        return same_answer(f"x+{at}", f"{at}+x" if at % 2 else f"x+{at + 1}", timeout=30)

    with ThreadPoolExecutor(32) as threads:
        verdicts = list(threads.map(ask, range(32)))
    assert verdicts == [None if at % 8 == 0 else bool(at % 2) for at in range(32)]
    assert len(workers()) <= math_verify_pool.POOL_SIZE


@needs_math_verify
def test_waiting_for_a_worker_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verify_pool, "WAIT_LIMIT", 0.2)
    pool = math_verify_pool.Pool()
    held = [pool.slots.acquire(timeout=1) for _ in range(math_verify_pool.POOL_SIZE)]
    assert all(held)
    began = time.monotonic()
    assert pool.compare("x", "y", 5.0) is None
    assert time.monotonic() - began < 2


def run(code: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, **kwargs
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"


def gone(pids: list[int], within: float) -> bool:
    end = time.monotonic() + within
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.1)
    return not any(alive(pid) for pid in pids)


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@needs_math_verify
@on_linux
def test_no_worker_outlives_its_caller() -> None:
    code = """
        import os, sys
        from surefoot.text.equality import same_answer
        assert same_answer("x+1", "1+x", timeout=30) is True
        from surefoot.text import math_verify_pool
        print(*[worker.process.pid for worker in math_verify_pool.pool.workers], flush=True)
        END
    """
    quiet = run(code.replace("END", ""))
    assert (quiet.returncode, quiet.stderr) == (0, "")
    killed = run(code.replace("END", "os.kill(os.getpid(), 9)"))
    # A forked child that lives on must not keep the workers of its parent alive.
    forked = run(
        code.replace("END", "os.fork() or (os.close(1), os.close(2), __import__('time').sleep(8)); os._exit(0)")
    )
    # A worker in the middle of endless arithmetic, its caller gone, is ended by its own alarm.
    leave = "__import__('threading').Timer(0.5, os._exit, (0,)).start()"
    busy = run(code.replace("END", f"{leave}; same_answer('5', '9^{{9^{{9^{{9}}}}}}', timeout=1)"))
    for done in (quiet, killed, forked, busy):
        pids = [int(pid) for pid in done.stdout.split()]
        assert pids, done.stderr
        assert gone(pids, 5)


@needs_math_verify
@on_linux
def test_a_worker_has_its_own_session_and_a_memory_limit() -> None:
    assert same_answer("x+1", "1+x", timeout=30) is True
    for pid in workers():
        assert os.getsid(pid) == pid
        with open(f"/proc/{pid}/limits") as limits:
            space = next(line for line in limits if line.startswith("Max address space"))
        assert space.split()[3] == str(math_verify_pool.MEMORY_LIMIT)


@needs_math_verify
@on_linux
def test_it_works_after_a_fork_and_in_a_thread() -> None:
    done = run("""
        import os, threading, time
        from surefoot.text.equality import same_answer
        from surefoot.text import math_verify_pool
        assert same_answer("x+1", "1+x", timeout=30) is True
        # Every worker is busy when the process forks: the child must not wait for threads that it does not have.
        endless = threading.Thread(target=same_answer, args=("5", "9^{9^{9^{9}}}"), kwargs={"timeout": 4})
        busy = [endless] + [threading.Thread(target=math_verify_pool.pool.slots.acquire) for _ in range(8)]
        for thread in busy:
            thread.daemon = True
            thread.start()
        time.sleep(0.5)
        child = os.fork()
        if not child:
            verdicts = []
            thread = threading.Thread(target=lambda: verdicts.append(same_answer("x+1", "1+x", timeout=30)))
            thread.start(); thread.join()
            os._exit(0 if verdicts == [True] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for _ in range(math_verify_pool.POOL_SIZE):
            math_verify_pool.pool.slots.release()
        assert same_answer("x+2", "2+x", timeout=30) is True
    """)
    assert done.returncode == 0, done.stderr


@needs_math_verify
@on_linux
def test_it_works_in_a_daemonic_process() -> None:
    # multiprocessing allows no children in such a process; torch's DataLoader workers are daemonic.
    done = run("""
        import multiprocessing
        from surefoot.text.equality import same_answer
        def work():
            raise SystemExit(0 if same_answer("x+1", "1+x", timeout=30) is True else 1)
        process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
        process.start()
        process.join(60)
        print(process.exitcode)
    """)
    assert (done.stdout, done.stderr) == ("0\n", "")


@needs_math_verify
@on_linux
def test_it_works_without_standard_streams(tmp_path: Any) -> None:
    result = tmp_path / "result"
    done = run(f"""
        import os
        for fd in (0, 1, 2):
            os.close(fd)
        from surefoot.text.equality import same_answer
        verdicts = [same_answer("x+1", "1+x", timeout=30)]
        from surefoot.text import math_verify_pool
        pipes = [p.fileno() for w in math_verify_pool.pool.workers for p in (w.process.stdin, w.process.stdout)]
        verdicts.append(same_answer("5", "9^{{9^{{9^{{9}}}}}}", timeout=0.3))
        open({str(result)!r}, "w").write(repr((verdicts, len(pipes), min(pipes) > 2)))
    """)
    assert done.returncode == 0
    assert result.read_text() == "([True, None], 2, True)"


@needs_math_verify
def test_files_in_the_working_directory_are_not_imported(tmp_path: Any) -> None:
    for name in ("random", "sympy", "json", "math_verify"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    # A script without a __main__ guard: a worker that imported it again would start workers without end.
    script.write_text("from surefoot.text.equality import same_answer\nprint(same_answer('x+1', '1+x', timeout=30))\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_a_missing_package_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(math_verify_pool, "pool", math_verify_pool.Pool())
    with pytest.raises(MissingDependencyError) as caught:
        same_answer("x+1", "1+x")
    assert str(caught.value) == (
        'Comparing these answers needs math-verify (No module named math_verify). Run: pip install "surefoot[answers]"'
    )
    assert not workers()


def test_an_interpreter_without_a_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verify_pool, "pool", math_verify_pool.Pool())
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OptionError, match=r"sys\.executable is empty\. Set it first\.$"):
        same_answer("x+1", "1+x")


def test_a_worker_that_cannot_start_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_verify_pool, "pool", math_verify_pool.Pool())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert same_answer("x+1", "1+x") is None
    monkeypatch.setattr(sys, "executable", "/bin/true")
    assert same_answer("x+1", "1+x") is None
