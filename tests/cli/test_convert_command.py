"""`surefoot convert` as a user runs it, and training on what other libraries use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from surefoot.cli.convert import app
from surefoot.cli.main import main
from surefoot.errors import InputError
from surefoot.scoring.local import load_local
from surefoot.testing import write_base
from surefoot.train.readers import read_examples, read_questions

# plaguss/prm_800k_trl has this column besides those of TRL's documentation.
ROWS = [
    {
        "prompt": f"What is {at} + 1?",
        "completions": ["We add.", f"So {at + 1}."],
        "labels": [True, at % 2 == 0],
        "index": at,
    }
    for at in range(20)
]


def run(*arguments: str) -> int:
    """Run the command by itself."""
    return int(get_command(app).main(list(arguments), standalone_mode=False))


def save(path: Path, rows: Sequence[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_the_losses_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = save(tmp_path / "stepwise.jsonl", ROWS), str(tmp_path / "out.jsonl")
    assert run(source, "--to", "processbench", "--out", out) == 0
    assert capsys.readouterr().out == (
        f"Read 20 rows (trl), wrote 20 rows (processbench) to {out}.\n"
        "Lost or changed:\n"
        "  `index` was dropped: 20 solutions\n"
    )
    first, second = (json.loads(line) for line in Path(out).read_text().splitlines()[:2])
    assert first == {"problem": "What is 0 + 1?", "steps": ["We add.", "So 1."], "label": -1}
    assert second == {"problem": "What is 1 + 1?", "steps": ["We add.", "So 2."], "label": 1}


def test_json_and_no_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"question": "q", "steps": ["a", "b"], "label": 1}
    source, out = save(tmp_path / "own.jsonl", [row]), str(tmp_path / "out.jsonl")
    assert run(source, "--to", "fover", "--out", out, "--from", "surefoot", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "from": {"own": "surefoot"}, "to": "fover", "rows_read": 1, "rows_written": 1, "losses": [],
    }  # fmt: skip
    assert run(source, "--to", "fover", "--out", out) == 0
    assert "Nothing was lost." in capsys.readouterr().out


def test_a_bad_row_is_an_error(tmp_path: Path) -> None:
    source = save(tmp_path / "in.jsonl", [ROWS[0], {"prompt": "q"}])
    with pytest.raises(InputError, match=r"in.jsonl, line 2: not a row of the format trl"):
        run(source, "--to", "surefoot", "--out", str(tmp_path / "out.jsonl"))
    assert not (tmp_path / "out.jsonl").exists()


def test_trl_has_no_prm_trainer() -> None:
    """As docs/training.md says. If it comes back, that page has to change."""
    spec = find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("trl is not installed")
    (folder,) = spec.submodule_search_locations
    released = tuple(map(int, version("trl").split(".")[:2]))
    assert (Path(folder) / "experimental" / "prm").exists() == (released < (1, 14))


def test_stepwise_data_of_trl_trains_as_it_is(tmp_path: Path) -> None:
    source = save(tmp_path / "stepwise.jsonl", ROWS)
    held_out = save(tmp_path / "held_out.jsonl", [{"prompt": "q", "completions": ["a"], "labels": [False]}])
    write_base(tmp_path / "base")
    (tmp_path / "train.toml").write_text('[model]\nlayers = 1\n[optimizer]\nprecision = "float32"\n')
    arguments = ["--base", str(tmp_path / "base"), "--out", str(tmp_path / "prm"), "--steps", "1"]
    files = ["--config", str(tmp_path / "train.toml"), "--data", source, "--held-out", held_out]
    assert main(["train", *arguments, *files, "--device", "cpu", "--quiet"]) == 0
    assert load_local(tmp_path / "prm").score("What is 1 + 1?", ["We add.", "So 2."]).status == "scored"


@pytest.mark.parametrize(
    ("row", "question", "targets"),
    [
        ({"prompt": "q", "completions": ["a", "b", "c"], "labels": [True, False, True]}, "q", [(1, 0, None)]),
        ({"input": "q Step 1: a ки\nStep 2: b ки", "label": "q Step 1: a -\nStep 2: b -"}, "q", [(0, None)]),
        (
            {
                "question": {"problem": "q"},
                "label": {
                    "steps": [
                        {"completions": [{"text": "a", "rating": 0}], "chosen_completion": 0},
                        {
                            "completions": [{"text": "b", "rating": -1}, {"text": "c", "rating": 1}],
                            "chosen_completion": None,
                        },
                    ]
                },
            },
            "q",
            [(1, 0), (1, 1)],
        ),
        ({"problem": "q", "steps": ["a", "b"], "label": 0, "id": 3, "answer": [1]}, "q", [(0, None)]),
        (
            {
                "conversations": [
                    {"role": "user", "content": "q Step 1: a"},
                    {"role": "assistant", "content": "+"},
                ]
            },
            "q",
            [(1,)],
        ),
        ({"problem": "q", "solution_steps": ["a", "b"], "error_labels": [None, False]}, "q", [(None, 0)]),
        ({"question": "q", "steps": ["a", "b"], "targets": [0, 1]}, "q", [(0, 1)]),
    ],
    ids=["trl", "math-shepherd", "prm800k", "processbench", "rlhflow", "fover", "surefoot"],
)
def test_training_reads_every_format(tmp_path: Path, row: Any, question: str, targets: list[Any]) -> None:
    source = save(tmp_path / "data.jsonl", [row])
    examples = read_examples(source)
    assert [(example.question, example.targets) for example in examples] == [(question, each) for each in targets]
    assert read_questions(source) == {question}
