"""Training examples and the files they come from."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import InputError, OptionError
from surefoot.train.example import (
    Example,
    balanced_part,
    from_label,
    from_ratings,
    from_scores,
    question_key,
    set_aside,
    stop_at_error,
    strip_marks,
)
from surefoot.train.readers import Reading, read_examples, read_questions, without_questions

STEPS = ["a", "b", "c"]


def lines(path: Path, *rows: Any) -> Path:
    text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8") as stream:
            stream.write(text)
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("label", "targets"), [(-1, (1, 1, 1)), (0, (0, None, None)), (1, (1, 0, None)), (2, (1, 1, 0))]
)
def test_steps_behind_the_first_error_have_no_target(label: int, targets: tuple[float | None, ...]) -> None:
    example = from_label("q", STEPS, label)
    assert example.targets == targets
    assert example.first_error == label


@pytest.mark.parametrize(
    ("ratings", "targets"),
    [([1, 0, 1], (1, 1, 1)), ([1, -1, 1], (1, 0, None)), ([None, 0, -1], (None, 1, 0)), ([-1, -1, 1], (0, None, None))],
)
def test_ratings(ratings: list[int | None], targets: tuple[float | None, ...]) -> None:
    assert from_ratings("q", STEPS, ratings).targets == targets


def test_soft_targets_end_at_the_step_that_the_teacher_calls_wrong() -> None:
    example = from_scores("q", STEPS, [0.9, 0.4, 0.8])
    assert example.targets == (0.9, 0.4, None)
    assert example.first_error == 1
    assert stop_at_error([0.5, 0.499, 1.0]) == (0.5, 0.499, None)


@pytest.mark.parametrize(
    ("steps", "targets", "message"),
    [
        ((), (), "no steps"),
        (("a",), (1.0, 0.0), "1 steps but 2 targets"),
        (("a",), (1.5,), "not a probability"),
        (("a",), (float("nan"),), "not a probability"),
    ],
)
def test_what_is_no_example(steps: tuple[str, ...], targets: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Example("q", steps, targets)


def test_every_shape_of_row(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "mixed.v2.jsonl.gz",
        {"question": "q1", "steps": ["a <<1+1=2>>2", "b"], "label": 1},
        {"problem": "q2", "steps": STEPS, "label": 1, "ratings": [1, -1, 1]},
        "\n",
        {"question": "q3", "steps": ["a"], "qwen_prm": [0.75], "is_correct": True},
        {"question": "q4", "steps": ["a", "b"], "targets": [None, 0.25]},
    )
    examples = read_examples(file)
    assert [example.question for example in examples] == ["q1", "q2", "q3", "q4"]
    assert [example.targets for example in examples] == [(1, 0), (1, 0, None), (0.75,), (None, 0.25)]
    assert examples[0].steps[0] == "a 2"
    assert {example.source for example in examples} == {"mixed.v2"}


def test_a_json_array_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps([{"problem": "q", "steps": ["a"], "label": 0}]))
    assert read_examples(file)[0].targets == (0.0,)


def test_a_teacher_that_contradicts_the_answer_teaches_nothing(tmp_path: Path) -> None:
    row = {"question": "q", "steps": ["a"], "qwen_prm": [0.9], "is_correct": False}
    file = lines(
        tmp_path / "t.jsonl",
        row | {"last_number_equals_gt": False},
        row | {"last_number_equals_gt": True},
        row | {"qwen_prm": [0.1]},
    )
    assert [example.targets for example in read_examples(file)] == [(0.9,), (0.1,)]


def test_the_chat_head_is_no_part_of_a_step(tmp_path: Path) -> None:
    steps = ["system\nYou are Qwen.\nuser\nWhat?\nassistant\nFirst, we add.", "Then we stop."]
    file = lines(tmp_path / "t.jsonl", {"question": "q", "steps": steps, "qwen_prm": [1.0, 1.0]})
    assert read_examples(file)[0].steps == ("First, we add.", "Then we stop.")


def test_a_chat_head_may_be_taken_for_several_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A question with blank lines was split as if it were part of the solution, and scored."""
    head = ["system\nYou are Qwen.\nuser\nA table:", "1 2", "How much?\nassistant\nFirst, we add.", "Then we stop."]
    row = {"question": "q", "steps": head, "qwen_prm": [0.2, 0.9, 0.8, 0.7]}
    lost = row | {"steps": ["system\nuser\nA table:", "1 2"], "qwen_prm": [0.9, 0.9]}
    with caplog.at_level("INFO", logger="surefoot"):
        (example,) = read_examples(lines(tmp_path / "t.jsonl", row, lost))
    assert example.steps == ("First, we add.", "Then we stop.")
    assert example.targets == (0.8, 0.7)
    assert "skipped 1 of 2 rows, which give no example" in caplog.text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("nonsense\n", "line 2 is not JSON"),
        ([1], "line 2: expected an object"),
        ({"steps": ["a"], "label": 0}, "line 2: expected `question`"),
        ({"question": " ", "steps": ["a"], "label": 0}, "line 2: expected `question`"),
        ({"question": "q"}, "line 2: expected `steps`"),
        ({"question": "q", "steps": "a", "label": 0}, "line 2: `steps` must be a list of strings"),
        ({"question": "q", "steps": ["a"]}, "line 2: expected one of `targets`"),
        ({"question": "q", "steps": ["a"], "label": True}, "line 2: expected one of `targets`"),
        ({"question": "q", "steps": ["a"], "label": 1}, r"line 2: label is 1, but for 1 steps"),
        ({"question": "q", "steps": ["a"], "label": -2}, r"line 2: label is -2"),
        ({"question": "q", "steps": ["a"], "ratings": [2]}, "line 2: The rating 2 is invalid"),
        ({"question": "q", "steps": ["a"], "ratings": [1, 1]}, "line 2: Got 1 steps but 2 ratings"),
        ({"question": "q", "steps": ["a"], "qwen_prm": ["x"]}, "line 2: `qwen_prm` must contain only numbers"),
        ({"question": "q", "steps": ["a"], "targets": 1}, "line 2: `targets` must be a list"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: Any, message: str) -> None:
    file = lines(tmp_path / "bad.jsonl", {"question": "q", "steps": ["a"], "label": 0}, row)
    with pytest.raises(InputError, match=f"bad.jsonl, {message}"):
        read_examples(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none.jsonl' is not a file"):
        read_examples(tmp_path / "none.jsonl")
    broken = tmp_path / "cut.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"question": "q"}\n' * 100)[:20])
    with pytest.raises(InputError, match="cut.jsonl.gz cannot be read"):
        read_examples(broken)
    with pytest.raises(InputError, match="contains no example"):
        read_examples(lines(tmp_path / "empty.jsonl", "\n"))


SOLVED = {
    "question": "Tom has 3 bags of 4 apples and eats 2. How many are left?",
    "ground_truth": "3 * 4 = <<3*4=12>>12\n12 - 2 = <<12-2=10>>10\nA: 10",
    "6b_finetuning": {"is_correct": False, "solution": "3 + 4 = <<3+4=7>>7 apples\n7 - 2 = <<7-2=5>>5\nA: 5"},
    "175b_verification": {"is_correct": True, "solution": "He has 3 * 4 - 2 = <<3*4-2=10>>10\nA: 10"},
}


def test_example_solutions_need_to_know_what_may_be_trained_on(tmp_path: Path) -> None:
    file = lines(tmp_path / "solutions.jsonl", SOLVED, SOLVED | {"question": "Another one?"})
    with pytest.raises(OptionError, match="Select the problems to train on with `keep`"):
        read_examples(file)
    keep = read_questions(lines(tmp_path / "test.jsonl", {"question": SOLVED["question"]}))
    examples = read_examples(file, Reading(keep=keep))
    assert [example.question for example in examples] == [SOLVED["question"]] * 2
    assert examples[0].steps == ("3 + 4 = 7 apples", "7 - 2 = 5", "The answer is 5.")
    assert examples[0].targets == (0.3, None, None)
    assert examples[1].targets == (1.0, 1.0)


def test_worked_answers_become_variants(tmp_path: Path) -> None:
    row = {"question": "3 bags of 4 apples?", "answer": "He has 3*4 = <<3*4=12>>12 apples.\n#### 12"}
    file = lines(tmp_path / "train.jsonl", row)
    examples = read_examples(file, Reading(variants=6))
    assert len(examples) == 6
    assert sum(example.first_error == -1 for example in examples) == 2
    assert examples == read_examples(file, Reading(variants=6))
    assert examples != read_examples(file, Reading(variants=6, seed=1))


def test_questions_are_the_same_by_letters_and_digits() -> None:
    assert question_key("Tom’s 3 apples?") == question_key("toms  3 apples")
    kept = without_questions([from_label("What is 1+1?", ["a"], 0), from_label("Other", ["a"], 0)], {"whatis11"})
    assert [example.question for example in kept] == ["Other"]


def test_no_question_is_on_both_sides() -> None:
    examples = [from_label(f"question {at // 3}", ["a"], 0, source="xyz"[at % 3]) for at in range(300)]
    kept, aside = set_aside(examples, 0.2, seed=1)
    assert len(kept) + len(aside) == 300
    assert {e.question for e in kept}.isdisjoint({e.question for e in aside})
    assert 5 < len({e.question for e in aside}) < 40
    again, only_x = set_aside(examples, 0.2, seed=1, sources=["x"])
    assert again == kept
    assert {e.source for e in only_x} == {"x"}
    assert set_aside(examples, 0.0) == (examples, [])
    with pytest.raises(OptionError, match="must be at least 0 and below 1"):
        set_aside(examples, 1.0)


def test_marks_are_taken_out() -> None:
    assert strip_marks("3*4 = <<3*4=12>>12 and 2 < 3 << 4") == "3*4 = 12 and 2 < 3 << 4"


@pytest.mark.parametrize(
    ("right", "wrong", "most", "kept"),
    [(9, 9, 6, (3, 3)), (9, 1, 6, (5, 1)), (1, 9, 6, (1, 5)), (2, 2, 6, (2, 2)), (9, 9, 5, (3, 2)), (0, 9, 4, (0, 4))],
)
def test_a_balanced_part(right: int, wrong: int, most: int, kept: tuple[int, int]) -> None:
    """Half of each kind; if there are too few of one kind, more of the other."""
    examples = [from_label(f"q{n}", ["a", "b"], -1 if n < right else 1, "file") for n in range(right + wrong)]
    others = [from_label("q", ["a"], -1, "other")]
    found = balanced_part([*others, *examples], most)
    assert found[0] == others[0]
    assert found[1:] == [example for example in examples if example in found], "the order stays"
    assert (sum(e.first_error == -1 for e in found[1:]), sum(e.first_error == 1 for e in found)) == kept
    assert balanced_part([*others, *examples], most) == found
    if right > most:
        assert any(balanced_part(examples, most, seed) != found[1:] for seed in range(1, 9))
