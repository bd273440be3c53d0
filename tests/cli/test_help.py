"""Help texts, completion and usage errors, as the shell sees them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.cli.exit_codes import MEANINGS
from surefoot.cli.main import COMMANDS, load_command, main
from surefoot.evaluate import BENCHMARKS

ROOT = Path(__file__).parent.parent.parent
FORCED = ("GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS", "TERMINAL_WIDTH")
"""Variables with which Typer colours what goes to a pipe."""
PLAIN = {name: value for name, value in os.environ.items() if name not in FORCED}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "surefoot.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=PLAIN | environment, check=False, timeout=120)


def every_command() -> list[tuple[str, Any]]:
    found = []
    for name in COMMANDS:
        command = load_command(name)
        found.append((name, command))
        found += [(f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()]
    return found


def test_a_bare_call_prints_the_help() -> None:
    bare, asked = run(), run("--help")
    assert (bare.returncode, bare.stderr) == (asked.returncode, asked.stderr) == (0, "")
    assert bare.stdout.strip() == asked.stdout.strip()
    assert all(name in bare.stdout for name in COMMANDS)
    assert "\x1b" not in bare.stdout
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ +{code}  {re.escape(meaning)} *$", bare.stdout, re.MULTILINE), code
    assert run("eval").returncode == 0


def test_the_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"surefoot {surefoot.__version__}\n")


def test_the_documented_exit_codes() -> None:
    table = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| (\d+) \| (.*?) \|$", table, re.MULTILINE)) == {
        str(code): meaning for code, meaning in MEANINGS.items()
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scroe"], "No such command 'scroe'. Did you mean 'score'?"),
        (["eval", "procesbench"], "Did you mean 'processbench'"),
        (["score", "--treshold", "0.4"], "No such option: --treshold. Did you mean --threshold?"),
        (["train", "--learning-rat", "1"], "Did you mean --learning-rate?"),
        (["train", "--wrong-share", "0.5"], "--wrong-share is set in the configuration file: [data] wrong_share = ..."),
        (["train", "--dtype=int8"], "--dtype is set in the configuration file: [output] dtype = ..."),
        (["train", "--base", "x"], "Missing option --data. Give it here or in the configuration file"),
        (["--versoin"], "Did you mean --version?"),
        (["score", "--split", "words"], "--split: 'words' is not one of 'auto', 'steps', 'paragraphs', 'lines'."),
        (["score", "a", "b"], "unexpected extra argument"),
        (["score", "--question"], "Option '--question' requires an argument."),
        (["calibrate"], "Missing option '--data'. See surefoot calibrate --help."),
        (["check"], "Missing argument 'MODEL'. See surefoot check --help."),
        (["train", "--data", "--out", "x"], "Option '--data' requires an argument."),
        (["score", "--threads", "0"], "--threads: Input should be greater than or equal to 1."),
        (["score", "--max-tokens", "many"], "--max-tokens: Input should be a valid integer"),
        (["eval", "best-of-n", "--data", "x", "--model", "m", "--n", "few"], "--n few: give whole numbers"),
        (["score", "--quantize", "int8", "--compile", "--question", "q", "--solution", "s"],
         '--compile and --quantize "int8" exclude each other'),
        (["score", "--model", "http://127.0.0.1:9", "--quantize", "nf4", "--question", "q", "--solution", "s"],
         "surefoot: --quantize: not supported for http://127.0.0.1:9"),
        (["score", "--model", "http://127.0.0.1:9", "--threads", "1", "--question", "q", "--solution", "s"],
         "--threads is for a model in this process"),
        (["score", "\x1b[2J.jsonl"], "surefoot: ·[2J.jsonl cannot be read"),
        (["\x1b[2J"], "No such command '\\x1b[2J'"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    found = capsys.readouterr()
    assert message in found.err
    assert found.err.startswith("surefoot: ")
    assert len(found.err.splitlines()) == 1
    assert "\x1b" not in found.err
    assert found.out == ""


def test_a_usage_error_has_no_frame_in_a_process() -> None:
    done = run("score", "--treshold", "0.4", GITHUB_ACTIONS="true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "surefoot: No such option: --treshold. Did you mean --threshold?\n"


@pytest.mark.parametrize(("name", "command"), every_command(), ids=[name for name, _ in every_command()])
def test_every_help_text_has_examples_that_parse(
    name: str, command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for variable in FORCED:
        monkeypatch.delenv(variable, raising=False)
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    _, _, block = command.epilog.partition("[bold]Examples[/bold]\n\n")
    lines = block.splitlines()
    assert lines, "no examples"
    for line in lines:
        assert line in shown, "an example is wrapped in a terminal of 80 columns"
        words = shlex.split(line)
        words = words[words.index("surefoot") : words.index(">") if ">" in words else None]
        called, words = load_command(words[1]), words[2:]
        if hasattr(called, "commands"):
            called, words = called.commands[words[0]], words[1:]
        called.make_context("example", words)  # an unknown option or a wrong value is an error
    assert any(f"surefoot {name}" in line for line in lines)


@pytest.mark.parametrize(("name", "command"), every_command(), ids=[name for name, _ in every_command()])
def test_every_option_says_what_it_does(name: str, command: Any) -> None:
    for param in command.params:
        assert param.help, f"{name} {param.name}"
        assert param.help[0].isupper() or param.help.startswith("auto"), param.help
        assert param.help.endswith("."), param.help


def test_every_key_says_what_it_does() -> None:
    from surefoot.cli.train_options import SCHEMA

    for entry in SCHEMA.entries.values():
        assert entry.key.help[0].isupper() or entry.key.help.startswith("auto"), entry.name
        assert entry.key.help.endswith("."), entry.name


def test_every_benchmark_is_a_command() -> None:
    found = {
        name: {flag for param in command.params for flag in param.opts}
        for name, command in load_command("eval").commands.items()
    }
    assert list(found) == list(BENCHMARKS)
    for name, benchmark in BENCHMARKS.items():
        assert {option.flag for option in benchmark.options} <= found[name]


def test_completion_for_bash(tmp_path: Path) -> None:
    script = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0, script.stderr
    program = tmp_path / "surefoot"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m surefoot.cli "$@"\n')
    program.chmod(0o755)
    # What a shell does on the tab key: it calls the function that the script registers.
    shell = f"""
{script.stdout}
PATH={shlex.quote(str(tmp_path))}:$PATH
press_tab() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _surefoot_completion surefoot; echo ${{COMPREPLY[*]}}; }}
press_tab surefoot sc; press_tab surefoot eval ''; press_tab surefoot score --thre
press_tab surefoot score --split pa; press_tab surefoot score --model mi
"""
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=PLAIN, check=True, timeout=120)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["score"],
        ["processbench", "prmbench", "agentprocessbench", "best-of-n"],
        ["--threads", "--threshold"],
        ["paragraphs"],
        ["mini"],
    ]


def test_threads_reach_torch() -> None:
    program = (
        "import torch; from surefoot.cli.main import main; "
        "assert torch.get_num_threads() != 3; "
        "assert main(['score', '--question', 'What is 1 + 1?', '--solution', '1 + 1 = 2', '--threads', '3']) == 0; "
        "assert torch.get_num_threads() == 3"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=PLAIN | {"OMP_NUM_THREADS": "1"}, timeout=300)


def test_threads_reach_the_service() -> None:
    """torch reads the number when it is imported, so the service is stopped where it would start."""
    code = """
import builtins, sys
from surefoot.cli.main import main
real = builtins.__import__
def hook(name, *args, **options):
    module = real(name, *args, **options)
    if name == "surefoot.serve.server":
        sys.modules[name].serve = lambda *_, **__: print(sys.modules["torch"].get_num_threads())
    return module
builtins.__import__ = hook
assert main(["serve", "--threads", "1"]) == 0
"""
    environment = PLAIN | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "1\n"


def test_progress_without_a_terminal(tmp_path: Path) -> None:
    """A line now and then on standard error; nothing for a short job, and nothing with --quiet."""
    rows = [{"question": f"What is {number} + 1?", "steps": ["It is more."]} for number in range(130)]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = (
        "import sys; import surefoot.display.progress as progress; from surefoot.cli.main import main; "
        "progress.LINE_EVERY = float(sys.argv[1]); sys.exit(main(sys.argv[2:]))"
    )

    def lines(every: str, *more: str) -> list[str]:
        command = [sys.executable, "-c", program, every, "score", str(file), "--json", *more]
        done = subprocess.run(command, capture_output=True, text=True, env=PLAIN, check=True, timeout=300)
        assert len(done.stdout.splitlines()) == 130
        return done.stderr.splitlines()

    found = lines("0")
    assert [re.match(r"surefoot: (\d+) solutions, ", line)[1] for line in found] == ["64", "128", "130"]  # type: ignore[index]
    assert lines("600") == []
    assert lines("0", "--quiet") == []


def test_the_module_of_a_command_is_imported_when_it_is_called() -> None:
    program = (
        "import sys; from surefoot.cli.main import main; main(['--help']); "
        "loaded = {name for name in sys.modules if name.startswith('surefoot.cli.')}; "
        "assert loaded <= {'surefoot.cli.' + name for name in ('main', 'messages', 'groups', 'exit_codes')}, loaded; "
        "assert not {'torch', 'transformers', 'httpx', 'pydantic', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=PLAIN, stdout=subprocess.DEVNULL)


def test_defaults_and_choices_are_those_of_the_library() -> None:
    from surefoot.cli import serve
    from surefoot.cli import train_options as train
    from surefoot.core.options import QUANTIZATIONS, SPLIT_RULES
    from surefoot.engine.attention import ATTENTIONS
    from surefoot.engine.hardware import DTYPES
    from surefoot.serve.settings import Settings as ServiceSettings
    from surefoot.train.batch import Shape
    from surefoot.train.export import FORMATS
    from surefoot.train.settings import DECAYS, PRECISIONS, Settings, Sitting
    from surefoot.train.trackers import TRACKERS

    for group, settings in (
        (train.OptimizerOptions, Settings()),
        (train.RunOptions, Sitting()),
        (train.OutputOptions, Sitting()),
        (serve.Limits, ServiceSettings()),
    ):
        for field in fields(group):
            name = {"keep_checkpoints": "keep", "pause_steps": "steps"}.get(field.name, field.name)
            if field.name == "log_to":  # no tracker: None in a file, where a default list would be mutable
                assert (field.default, getattr(settings, name)) == (None, ())
            elif field.name not in ("device", "threads", "out"):  # arguments of other functions
                assert field.default == getattr(settings, name), field.name
    batches = train.BatchOptions()
    assert batches.max_tokens == Settings().max_tokens
    assert Shape(batches.batch_tokens, batches.multiple, batches.fixed_rows) == Shape()
    for command, option, choices in (
        ("score", "quantize", QUANTIZATIONS),
        ("score", "dtype", ("auto", *DTYPES)),
        ("score", "attention", ATTENTIONS),
        ("score", "split", SPLIT_RULES),
    ):
        (param,) = [each for each in load_command(command).params if each.name == option]
        assert sorted(param.type_descriptor.choices) == sorted(choices), option
    for option, choices in (
        ("decay", DECAYS),
        ("precision", PRECISIONS),
        ("dtype", FORMATS),
        ("log_to", tuple(TRACKERS)),
    ):
        assert sorted(train.SCHEMA.entries[option].choices) == sorted(choices), option


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "arguments", [["models"], ["models", "--fits", "16GB"], ["--help"], ["train", "--help"], ["serve", "--help"]]
)
@pytest.mark.parametrize(("columns", "variables"), [(80, {}), (120, {}), (80, {"NO_COLOR": "1"})])
def test_what_a_terminal_shows_fits_into_it(arguments: list[str], columns: int, variables: dict[str, str]) -> None:
    import pty

    parent, child = pty.openpty()
    environment = PLAIN | {"COLUMNS": str(columns), "TERM": "xterm-256color"} | variables
    command = [sys.executable, "-m", "surefoot.cli", *arguments]
    with subprocess.Popen(command, stdin=child, stdout=child, env=environment) as process:
        os.close(child)
        shown = b""
        with suppress(OSError):  # how a pseudo-terminal ends
            while part := os.read(parent, 65536):
                shown += part
        assert process.wait(120) == 0
    os.close(parent)
    text = shown.decode()
    coloured = re.search(r"\x1b\[[\d;]*\b[349]\d", text) is not None
    assert coloured == (arguments[0] != "models" and not variables)
    lines = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in "".join(lines)
