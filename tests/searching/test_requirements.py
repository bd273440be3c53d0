"""A search names its extra before it loads anything, and needs no HTTP client for what is on this machine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot
from helpers.bulk import write_jsonl
from surefoot.cli.main import main
from surefoot.errors import MissingDependencyError
from surefoot.searching import requirements

QUESTION = "What is 2 + 3?"


@pytest.fixture
def lack(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a package that cannot be found, and the instruction that installs it."""
    package: str = request.param
    module, real = package.replace("-", "_"), importlib.util.find_spec
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == module else real(name))
    return f'not installed: {package}. Run: pip install "surefoot[search]"'


@pytest.mark.parametrize(
    ("generator", "lack"),
    [("nowhere", "math-verify"), ("samples.jsonl", "math-verify"), ("http://127.0.0.1:9", "httpx")],
    indirect=["lack"],
)
def test_the_extra_is_named_before_anything_is_loaded(
    generator: str, lack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "--ask", "x", "--generator", generator, "--model", "nothing"]) == 2
    assert lack in capsys.readouterr().err
    with pytest.raises(MissingDependencyError) as caught:
        surefoot.search("x", generator=generator, scorer="nothing")
    assert lack in str(caught.value)


@pytest.mark.parametrize("lack", ["filelock"], indirect=True)
def test_a_file_of_questions_also_needs_a_lock(lack: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MissingDependencyError) as caught:
        surefoot.search_many("nothing.jsonl", "out", generator="nowhere", scorer="nothing")
    assert lack in str(caught.value)
    assert main(["search", "nothing.jsonl", "--generator", "nowhere"]) == 2
    assert lack in capsys.readouterr().err


def test_recorded_rollouts_and_models_in_this_process_need_no_http_client(tmp_path: Path) -> None:
    rows = [{"question": QUESTION, "solution": "2 + 3 = 5.\n\nThe answer is 5."}]
    file = str(write_jsonl(tmp_path / "rollouts.jsonl", rows))
    code = f"""
import sys
sys.modules["httpx"] = None
import surefoot
print(surefoot.search({QUESTION!r}, generator={file!r}, n=2).answer)
try:
    surefoot.load_generator({str(tmp_path)!r})
except surefoot.SurefootError as error:
    print(type(error).__name__)
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (child.stdout.split(), child.stderr) == (["5", "CheckpointError"], "")
