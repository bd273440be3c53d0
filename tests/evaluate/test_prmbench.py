"""PRMBench's metric, by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from surefoot.evaluate import PRMBenchRow, prmbench
from surefoot.evaluate.prmbench import Decisions
from surefoot.evaluate.prmbench.result import CATEGORIES


def row(classification: str, errors: set[int], scores: Sequence[float | None], **more: Any) -> PRMBenchRow:
    steps = tuple("abcdefgh"[: len(scores)])
    return PRMBenchRow("x", classification, "p", steps, frozenset(errors), scores=tuple(scores), **more)


def test_decisions_by_hand() -> None:
    """Right steps 0, 2, 3 with 0.9, 0.4, 0.6; wrong steps 1, 4 with 0.5, 0.8: TP 2, FN 1, TN 1, FP 1."""
    result = prmbench(None, [row("circular", {1, 4}, [0.9, 0.5, 0.4, 0.6, 0.8])])
    assert result.overall.decisions == Decisions(2, 1, 1, 1)
    assert result.overall.decisions.f1 == pytest.approx(4 / 6)
    assert result.overall.decisions.negative_f1 == pytest.approx(2 / 4)
    assert result.overall.prm_score == pytest.approx((4 / 6 + 2 / 4) / 2)
    assert result.overall.first_errors == (1, 1)


@pytest.mark.parametrize(
    ("cells", "f1", "negative", "score"),
    [
        ((10, 0, 5, 0), 1.0, 1.0, 1.0),
        ((10, 5, 0, 0), 20 / 25, 0.0, 0.4),  # nothing is ever taken for wrong
        ((0, 0, 5, 10), 0.0, 10 / 20, 0.25),  # everything is
        ((8, 0, 0, 2), 16 / 18, None, 16 / 18),  # nothing is wrong: multi_solutions
        ((0, 2, 3, 0), None, 6 / 8, None),
        ((0, 0, 0, 0), None, None, None),
    ],
)
def test_scores_of_decisions(
    cells: tuple[int, int, int, int], f1: float | None, negative: float | None, score: float | None
) -> None:
    decisions = Decisions(*cells)
    assert decisions.f1 == pytest.approx(f1)
    assert decisions.negative_f1 == pytest.approx(negative)
    assert decisions.prm_score == pytest.approx(score)


# Published class scores in the order of CATEGORIES, and the averages printed beside them (PRMBench README).
LEADERBOARD = [
    ((44.0, 50.3), 47.1, (49.4, 44.5, 41.3, 47.7), 45.7, (47.2, 48.6, 86.1), 60.7),
    ((35.7, 41.2), 38.4, (36.7, 29.1, 30.6, 34.4), 32.7, (36.8, 37.4, 88.8), 54.3),
    ((61.0, 50.1), 55.5, (62.1, 65.9, 61.5, 66.0), 63.9, (55.6, 58.0, 99.5), 71.0),
]


@pytest.mark.parametrize("line", LEADERBOARD)
def test_categories_are_plain_means_as_on_the_leaderboard(line: tuple[Any, ...]) -> None:
    """Classes are made whose scores are the published ones; the categories must come out as printed."""
    rows = []
    for (_, names), published in zip(CATEGORIES.items(), line[::2], strict=True):
        for name, score in zip(names, published, strict=True):
            # With nothing wrong PRMScore is F1 = 2k / (k + n) when k of n steps are taken for right.
            count = 2000
            taken = round(score / 100 * count / (2 - score / 100))
            scores = tuple([0.9] * taken + [0.1] * (count - taken))
            rows.append(PRMBenchRow(name, name, "p", ("a",) * count, frozenset(), scores=scores))
    result = prmbench(None, rows, draws=0)
    for category, printed in zip(CATEGORIES, line[1::2], strict=True):
        found = result.categories[category]
        assert found is not None
        assert 100 * found == pytest.approx(printed, abs=0.1)


def test_overall_is_made_of_all_decisions_not_of_the_classes() -> None:
    rows = [row("circular", {0}, [0.1] * 1 + [0.9] * 7), row("deception", {0, 1}, [0.9, 0.9, 0.1, 0.9])]
    result = prmbench(None, rows)
    assert result.overall.decisions == Decisions(8, 2, 1, 1)
    first, second = (each.prm_score for each in result.classes)
    assert first is not None
    assert second is not None
    assert result.overall.prm_score != pytest.approx((first + second) / 2)


def test_originals_are_shown_and_in_no_total() -> None:
    rows = [row("redundency", {1}, [0.9, 0.1]), row("correct", set(), [0.1, 0.1, 0.1])]
    result = prmbench(None, rows)
    assert result.overall.decisions == Decisions(1, 0, 1, 0)
    assert result.overall.solutions == 1
    assert result.originals is not None
    assert result.originals.decisions == Decisions(0, 0, 0, 3)
    assert [each.name for each in result.classes] == ["redundency"]


def test_a_category_needs_all_of_its_classes() -> None:
    result = prmbench(None, [row("redundency", {1}, [0.9, 0.1])])
    assert result.categories == {"simplicity": None, "soundness": None, "sensitivity": None}


def test_steps_without_a_score_are_counted_apart() -> None:
    result = prmbench(None, [row("circular", {1}, [0.9, None, 0.9]), row("circular", {0}, [0.1, 0.9])])
    assert result.overall.decisions == Decisions(3, 0, 1, 0)
    assert result.unscored == 1
    assert result.overall.first_errors == (1, 1)
    assert "1 of 2 solutions have unscored steps" in result.notes[0]


def test_notes_on_the_data() -> None:
    rows = [row("circular", {0}, [0.1], out_of_range=2), row("of my own", {0}, [0.1])]
    notes = prmbench(None, rows).notes
    assert any("2 error indices point past the last step" in note for note in notes)
    assert any("Not among the nine classes: of my own" in note for note in notes)


def test_official_rows_count_from_one_and_lose_their_prefixes() -> None:
    """Step 2 of the file is index 1 here, and its twin is made."""
    rows = [
        {
            "idx": "redundency_7",
            "classification": "redundency",
            "modified_question": "q",
            "modified_process": ["1. a", "Step 2. b", "0.25 is c"],
            "error_steps": [2],
            "original_question": "q",
            "original_process": ["1. a"],
            "mine": [0.9, 0.1, 0.9],
        }
    ]
    result = prmbench(None, rows, scores="mine")
    assert result.overall.decisions == Decisions(2, 0, 1, 0)
    assert result.items[0][0].steps == ("a", "b", "0.25 is c")


def test_a_step_that_is_only_a_number_counts_and_a_blank_one_is_told() -> None:
    rows = [
        {
            "id": "7",
            "classification": "circular",
            "problem": "q",
            "steps": ["1. a", "30.", " ", ""],
            "error_steps": [1, 3],
            "scores": [0.9, 0.1, None, None],
        }
    ]
    result = prmbench(None, rows)
    assert result.overall.decisions == Decisions(1, 0, 1, 0)
    assert result.overall.first_errors == (1, 1)
    assert result.notes == ("2 steps are blank, 1 of them labelled incorrect; they are in no total.",)


def test_intervals_are_over_solutions_and_repeat() -> None:
    rows = [row("circular", {1}, [0.9, 0.1 if at % 2 else 0.9, 0.9]) for at in range(40)]
    first, again, other = (prmbench(None, rows, seed=seed).overall for seed in (3, 3, 4))
    assert first.interval == again.interval != other.interval
    assert first.interval is not None
    assert first.prm_score is not None
    assert first.interval.low < first.prm_score < first.interval.high
    assert prmbench(None, rows, draws=0).overall.interval is None


def test_forms() -> None:
    result = prmbench(None, [row("circular", {1}, [0.9, 0.1])], name="Qwen/Qwen2.5-Math-PRM-7B")
    assert "65.5" in str(result)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["overall"]["true_negative"] == 1
    assert data["published"]["soundness"] == 71.0
