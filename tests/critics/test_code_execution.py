"""Code of a critic runs without network and with limits, and only if that was asked for."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from critics.test_critics import GENPRM, QUESTION, STEPS, write_r1

import surefoot
from helpers.policies import START, Table
from surefoot.critics.code_execution import TIMED_OUT, CodeSession, require_isolation
from surefoot.errors import OptionError

try:
    require_isolation()
    ISOLATED = True
except OptionError:
    ISOLATED = False

needs_isolation = pytest.mark.skipif(not ISOLATED, reason="this system has no user namespaces")


def run(code: str, *earlier: str) -> str:
    return asyncio.run(CodeSession(earlier).run(code))


@needs_isolation
@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(5 * 4)", "20"),
        ("x = 1", ""),
        ("1 / 0", "Code execute Error: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "Code execute Error: SystemExit: 3"),
        ("print('x' * 1000000)", "x" * 10_000),
        ("while True: pass", TIMED_OUT),
    ],
)
def test_what_code_prints(code: str, output: str) -> None:
    assert run(code) == output


@needs_isolation
def test_later_blocks_know_the_names_of_earlier_ones() -> None:
    assert run("print(price * 5)", "price = 4", "print('ignored')") == "20"


@needs_isolation
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', {port}), 3)", "OSError|ConnectionRefused|unreachable"),
        ("b = bytearray(3 << 30)", "MemoryError"),
        ("import os; os.fork()", "BlockingIOError|PermissionError"),
        ("open('big', 'wb').write(bytes(5 << 20))", "OSError"),
    ],
)
def test_limits(code: str, error: str) -> None:
    import re
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        output = run(code.replace("{port}", str(server.getsockname()[1])))
    assert re.search(error, output) or output == TIMED_OUT, output


@needs_isolation
def test_the_environment_and_the_folder_are_not_those_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert run("import os; print(os.environ.get('OPENAI_API_KEY'), os.listdir('.'))") == "None []"


@needs_isolation
def test_genprm_reads_the_output_of_its_code(tmp_path: Path) -> None:
    table: Table = {
        **GENPRM,
        START: {"It is fine.</analyze>\n": 1.0},
        "```python\n": {"print(5 * 4)\n```\n": 1.0},
        "[Code Output]\n\n```\n20\n```\n": {"</verify>\n<output>\n**Judgement**: $\\boxed": 1.0},
        "</verify>\n<output>\n**Judgement**: $\\boxed": {b"{": 1.0},
    }
    folder = write_r1(tmp_path / "model", table)
    scorer = surefoot.load(folder, critic="genprm", critic_options={"code": "run"})
    result = scorer.score(QUESTION, STEPS[:1])
    assert result.step_scores == pytest.approx([0.8], abs=1e-5)


@needs_isolation
def test_a_critic_that_never_stops_coding_falls_back_to_its_analysis(tmp_path: Path) -> None:
    table: Table = {
        **GENPRM,
        "```python\n": {"print(1)\n```\n": 1.0},
        "```\n": {"```python\n": 1.0},
    }
    folder = write_r1(tmp_path / "model", table)
    result = surefoot.load(folder, critic="genprm", critic_options={"code": "run"}).score(QUESTION, STEPS[:1])
    assert result.step_scores == pytest.approx([0.8], abs=1e-5)


@pytest.mark.skipif(sys.platform.startswith("linux"), reason="Linux can run code")
def test_other_systems_refuse_to_run_code() -> None:
    with pytest.raises(OptionError, match="needs Linux"):
        CodeSession()
