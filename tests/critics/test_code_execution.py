"""Code of a critic runs without network and with limits, and only if that was asked for."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from pathlib import Path

import pytest

import surefoot
from helpers.critic_models import GENPRM, QUESTION, STEPS, write_r1
from helpers.policies import START, Table
from surefoot.critics.code_execution import TIMED_OUT, CodeSession, require_sandbox
from surefoot.errors import OptionError

try:
    require_sandbox()
    SANDBOX = True
except OptionError:
    SANDBOX = False

needs_sandbox = pytest.mark.skipif(not SANDBOX, reason="bubblewrap is not installed or not allowed")


def run(code: str, *earlier: str) -> str:
    return asyncio.run(CodeSession(earlier).run(code))


@needs_sandbox
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


@needs_sandbox
def test_later_blocks_know_the_names_of_earlier_ones() -> None:
    assert run("print(price * 5)", "price = 4", "print('ignored')") == "20"


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', {port}), 3)", "OSError|ConnectionRefused|unreachable"),
        ("b = bytearray(3 << 30)", "MemoryError"),
        ("open('big', 'wb').write(bytes(5 << 20))", "OSError"),
        ("import os; os.remove({victim!r})", "FileNotFoundError"),
        ("open({victim!r}).read()", "FileNotFoundError"),
        ("open('/usr/surefoot-was-here', 'w')", "OSError"),
        ("import os; os.kill({pid}, 9)", "ProcessLookupError"),
        ("import socket; socket.socket(socket.AF_UNIX).connect({unix!r})", "FileNotFoundError"),
        ("open('/proc/1/environ').read()", "FileNotFoundError"),
    ],
)
def test_limits(code: str, error: str, tmp_path: Path) -> None:
    victim, unix = tmp_path / "victim", tmp_path / "socket"
    victim.write_text("precious")
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
            local.bind(str(unix))
            local.listen()
            names = {"{port}": server.getsockname()[1], "{pid}": bystander.pid}
            names |= {"{victim!r}": repr(str(victim)), "{unix!r}": repr(str(unix))}
            for name, value in names.items():
                code = code.replace(name, str(value))
            output = run(code)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert re.search(error, output), output
    assert victim.read_text() == "precious"


@needs_sandbox
def test_processes_that_code_starts_end_with_it() -> None:
    code = "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(3600)\nprint('done')"
    output = run(code)  # root may fork in spite of the limit, but the sandbox ends with its first process
    assert output == "done" or "BlockingIOError" in output
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "time.sleep(3600)" not in listed


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "import os\nfor _ in range(300): os.write(1, b'x' * 1000000)",
        "import os, json\nos.write(1, json.dumps({'output': 'A' * 500000}).encode()); os._exit(0)",
        "import os, json\nos.write(1, json.dumps({'output': 'A' * 50000}).encode()); os._exit(0)",
    ],
)
def test_output_is_bounded(code: str) -> None:
    assert len(run(code)) <= 10_000


@needs_sandbox
def test_the_environment_and_the_folder_are_not_those_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert run("import os; print(os.environ.get('OPENAI_API_KEY'), os.listdir('.'))") == "None []"


@needs_sandbox
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


@needs_sandbox
def test_a_critic_that_never_stops_coding_falls_back_to_its_analysis(tmp_path: Path) -> None:
    table: Table = {
        **GENPRM,
        "```python\n": {"print(1)\n```\n": 1.0},
        "```\n": {"```python\n": 1.0},
    }
    folder = write_r1(tmp_path / "model", table)
    result = surefoot.load(folder, critic="genprm", critic_options={"code": "run"}).score(QUESTION, STEPS[:1])
    assert result.step_scores == pytest.approx([0.8], abs=1e-5)


def test_without_bubblewrap_loading_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_sandbox.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(OptionError, match="apt install bubblewrap"):
            surefoot.load(write_r1(tmp_path / "model", GENPRM), critic="genprm", critic_options={"code": "run"})
    finally:
        require_sandbox.cache_clear()
