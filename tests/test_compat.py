"""The drop-in replacement has the interface of the original scorer, but never invents scores."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.compat import DEFAULT_SYSTEM_PROMPT, ProcessRewardScorer, extract_prm_steps
from surefoot.core.result import SolutionScore, StepScore

KEYS = {
    "step_scores",
    "num_steps",
    "mean_score",
    "min_score",
    "final_score",
    "degraded",
    "degraded_reason",
    "padded_steps",
}
QUESTION = "Tom has 3 bags of 4 apples. How many apples?"
SOLUTION = "Step 1: There are 3 bags.\nStep 2: 3 * 4 = 12.\nFinal Answer: 12"


@pytest.fixture(scope="module")
def old(checkpoint: Path) -> ProcessRewardScorer:
    return ProcessRewardScorer(str(checkpoint))


@pytest.mark.parametrize(
    ("solution", "steps"),
    [
        (SOLUTION, ["There are 3 bags.", "3 * 4 = 12.", "The answer is \\boxed{12}"]),
        ("step 1: a\nSTEP 2: b", ["a", "b"]),
        ("Step 1:\nStep 2: b", ["b"]),
        ("Step 1: a\nFinal Answer: $18 a day", ["a", "The answer is \\boxed{18}"]),
        ("Step 1: a\nFinal Answer: 1,250", ["a", "The answer is \\boxed{1,250}"]),
        ("Step 1: a\nFinal Answer: 3/4", ["a", "The answer is \\boxed{3/4}"]),
        *(
            (f"Step 1: a\nFinal Answer: {value}", ["a", f"The answer is \\boxed{{{value}}}"])
            for value in (
                "\\sqrt{2}",
                "3\\pi",
                ".5",
                "2x",
                "x^2+y",
                "-x/3",
                "\\log 2",
                "2 and a half",
                "14 dozen",
                "-5",
            )
        ),
        ("Step 1: a\nFinal Answer: 18 eggs", ["a", "The answer is \\boxed{18}"]),
        ("Step 1: a\nFinal Answer: x", ["a", "The answer is \\boxed{x}"]),
        ("Step 1: so it is \\boxed{5}", ["so it is \\boxed{5}"]),
        ("Final Answer: 7", ["The answer is \\boxed{7}"]),
        ("no steps at all", []),
        ("", []),
    ],
)
def test_steps_are_those_of_the_original(solution: str, steps: list[str]) -> None:
    assert extract_prm_steps(solution) == steps


def test_one_solution(old: ProcessRewardScorer, scorer: surefoot.Scorer) -> None:
    result = old.score_solution(f"  {QUESTION}\n", SOLUTION)
    assert set(result) == KEYS
    expected = scorer.score(QUESTION, extract_prm_steps(SOLUTION))
    assert result["step_scores"] == expected.step_scores
    assert result["num_steps"] == 3
    assert result["mean_score"] == pytest.approx(expected.mean)
    assert result["min_score"] == expected.min
    assert result["final_score"] == expected.final
    assert result["degraded"] is False
    assert result["degraded_reason"] is None
    assert result["padded_steps"] is False
    assert all(type(score) is float for score in result["step_scores"])


def test_a_batch_keeps_its_order(old: ProcessRewardScorer) -> None:
    items = [{"question": QUESTION, "solution": SOLUTION.replace("12", str(n))} for n in range(5)]
    items.insert(2, {"question": QUESTION, "solution": ""})
    together = old.score_batch(items)
    for item, result in zip(items, together, strict=True):
        assert result["step_scores"] == pytest.approx(old.score_solution(**item)["step_scores"], abs=1e-5)
    assert together[2]["degraded"] is True


def test_no_steps(old: ProcessRewardScorer) -> None:
    assert old.score_solution(QUESTION, "nothing here") == {
        "step_scores": [],
        "num_steps": 0,
        "mean_score": 0.0,
        "min_score": 0.0,
        "final_score": 0.0,
        "degraded": True,
        "degraded_reason": "no extractable steps",
        "padded_steps": False,
    }


def test_any_family() -> None:
    result = ProcessRewardScorer("mini").score_solution(QUESTION, SOLUTION)
    assert len(result["step_scores"]) == 3
    assert not result["degraded"]


def test_an_invalid_item_does_not_affect_the_others(old: ProcessRewardScorer) -> None:
    bad, good = old.score_batch(
        [{"question": "\ud800", "solution": SOLUTION}, {"question": QUESTION, "solution": SOLUTION}]
    )
    assert bad["degraded"]
    assert "surrogate" in bad["degraded_reason"]
    assert len(good["step_scores"]) == 3


def test_the_system_prompt_is_used(old: ProcessRewardScorer) -> None:
    same = old.score_solution(QUESTION, SOLUTION, system_prompt=DEFAULT_SYSTEM_PROMPT)
    other = old.score_solution(QUESTION, SOLUTION, system_prompt="Be terse.")
    assert same["step_scores"] == old.score_solution(QUESTION, SOLUTION)["step_scores"] != other["step_scores"]


@pytest.mark.parametrize("pad", [False, True])
def test_truncated_solutions_are_degraded(checkpoint: Path, old: ProcessRewardScorer, pad: bool) -> None:
    cut = ProcessRewardScorer(str(checkpoint), torch.device("cpu"), True, torch.float32, 55, pad_missing=pad)
    full, result = old.score_solution(QUESTION, SOLUTION), cut.score_solution(QUESTION, SOLUTION)
    assert result["degraded"] is True
    assert "end past the limit of 55 tokens" in result["degraded_reason"]
    assert result["num_steps"] == 3
    assert result["padded_steps"] is pad
    kept = result["step_scores"][:1]
    assert kept == pytest.approx(full["step_scores"][:1], abs=1e-5)
    if pad:
        assert result["step_scores"] == kept * 3
        assert result["mean_score"] == pytest.approx(kept[0])
    else:
        assert result["step_scores"] == kept
        assert result["mean_score"] is result["min_score"] is result["final_score"] is None


def test_an_unscored_step_in_the_middle_shifts_no_score(old: ProcessRewardScorer) -> None:
    steps = [
        StepScore("s", 0, 1, score, "scored" if score is not None else "not_finite", index)
        for index, score in enumerate((0.9, None, 0.1))
    ]
    result = SolutionScore(tuple(steps), "test", reason="why")
    assert old.as_dict(result)["step_scores"] == [0.9]
    assert old.as_dict(result)["final_score"] == 0.1
    assert old.as_dict(result)["mean_score"] is None
    assert old.as_dict(result)["degraded"] is True
    padding = copy.copy(old)
    padding.pad_missing = True
    assert padding.as_dict(result)["step_scores"] == [0.9, 0.5, 0.1]
    assert padding.as_dict(result)["padded_steps"] is True
