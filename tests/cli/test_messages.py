"""Error messages of the command line: they name flags, not the arguments of Python functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.serving import served
from surefoot.cli.main import COMMANDS, load_command, main
from surefoot.cli.messages import error_message
from surefoot.cli.train_options import SCHEMA
from surefoot.errors import CheckpointError, InputError, LoadError, OptionError, SurefootError

SOURCES = Path(surefoot.__file__).parent
SCORE = ["score", "--question", "q", "--solution", "s"]
EVAL = ["eval", "processbench", "--data", "DATA", "--scores", "scores"]
BEST = ["eval", "best-of-n", "--scores", "scores", "--data"]
TRAIN = ["train", "--data", "DATA", "--base", "CHECKPOINT", "--out", "OUT"]


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer]) as (url, _):
        yield url


@pytest.fixture
def names(tmp_path: Path, checkpoint: Path, service: str) -> dict[str, str]:
    data, labelled, referenced = (tmp_path / f"{name}.jsonl" for name in ("data", "labelled", "referenced"))
    data.write_text('{"problem": "q", "question": "q", "steps": ["a"], "label": -1, "scores": [0.5]}\n' * 4)
    labelled.write_text('{"question": "q", "steps": ["a"], "scores": [0.5], "is_correct": true}\n')
    referenced.write_text('{"question": "q", "steps": ["a"], "scores": [0.5], "ground_truth": "1"}\n')
    return {
        "DATA": str(data),
        "LABELLED": str(labelled),
        "REFERENCED": str(referenced),
        "CHECKPOINT": str(checkpoint),
        "OUT": str(tmp_path / "out"),
        "SERVICE": service,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SCORE, "--model", "CHECKPOINT", "--base", "x"], "--base 'x' applies to LoRA weights only"),
        ([*SCORE, "--model", "CHECKPOINT", "--base", "x"], "is a complete model. Omit --base."),
        ([*SCORE, "--model", "CHECKPOINT", "--revision", "r"], "--revision 'r' applies to models on the hub only"),
        ([*SCORE, "--model", "CHECKPOINT", "--device", "x"], "--device 'x' cannot be used"),
        ([*SCORE, "--model", "CHECKPOINT", "--family", "x"], "--family 'x' is unknown. Choose one of"),
        ([*SCORE, "--model", "CHECKPOINT", "--tokenizer", "x"], "surefoot: --tokenizer: only for a server"),
        ([*SCORE, "--model", "CHECKPOINT", "--served-name", "x"], "surefoot: --served-name: only for a server"),
        ([*SCORE, "--compile", "--quantize", "int8"], '--compile and --quantize "int8" exclude each other'),
        ([*SCORE, "--attention", "flash_attention_2"], '--attention "flash_attention_2" cannot run'),
        ([*SCORE, "--attention", "flash_attention_2"], 'Use --attention "auto" or "sdpa"'),
        ([*SCORE, "--model", "http://127.0.0.1:9", "--dtype", "float32", "--base", "x"],
         "surefoot: --dtype, --base: not supported for http://127.0.0.1:9"),
        ([*SCORE, "--model", "http://me:pw@127.0.0.1:9"], "which would end up in logs. Use --api-key."),
        (["serve", "--port", "0", "--model", "m=vllm+http://me:pw@127.0.0.1:9"], "Use --model-api-key."),
        ([*SCORE, "--model", "SERVICE", "--served-name", "x"], "does not serve a model called 'x'. It serves: "),
        ([*SCORE, "--model", "SERVICE", "--served-name", "x"], "Name one of these with --served-name."),
        (["check", "CHECKPOINT", "--revision", "r"], "--revision 'r' applies to models on the hub only"),
        ([*EVAL, "--draws", "-1"], "--draws -1 is negative"),
        ([*EVAL, "--seed", "-1"], "--seed -1 is negative"),
        ([*EVAL, "--tune-on", "x", "--threshold", "0.5"], "either --threshold or --tune-on, not both"),
        ([*BEST, "LABELLED", "--n", "0"], "--n [0] is invalid"),
        ([*BEST, "REFERENCED", "--correct-by", "label"], "Use --correct-by 'answer'."),
        ([*BEST, "LABELLED", "--correct-by", "answer"], "Use --correct-by 'label'."),
        (["calibrate", "--data", "DATA", "--scores", "scores", "--out", "OUT", "--folds", "1"], "--folds 1 leaves"),
        ([*TRAIN, "--learning-rate", "0"], "--learning-rate 0.0 must be above 0"),
        ([*TRAIN, "--steps", "0"], "--steps 0 must be at least 1"),
        ([*TRAIN, "--log-to", "x"], "--log-to 'x' is not supported"),
    ],
)  # fmt: skip
def test_errors_name_flags(
    arguments: list[str], message: str, names: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([names.get(word, word) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "command", "message"),
    [
        (LoadError("Pass it: base=..."), "score", "Pass it: --base"),
        (LoadError("The tokenizer is missing (tokenizer=...)."), "score", "The tokenizer is missing (--tokenizer)."),
        (CheckpointError('Pass family_options={"constant_head": False}.'), "score",
         "Pass --family-option constant_head=false."),
        (SurefootError('Lower `max_tokens`, load with quantize="nf4".'), "score",
         'Lower --max-tokens, load with --quantize "nf4".'),
        (OptionError("Select problems with `data` (in Python: Reading(keep=read_questions(FILE)))."), "train",
         "Select problems with --data."),
        # Fields of the data, options of no command, and options of another command are left alone.
        (InputError("Expected `question` and either `solution` or `steps`."), "score",
         "Expected `question` and either `solution` or `steps`."),
        (InputError("question, solution: two fields"), "score", "question, solution: two fields"),
        (OptionError("window=0 is empty."), "score", "window=0 is empty."),
        (OptionError("folds=1 is too few."), "score", "folds=1 is too few."),
    ],
)  # fmt: skip
def test_errors_that_need_another_machine_or_model(error: SurefootError, command: str, message: str) -> None:
    assert error_message(error, load_command(command)) == message


def raised_texts() -> Iterator[tuple[str, str]]:
    """Every message in the sources that an exception of ours begins with, without its values, and where it is."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                parts = [part for part in ast.walk(node.exc.args[0]) if isinstance(part, ast.Constant)]
                text = " ".join(str(part.value) for part in parts if isinstance(part.value, str))
                yield f"{file.relative_to(SOURCES)}:{node.lineno}", re.sub(r" \(in Python: .*\)", "", text)


def test_messages_mark_arguments_so_that_they_are_found() -> None:
    """An argument whose name cannot be a word of English has `=` or backticks, or it would be printed as it is."""

    def every_param(command: Any) -> Iterator[Any]:
        yield from command.params
        for each in getattr(command, "commands", {}).values():
            yield from every_param(each)

    found = {param.name for name in COMMANDS for param in every_param(load_command(name)) if "_" in param.name}
    found |= {name for name in SCHEMA.entries if "_" in name}
    assert {"max_tokens", "served_name", "learning_rate"} <= found
    bare = re.compile(rf"(?<![`\w.])({'|'.join(sorted(found))})(?![`=\w])")
    texts = list(raised_texts())
    assert len(texts) > 200
    assert [(place, text) for place, text in texts if bare.search(text)] == []
