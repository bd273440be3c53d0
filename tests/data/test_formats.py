"""Formats of step labels. The rows are written by hand, after the makers' documentation that each module names."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.data.convert import Conversion, convert
from surefoot.data.formats import FORMATS, WRITTEN, detect, format_named
from surefoot.data.step_labels import Alternative, AnnotatedSolution, Losses
from surefoot.errors import InputError, OptionError
from surefoot.train.readers import read_examples

# docs/source/dataset_formats.md of huggingface/trl
TRL_ROW = {
    "prompt": "Which number is larger, 9.8 or 9.11?",
    "completions": [
        "The fractional part of 9.8 is 0.8.",
        "The fractional part of 9.11 is 0.11.",
        "0.11 is greater than 0.8.",
        "Hence, 9.11 > 9.8.",
    ],
    "labels": [True, True, False, False],
}
# The first two steps of the example on the card of peiyi9979/Math-Shepherd
SHEPHERD_ROW = {
    "input": "If Buzz bought a pizza, how many slices did he eat? Step 1: The total is 5+8 = <<5+8=13>>13. ки\n"
    "Step 2: The waiter ate 13 x 8 / 13 = <<13*8/13=6>>6 slices. ки",
    "label": "If Buzz bought a pizza, how many slices did he eat? Step 1: The total is 5+8 = <<5+8=13>>13. +\n"
    "Step 2: The waiter ate 13 x 8 / 13 = <<13*8/13=6>>6 slices. -",
    "task": "GSM8K",
}
# The annotated line in README.md of openai/prm800k, with shorter texts
PRM800K_ROW = {
    "labeler": "340d89bc-f5b7-45e9-b272-909ba68ee363",
    "timestamp": "2023-01-22T04:34:27.052924",
    "generation": 9,
    "is_quality_control_question": False,
    "is_initial_screening_question": False,
    "question": {
        "problem": "What is the greatest common factor?",
        "ground_truth_solution": "It is 40000.",
        "ground_truth_answer": "40,\\!000",
        "pre_generated_steps": ["I want to find it.", "I factor both.", "200000 = 2^9 5^4.", "Then I stop."],
        "pre_generated_answer": "320,000",
        "pre_generated_verifier_score": 0.010779580529581414,
    },
    "label": {
        "steps": [
            {
                "completions": [{"text": "I want to find it.", "rating": 0, "flagged": None}],
                "human_completion": None,
                "chosen_completion": 0,
            },
            {
                "completions": [{"text": "I factor both.", "rating": 1, "flagged": None}],
                "human_completion": None,
                "chosen_completion": 0,
            },
            {
                "completions": [
                    {"text": "200000 = 2^9 5^4.", "rating": -1, "flagged": None},
                    {"text": "I can use a factor tree.", "rating": 0, "flagged": False},
                    {"text": "Every factorial is odd.", "rating": None, "flagged": True},
                ],
                "human_completion": None,
                "chosen_completion": None,
            },
        ],
        "total_time": 278270,
        "finish_reason": "found_error",
    },
}
# The fields of the example on the card of Qwen/ProcessBench
PROCESSBENCH_ROW = {
    "id": "gsm8k-0",
    "generator": "Qwen2-7B-Instruct",
    "problem": "Sue lives in a fun neighborhood. How many flamingos?",
    "steps": ["There are 18.", "6 are left.", "So 24."],
    "final_answer_correct": False,
    "label": 1,
}
# math/README.md of RLHFlow/RLHF-Reward-Modeling, with `Step 1:` as in the Mistral data
RLHFLOW_ROW = {
    "conversations": [
        {"role": "user", "content": "Convert the point $(0,3)$. Step 1: To convert, we use the formulas."},
        {"role": "assistant", "content": "+"},
        {"role": "user", "content": "Step 2: So it is $(3, \\pi)$."},
        {"role": "assistant", "content": "-"},
    ]
}
# README.md of psunlpgroup/FoVer
FOVER_ROW = {
    "problem": "this is a problem.",
    "solution_steps": ["first step (correct)", "second step (wrong)", "third step (unknown)"],
    "error_labels": [True, False, None],
}
# Some of the fields that docs/labelling.md describes; the second step is the first error, so the third is unknown.
LABELS_ROW = {
    "index": 0,
    "number": 0,
    "id": "a",
    "question": "What is 2 + 3 * 4?",
    "gold": "14",
    "text": "2 + 3 = 5.\n\n5 * 4 = 20.\n\nThe answer is 20.",
    "outcome": "wrong",
    "first_error": 1,
    "kept": True,
    "steps": [
        {"text": "2 + 3 = 5.\n\n", "state": "labelled", "hard": True, "soft": 0.25, "value": 0.25},
        {"text": "5 * 4 = 20.\n\n", "state": "labelled", "hard": False, "soft": 0.0, "value": 0.0},
        {"text": "The answer is 20.", "state": "unknown", "hard": None, "soft": None, "value": 0.0},
    ],
}
OWN_ROW = {"question": "What is 1 + 1?", "steps": ["1 + 1 = 2.", "So 3."], "targets": [0.75, None]}

READ: list[tuple[str, Mapping[str, Any], AnnotatedSolution]] = [
    (
        "trl",
        TRL_ROW,
        AnnotatedSolution(TRL_ROW["prompt"], tuple(TRL_ROW["completions"]), (1, 1, 0, 0)),  # type: ignore[arg-type]
    ),
    (
        "math-shepherd",
        SHEPHERD_ROW,
        AnnotatedSolution(
            "If Buzz bought a pizza, how many slices did he eat?",
            (
                "Step 1: The total is 5+8 = <<5+8=13>>13.",
                "Step 2: The waiter ate 13 x 8 / 13 = <<13*8/13=6>>6 slices.",
            ),
            (1, 0),
            source="GSM8K",
        ),
    ),
    (
        "prm800k",
        PRM800K_ROW,
        AnnotatedSolution(
            "What is the greatest common factor?",
            ("I want to find it.", "I factor both.", "200000 = 2^9 5^4.", "Then I stop."),
            (1, 1, 0, None),
            frozenset({0}),
            (Alternative(2, "I can use a factor tree.", 1, True), Alternative(2, "Every factorial is odd.", None)),
            answer="40,\\!000",
        ),
    ),
    (
        "processbench",
        PROCESSBENCH_ROW,
        AnnotatedSolution(
            "Sue lives in a fun neighborhood. How many flamingos?",
            ("There are 18.", "6 are left.", "So 24."),
            (1, 0, None),
            id="gsm8k-0",
            generator="Qwen2-7B-Instruct",
            final_answer_correct=False,
        ),
    ),
    (
        "rlhflow",
        RLHFLOW_ROW,
        AnnotatedSolution(
            "Convert the point $(0,3)$.",
            ("Step 1: To convert, we use the formulas.", "Step 2: So it is $(3, \\pi)$."),
            (1, 0),
        ),
    ),
    (
        "fover",
        FOVER_ROW,
        AnnotatedSolution(
            "this is a problem.", ("first step (correct)", "second step (wrong)", "third step (unknown)"), (1, 0, None)
        ),
    ),
    (
        "labels",
        LABELS_ROW,
        AnnotatedSolution(
            "What is 2 + 3 * 4?",
            ("2 + 3 = 5.", "5 * 4 = 20.", "The answer is 20."),
            (1, 0, None),
            id="a",
            answer="14",
            final_answer_correct=False,
        ),
    ),
    ("surefoot", OWN_ROW, AnnotatedSolution("What is 1 + 1?", ("1 + 1 = 2.", "So 3."), (0.75, None))),
]


def counts(losses: Mapping[Any, int]) -> dict[str, int]:
    return {loss.what: count for loss, count in losses.items() if count}


def written(to: str, solution: AnnotatedSolution) -> tuple[dict[str, Any] | None, dict[str, int]]:
    losses = Losses()
    return FORMATS[to].rewrite(solution, losses), counts(losses)


@pytest.mark.parametrize(("name", "row", "solution"), READ, ids=[name for name, *_ in READ])
def test_a_public_row_is_detected_read_and_written_back(
    name: str, row: Mapping[str, Any], solution: AnnotatedSolution
) -> None:
    found = detect(row)
    assert found is not None
    assert found.name == name
    assert found.read(row) == solution
    assert written(name, found.read(row)) == (row, {})


def test_every_format_has_a_public_row() -> None:
    assert {name for name, *_ in READ} == set(FORMATS)


@pytest.mark.parametrize(
    ("name", "row", "solution"),
    [each for each in READ if each[0] not in ("prm800k", "labels")],
    ids=[name for name, *_ in READ if name not in ("prm800k", "labels")],
)
def test_a_row_is_written_from_its_meaning_alone(
    name: str, row: Mapping[str, Any], solution: AnnotatedSolution
) -> None:
    """Without the row that it was read from."""
    assert written(name, solution) == (row, {})


def test_prm800k_is_written_from_its_meaning_alone() -> None:
    """Except for what only labellers know: who rated when, flags, the answer and the score of the solution."""
    row, losses = written("prm800k", READ[2][2])
    question, label = PRM800K_ROW["question"], PRM800K_ROW["label"]
    assert isinstance(question, dict)
    assert isinstance(label, dict)
    unflagged = json.loads(re.sub(r'"flagged": (true|false)', '"flagged": null', json.dumps(label["steps"])))
    kept = ("problem", "ground_truth_answer", "pre_generated_steps")
    assert row == {
        "question": {name: question[name] for name in kept},
        "label": {"steps": unflagged, "finish_reason": "found_error"},
    }
    assert losses == {}


def test_prm800k_with_human_completions_and_empty_steps() -> None:
    """Phase 1: a labeller wrote a step; TRL's reader takes it as correct and stops at a step without completions."""
    row = {
        "question": {"problem": "q", "ground_truth_answer": "1"},
        "label": {
            "steps": [
                {
                    "completions": [{"text": "a", "rating": -1}],
                    "human_completion": {"text": "h", "rating": None, "source": "human"},
                    "chosen_completion": None,
                },
                {"completions": [{"text": "b", "rating": -1}, {"text": "c", "rating": 1}], "chosen_completion": 1},
                {"completions": None, "human_completion": None, "chosen_completion": None},
            ],
            "finish_reason": "solution",
        },
    }
    solution = FORMATS["prm800k"].read(row)
    assert (solution.steps, solution.targets) == (("h", "c"), (1, 1))
    assert solution.final_answer_correct is True
    assert [(one.steps, one.targets) for one in solution.branches()] == [(("a",), (0,)), (("h", "b"), (1, 0))]


def test_prm800k_without_a_choice_follows_the_pre_generated_solution() -> None:
    completions = [{"text": "other", "rating": 1}, {"text": "a", "rating": -1}]
    row = {
        "question": {"problem": "q", "pre_generated_steps": ["a", "b"]},
        "label": {"steps": [{"completions": completions, "chosen_completion": None}]},
    }
    solution = FORMATS["prm800k"].read(row)
    assert (solution.steps, solution.targets) == (("a", "b"), (0, None))
    assert solution.alternatives == (Alternative(0, "other", 1),)


def test_math_shepherd_as_trl_reads_its_odd_rows() -> None:
    """A marker inside the question is dropped; a question without `Step 1:` ends at its question mark."""
    read = FORMATS["math-shepherd"].read
    odd = read(
        {"input": "Find ки x? Step 1: x = 1 ки\nStep 2: ok ки", "label": "Find + x? Step 1: x = 1 -\nStep 2: ok +"}
    )
    assert (odd.question, odd.steps, odd.targets) == ("Find  x?", ("Step 1: x = 1", "Step 2: ok"), (0, 1))
    assert [loss.what for loss in odd.reading_losses] == ["labels inside the question were dropped"]
    bare = read({"input": "What is x? It is 1. ки", "label": "What is x? It is 1. +"})
    assert (bare.question, bare.steps, bare.targets) == ("What is x?", ("It is 1.",), (1,))


def test_turns_without_a_boundary_invent_none() -> None:
    """RLHFlow's README: the steps of Deepseek solutions have no numbers."""
    turns = [("user", "What is x? We solve."), ("assistant", "+"), ("user", "It is 1."), ("assistant", "-")]
    row = {"conversations": [{"role": role, "content": text} for role, text in turns]}
    solution = FORMATS["rlhflow"].read(row)
    assert (solution.question, solution.steps, solution.targets) == ("What is x? We solve.", ("It is 1.",), (0,))
    out, losses = written("trl", solution)
    assert out == {"prompt": "What is x? We solve.", "completions": ["It is 1."], "labels": [False]}
    assert losses == {"first steps were read as part of the question, because no `Step 1:` separates them": 1}


def test_a_single_rlhflow_turn_without_a_boundary_is_skipped(tmp_path: Path) -> None:
    """As `convert` writes a solution of one step. It used to make the whole file unreadable."""
    one = {
        "conversations": [{"role": "user", "content": "What is 2 + 3? It is 5."}, {"role": "assistant", "content": "+"}]
    }
    file = tmp_path / "rlhflow.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (one, RLHFLOW_ROW)))
    assert FORMATS["rlhflow"].is_empty(one)
    assert not FORMATS["rlhflow"].is_empty(RLHFLOW_ROW)
    assert not FORMATS["rlhflow"].is_empty({"conversations": "what"})
    assert len(read_examples(file)) == 1
    summary = convert(file, tmp_path / "trl.jsonl", to="trl")
    assert [loss.what for loss in summary.losses if "one turn that does not show" in loss.what]


SOLUTION = AnnotatedSolution("q", ("a", "b", "c"), (1, 0, 1))


@pytest.mark.parametrize(
    ("to", "solution", "row", "losses"),
    [
        (
            "trl",
            replace(SOLUTION, targets=(1, 0.3, None), neutral=frozenset({0})),
            {"prompt": "q", "completions": ["a", "b"], "labels": [True, False]},
            {
                "steps without a label at the end were dropped": 1,
                "neutral ratings became correct": 1,
                "soft labels became correct (at least 0.5) or incorrect": 1,
            },
        ),
        (
            "trl",
            replace(SOLUTION, targets=(1, None, 0)),
            None,
            {"solutions were dropped because a step without a label precedes a labelled one": 1},
        ),
        (
            "trl",
            replace(SOLUTION, targets=(None, None, None)),
            None,
            {"solutions were dropped because no step has a label": 1},
        ),
        (
            "processbench",
            SOLUTION,
            {"problem": "q", "steps": ["a", "b", "c"], "label": 1},
            {"labels after the first error were dropped": 1},
        ),
        (
            "processbench",
            replace(SOLUTION, targets=(1, 1, None)),
            {"problem": "q", "steps": ["a", "b"], "label": -1},
            {"steps without a label at the end were dropped": 1},
        ),
        (
            "processbench",
            replace(SOLUTION, targets=(None, 0, None)),
            None,
            {"solutions were dropped because a step without a label precedes a labelled one": 1},
        ),
        (
            "math-shepherd",
            SOLUTION,
            {
                "input": "q Step 1: a ки\nStep 2: b ки\nStep 3: c ки",
                "label": "q Step 1: a +\nStep 2: b -\nStep 3: c +",
            },
            {"`Step N:` was added to steps": 3},
        ),
        (
            "math-shepherd",
            replace(SOLUTION, steps=("a", "ки", "c")),
            None,
            {"solutions were dropped because a text contains `ки` or `Step 1:`": 1},
        ),
        (
            "fover",
            replace(SOLUTION, targets=(1, 0, None), id="7", answer="5"),
            {"id": "7", "problem": "q", "solution_steps": ["a", "b", "c"], "error_labels": [True, False, None]},
            {"`answer` was dropped": 1},
        ),
        (
            "surefoot",
            replace(SOLUTION, targets=(1, 0, None), neutral=frozenset({0})),
            {"question": "q", "steps": ["a", "b", "c"], "ratings": [0, -1, None]},
            {},
        ),
        ("surefoot", SOLUTION, {"question": "q", "steps": ["a", "b", "c"], "targets": [1, 0, 1]}, {}),
        (
            "surefoot",
            replace(SOLUTION, targets=(1, 0, None)),
            {"question": "q", "steps": ["a", "b", "c"], "label": 1},
            {},
        ),
    ],
)
def test_what_a_format_cannot_say_is_counted(
    to: str, solution: AnnotatedSolution, row: dict[str, Any] | None, losses: dict[str, int]
) -> None:
    assert written(to, solution) == (row, losses)


def test_text_never_becomes_a_boundary() -> None:
    """A question that contains `Step 1:` would be cut there."""
    for question in ("Is Step 1: wrong?", "Step 1: is it wrong?"):
        asked = replace(SOLUTION, question=question)
        assert written("math-shepherd", asked)[0] is None
        assert written("rlhflow", asked)[1] == {"the boundary between question and first step is not marked": 1}


# Texts as people write them, without the structure of the formats that join texts.
texts = st.text(st.characters(codec="utf-8", exclude_characters="кК"), min_size=1).map(str.strip).filter(bool)
plain = texts.filter(lambda text: "step 1:" not in text.lower())


@st.composite
def solutions(draw: st.DrawFn, *, missing: bool = False, soft: bool = False) -> AnnotatedSolution:
    steps = draw(st.lists(plain, min_size=1, max_size=5))
    label: st.SearchStrategy[float | None] = st.sampled_from([0.0, 1.0])
    if soft:
        label |= st.floats(0, 1)
    if missing:
        label |= st.none()
    targets = tuple(draw(label) for _ in steps)
    numbered = (f"Step {number}: {step}" for number, step in enumerate(steps, start=1))
    return AnnotatedSolution(draw(plain), tuple(numbered), targets)


CARRIED = {
    "trl": solutions(),
    "math-shepherd": solutions(),
    "rlhflow": solutions(),
    "fover": solutions(missing=True),
    "prm800k": solutions(missing=True),
    "surefoot": solutions(missing=True, soft=True),
    "processbench": solutions().map(
        lambda one: replace(
            one,
            targets=tuple(None if 0 <= one.first_error < at else target for at, target in enumerate(one.targets)),
        )
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_format_can_represent_survives_writing_and_reading(name: str) -> None:
    @given(CARRIED[name])
    def check(solution: AnnotatedSolution) -> None:
        row, losses = written(name, solution)
        assert row is not None
        assert losses == {}
        row = json.loads(json.dumps(row))
        found = detect(row)
        assert found is not None
        assert found.name == name
        assert found.read(row) == solution
        assert written(name, found.read(row)) == (row, {})

    check()


@pytest.mark.parametrize("via", WRITTEN)
@pytest.mark.parametrize("name", ["trl", "math-shepherd", "rlhflow"])
def test_a_row_survives_the_way_through_another_format(name: str, via: str) -> None:
    """B to A and back to B. ProcessBench has no labels after the first error, so they all have to be correct."""

    @given(solutions())
    def check(solution: AnnotatedSolution) -> None:
        if via == "processbench":
            solution = replace(solution, targets=(1.0,) * len(solution.steps))
        row, _ = written(name, solution)
        assert row is not None
        other, losses = written(via, FORMATS[name].read(row))
        assert other is not None
        assert losses == {}
        assert written(name, FORMATS[via].read(other)) == (row, {})

    check()


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("trl", TRL_ROW | {"labels": [True]}, "Got 4 steps but 1 labels"),
        ("trl", TRL_ROW | {"labels": [True, None, True, True]}, "has the label None"),
        ("trl", TRL_ROW | {"completions": "a"}, "`completions` must be a list of strings"),
        ("math-shepherd", SHEPHERD_ROW | {"input": "no marker"}, "no marker"),
        ("math-shepherd", SHEPHERD_ROW | {"label": SHEPHERD_ROW["input"]}, "differs from `input` .* marker 0"),
        ("math-shepherd", {"input": "q Step 1: a ки", "label": "q Step 1: a "}, "differs from `input` .* marker 0"),
        ("math-shepherd", {"input": "No end. a ки", "label": "No end. a +"}, "where the question ends"),
        ("prm800k", {"question": {"problem": "q"}, "label": {"steps": [1]}}, r"step 0 \(from 0\)"),
        ("prm800k", {"question": {"problem": "q"}, "label": {"steps": []}}, "no steps"),
        (
            "prm800k",
            {"question": {"problem": "q"}, "label": {"steps": [{"completions": [], "chosen_completion": 0}]}},
            "chosen_completion is 0",
        ),
        (
            "prm800k",
            {"question": {"problem": "q"}, "label": {"steps": [{"completions": [{"text": "a", "rating": 2}]}]}},
            "The rating 2 is invalid",
        ),
        ("processbench", PROCESSBENCH_ROW | {"label": 3}, "label is 3, but for 3 steps"),
        ("processbench", PROCESSBENCH_ROW | {"label": None}, "label is None"),
        ("rlhflow", {"conversations": RLHFLOW_ROW["conversations"][:3]}, "has 3 turns"),
        ("rlhflow", {"conversations": RLHFLOW_ROW["conversations"][::-1]}, "turn 0 .* role user"),
        ("fover", FOVER_ROW | {"error_labels": [True, False, "maybe"]}, "has the label 'maybe'"),
        ("fover", FOVER_ROW | {"error_labels": [1, 0, None]}, "has the label 1;"),
        ("labels", LABELS_ROW | {"steps": ["2 + 3 = 5."]}, r"step 0 \(from 0\) must be an object"),
        ("labels", LABELS_ROW | {"steps": [{"text": "a", "hard": 1}]}, "has the label 1;"),
        ("surefoot", OWN_ROW | {"targets": [2, None]}, "not a probability"),
    ],
)
def test_a_bad_row_is_explained(name: str, row: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FORMATS[name].read(row)


def save(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def load(path: Path) -> list[Any]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def test_labels_are_converted_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    unkept, unlabelled = LABELS_ROW | {"kept": False}, LABELS_ROW | {"steps": [{"text": "a", "hard": None}]}
    (tmp_path / "labels").mkdir()
    file, out = save(tmp_path / "labels" / "labels.jsonl", LABELS_ROW, unkept, unlabelled), tmp_path / "out.jsonl"
    for source in (file, file.parent):
        done = convert(source, out, to="processbench")
        row = {"id": "a", "problem": "What is 2 + 3 * 4?", "label": 1, "final_answer_correct": False}
        assert load(out) == [row | {"steps": ["2 + 3 = 5.", "5 * 4 = 20.", "The answer is 20."]}]
        assert counts(done.losses) == {
            "solutions without a label, or that the judge does not confirm, were dropped": 2,
            "values, rollouts, scores and costs, and the white space between steps were dropped": 1,
            "`answer` was dropped": 1,
        }
    with pytest.raises(OptionError, match="labels can only be read"):
        convert(file, out, to="labels")
    save(file.with_name("corrections.jsonl"), {"step": 0, "verdict": "wrong"})
    for source in (file, file.parent):
        with pytest.raises(InputError, match="People corrected the labels .* --export FILE"):
            convert(source, out, to="trl")


def test_prm800k_becomes_stepwise_supervision(tmp_path: Path) -> None:
    file, out = save(tmp_path / "phase2.jsonl", PRM800K_ROW), tmp_path / "trl.jsonl"
    done = convert(file, out, to="trl")
    steps = ["I want to find it.", "I factor both.", "200000 = 2^9 5^4."]
    problem = "What is the greatest common factor?"
    assert load(out) == [{"prompt": problem, "completions": steps, "labels": [True, True, False]}]
    assert (done.formats, done.rows_read, done.rows_written) == ({"phase2": "prm800k"}, 1, 1)
    found = counts(done.losses)
    assert found["neutral ratings became correct"] == 1
    assert found["steps without a label at the end were dropped"] == 1
    assert found["alternative completions were dropped"] == 2
    assert found["flags of the labellers were dropped"] == 1
    for name in ("labeler", "label.total_time", "question.pre_generated_verifier_score", "answer"):
        assert found[f"`{name}` was dropped"] == 1
    more = convert(file, out, to="trl", alternatives=True)
    assert [row["completions"][-1] for row in load(out)] == ["200000 = 2^9 5^4.", "I can use a factor tree."]
    assert counts(more.losses)["alternative completions without a rating were dropped"] == 1
    assert "alternative completions were dropped" not in counts(more.losses)


def test_a_row_without_any_step_is_counted(tmp_path: Path) -> None:
    """TRL's reader: a step without completions "happens sometimes"."""
    nothing = {"completions": None, "human_completion": None, "chosen_completion": None}
    given_up = {"question": {"problem": "q"}, "label": {"steps": [nothing], "finish_reason": "give_up"}}
    done = convert(save(tmp_path / "in.jsonl", given_up, PRM800K_ROW), tmp_path / "out.jsonl", to="fover")
    assert (done.rows_read, done.rows_written) == (2, 1)
    assert counts(done.losses)["rows without any step were dropped"] == 1


def test_a_file_in_its_own_format_stays_as_it_is(tmp_path: Path) -> None:
    for name, row, _ in READ:
        if name not in WRITTEN:
            continue
        more = {**row, "note": {"kept": [1]}, "broken": "\ud800"}
        done = convert(save(tmp_path / "in.jsonl", more), tmp_path / "out.jsonl.gz", to=name)
        assert load(tmp_path / "out.jsonl.gz") == [more]
        assert done == Conversion({"in": name}, name, 1, 1, {})


def test_each_file_of_a_folder_has_its_own_format(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save(tmp_path / "in" / "a.jsonl", TRL_ROW)
    save(tmp_path / "in" / "b.jsonl", FOVER_ROW)
    done = convert(tmp_path / "in", tmp_path / "out.jsonl", to="surefoot")
    assert done.formats == {"a": "trl", "b": "fover"}
    assert [row.get("label", row.get("targets")) for row in load(tmp_path / "out.jsonl")] == [[1, 1, 0, 0], 1]


def test_nothing_is_written_if_a_row_is_bad(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("before\n")
    mixed = save(tmp_path / "mixed.jsonl", TRL_ROW, FOVER_ROW)
    with pytest.raises(InputError, match=r"mixed.jsonl, line 2: not a row of the format trl: `labels` must be a list"):
        convert(mixed, out, to="surefoot")
    both = save(tmp_path / "both.jsonl", TRL_ROW | FOVER_ROW)
    with pytest.raises(InputError, match=r"both.jsonl, line 1: the keys fit several formats: trl and fover"):
        convert(both, out, to="surefoot")
    with pytest.raises(InputError, match=r"other.jsonl, line 1: the keys \(a\) are those of no known format"):
        convert(save(tmp_path / "other.jsonl", {"a": 1}), out, to="surefoot")
    with pytest.raises(InputError, match="contains no row"):
        convert(save(tmp_path / "empty.jsonl"), out, to="surefoot")
    with pytest.raises(InputError, match="trl cannot represent any solution of .*no step has a label: 1"):
        convert(save(tmp_path / "u.jsonl", FOVER_ROW | {"error_labels": [None] * 3}), out, to="trl")
    assert out.read_text() == "before\n"
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.endswith(".tmp")) == []
    assert convert(both, out, to="surefoot", from_="fover").formats == {"both": "fover"}


def test_wrong_calls_are_named(tmp_path: Path) -> None:
    file = save(tmp_path / "in.jsonl", TRL_ROW)
    with pytest.raises(OptionError, match="no format 'TRL'. Choose one of: surefoot, trl"):
        format_named("TRL")
    with pytest.raises(OptionError, match="is the input"):
        convert(file, file, to="trl")
    with pytest.raises(OptionError, match="does not exist"):
        convert(file, tmp_path / "none" / "out.jsonl", to="trl")
    with pytest.raises(OptionError, match="is a folder"):
        convert(file, tmp_path, to="trl")
