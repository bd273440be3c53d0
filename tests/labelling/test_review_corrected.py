"""Corrected labels. All expected values are computed by hand from the labels in `helpers.review_folder`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.review_folder import AFTER, BAKER, LOAVES, ROLLS, TOTAL, solutions, write_labels
from surefoot.core.labels import LabelledSolution
from surefoot.data.convert import convert
from surefoot.errors import InputError, OptionError
from surefoot.labelling.review import corrected
from surefoot.labelling.review.corrected import NOT_AFTER_ERROR, UNSURE
from surefoot.labelling.review.corrections import Change, Corrections, Opinion
from surefoot.labelling.review.labels import key_of
from surefoot.train.readers import read_examples

RIGHT, WRONG, DISPUTED, OPEN = range(4)
T, F, N = True, False, None


def say(folder: Path, which: int, **opinions: Opinion) -> None:
    """Judge steps: `s2="wrong"` is step 2, from 0."""
    changes = [Change(int(step[1:]), opinion, None) for step, opinion in opinions.items()]
    Corrections(folder).save(key_of(solutions()[which]), changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels")


@pytest.mark.parametrize(
    ("which", "opinions", "hard", "first_error"),
    [
        (RIGHT, {}, [T, T, T], -1),
        (RIGHT, {"s0": "right"}, [T, T, T], -1),
        (RIGHT, {"s1": "wrong"}, [T, F, N], 1),  # the step after the error is no longer known to be right
        (RIGHT, {"s0": "wrong", "s2": "right"}, [F, N, T], 0),  # unless a person says so
        (RIGHT, {"s0": "wrong", "s1": "wrong"}, [F, F, N], 0),
        (RIGHT, {"s0": "unsure"}, [N, T, T], None),
        (RIGHT, {"s0": "unsure", "s1": "wrong"}, [N, F, N], None),
        (WRONG, {}, [T, F, N], 1),
        (WRONG, {"s1": "right"}, [T, T, N], None),  # nobody knows about the step after the former error
        (WRONG, {"s1": "right", "s2": "wrong"}, [T, T, F], 2),
        (WRONG, {"s2": "wrong"}, [T, F, F], 1),
        (WRONG, {"s0": "wrong"}, [F, N, N], 0),
        (OPEN, {}, [N, T], None),
        (OPEN, {"s0": "right"}, [T, T], -1),
        (OPEN, {"s0": "wrong"}, [F, N], 0),
    ],
)
def test_labels_with_the_verdicts_of_people(
    folder: Path, which: int, opinions: dict[str, Opinion], hard: list[bool | None], first_error: int | None
) -> None:
    if opinions:
        say(folder, which, **opinions)
    found = corrected(folder).solutions[which]
    assert [step.hard for step in found.steps] == hard
    assert found.first_error == first_error
    for at, step in enumerate(found.steps):
        assert (step.state == "labelled") == (step.hard is not None) == (step.reason is None)
        assert (step.source == "person") == (f"s{at}" in opinions)
        if step.source == "person":
            assert (step.soft, step.relative) == (None, None), "a measured value would contradict the person"
    assert LabelledSolution.from_dict(json.loads(found.to_json())) == found


def test_every_unknown_step_says_why(folder: Path) -> None:
    say(folder, RIGHT, s0="unsure", s1="wrong")
    say(folder, WRONG, s1="right")
    found = corrected(folder).solutions
    assert [step.reason for step in found[RIGHT].steps] == [UNSURE, None, AFTER]
    assert [step.reason for step in found[WRONG].steps] == [None, None, NOT_AFTER_ERROR]
    assert found[RIGHT].steps[1].outcomes.right == 6, "what was measured is kept"


def test_the_summary(folder: Path) -> None:
    nothing = corrected(folder).summary
    assert (nothing.solutions, nothing.reviewed, nothing.agreement, nothing.interval) == (4, 0, None, None)
    assert "agree" not in str(nothing)
    say(folder, RIGHT, s0="right", s1="wrong", s2="unsure")  # complete: confirmed, changed, unsure
    say(folder, WRONG, s1="wrong")  # step 0 is missing: confirmed
    say(folder, DISPUTED, s0="wrong")  # complete, because the first step is wrong: changed
    say(folder, OPEN, s0="right", s1="right")  # complete: added, confirmed
    found = corrected(folder).summary
    assert (found.reviewed, found.started) == (3, 1)
    assert (found.confirmed, found.changed, found.added, found.unsure, found.not_applied) == (3, 2, 1, 1, 0)
    assert found.agreement == 0.6
    assert found.interval is not None
    # Wilson's interval for 3 of 5: (3 + z^2/2) / (5 + z^2) -+ z / (5 + z^2) * sqrt(3 * 2 / 5 + z^2/4), z = 1.959964
    assert found.interval == pytest.approx((0.23072, 0.88238), abs=1e-4)
    told = str(found)
    assert "3 of 4 solutions are reviewed, 1 more in part" in told
    assert "3 confirmed, 2 changed, 1 added, 1 unsure" in told
    assert "60.0 [23.1-88.2]%" in told


def test_what_training_and_convert_read(folder: Path, tmp_path: Path) -> None:
    say(folder, RIGHT, s1="wrong")
    say(folder, WRONG, s1="right", s2="wrong")
    say(folder, DISPUTED, s1="unsure")  # the judge still disagrees: no label of the rollouts is used
    say(folder, OPEN, s0="right")
    out = tmp_path / "corrected.jsonl"
    assert corrected(folder).write(out) == 3
    assert [(example.question, example.steps, example.targets) for example in read_examples(out)] == [
        (BAKER, (ROLLS, LOAVES, TOTAL), (1.0, 0.0, None)),
        (BAKER, (ROLLS, "5 * 4 = 25.", "24 + 25 = 49."), (1.0, 1.0, 0.0)),
        ("Solve 2x = 6.", ("Let x be it.", "x = 3."), (1.0, 1.0)),
    ]
    converted = tmp_path / "trl.jsonl"
    assert convert(out, converted, to="trl").rows_written == 3
    labels = [json.loads(line)["labels"] for line in converted.read_text().splitlines()]
    assert labels == [[True, False], [True, True, False], [True, True]]


def test_a_person_decides_where_the_judge_disagrees(folder: Path) -> None:
    assert [row["question"] for row in corrected(folder).rows()].count("What is 7 * 8?") == 0
    say(folder, DISPUTED, s1="wrong")
    (row,) = [row for row in corrected(folder).rows() if row["question"] == "What is 7 * 8?"]
    assert row["targets"] == [None, 0.0], "only the label of the person, as the judge does not confirm the others"
    say(folder, DISPUTED, s0="wrong")
    (row,) = [row for row in corrected(folder).rows() if row["question"] == "What is 7 * 8?"]
    assert row["targets"] == [0.0, 0.0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: {"question": "x"},
        lambda data: data | {"question": 5},
        lambda data: data | {"index": -1},
        lambda data: data | {"steps": [data["steps"][0] | {"text": None}]},
        lambda data: data | {"steps": [data["steps"][0] | {"hard": "yes"}]},
        lambda data: data | {"judge": {"model": "m", "first_error": 0, "scores": [], "spreads": [], "certain": None}},
    ],
)
def test_damaged_labels_are_an_error_with_their_line(tmp_path: Path, damage: Any) -> None:
    rows = [solutions()[0].to_dict(), damage(solutions()[1].to_dict())]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"line 2.*not a labelled solution"):
        corrected(tmp_path)


def test_a_folder_without_labels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no labels\.jsonl"):
        corrected(tmp_path)


def test_where_an_export_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere" / "x.jsonl"):
        with pytest.raises(OptionError, match="folder"):
            corrected(folder).write(place)
