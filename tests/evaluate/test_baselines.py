"""Baselines by hand, by brute force, and next to the model in tables, plain data and reports."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from surefoot import evaluate
from surefoot.evaluate.baselines import (
    Baseline,
    prmbench_baselines,
    processbench_baselines,
    trajectory_baselines,
)
from surefoot.evaluate.rows import PRMBenchRow, ProcessBenchRow
from surefoot.evaluate.step_auc import step_auc, step_auc_interval


def named(baselines: tuple[Baseline, ...]) -> dict[str, Baseline]:
    return {each.name: each for each in baselines}


def row(label: int, steps: int, split: str = "gsm8k") -> ProcessBenchRow:
    return ProcessBenchRow("x", split, "p", tuple(f"step {at}" for at in range(steps)), label)


# Erroneous: first error at step 1, 3, 3 and 2 (of 3, 3, 4 and 2 steps). Correct: 1, 2 and 4 steps.
ROWS = [row(0, 3), row(2, 3), row(2, 4), row(1, 2), row(-1, 1), row(-1, 2), row(-1, 4)]


def test_processbench_by_hand() -> None:
    found = named(processbench_baselines(ROWS))
    assert found["every step correct"].values == {"error": 0.0, "correct": 1.0, "f1": 0.0, "step_auc": 0.5}
    assert found["first step incorrect"].values == {"error": 0.25, "correct": 0.0, "f1": 0.0, "step_auc": 0.5}
    # Step 3: it is the first error of 2 of 4, and 2 of the 3 correct solutions are too short to have one.
    position = found["position"]
    assert position.fitted
    assert "step 3 of every solution" in position.about
    assert position.values["error"] == 0.5
    assert position.values["correct"] == pytest.approx(2 / 3)
    assert position.values["f1"] == pytest.approx(2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
    assert not found["every step correct"].fitted


def test_no_function_of_the_index_is_better() -> None:
    """All 2^4 sets of rejected indices, judged by the real benchmark; and AUC for every order of the four indices."""
    best = named(processbench_baselines(ROWS))["position"].values
    f1s, areas = [], []
    for verdicts in product([0.1, 0.9], repeat=4):
        scored = [evaluate.ProcessBenchRow(**vars(each) | {"scores": verdicts[: len(each.steps)]}) for each in ROWS]
        f1s.append(evaluate.processbench(None, scored, draws=0).f1)
    for values in product([0.1, 0.2, 0.3, 0.4], repeat=4):
        scored = [evaluate.ProcessBenchRow(**vars(each) | {"scores": values[: len(each.steps)]}) for each in ROWS]
        areas.append(evaluate.processbench(None, scored, draws=0).step_auc or 0.0)
    assert best["f1"] == pytest.approx(max(value or 0.0 for value in f1s))
    assert best["step_auc"] == pytest.approx(max(areas))


def test_splits_are_averaged() -> None:
    """gsm8k: error at step 1 in 1 of 1; math: in 0 of 1. The average of 1 and 0."""
    rows = [row(0, 2), row(-1, 2), row(1, 2, "math"), row(-1, 2, "math")]
    first = named(processbench_baselines(rows))["first step incorrect"].values
    assert (first["error"], first["correct"], first["f1"]) == (0.5, 0.0, 0.0)


def test_without_erroneous_solutions_f1_and_auc_are_undefined() -> None:
    found = named(processbench_baselines([row(-1, 2)]))
    assert found["every step correct"].values == {"error": None, "correct": 1.0, "f1": None, "step_auc": None}


def test_prmbench_by_hand() -> None:
    """Steps at index 0: correct, correct, incorrect. At index 1: incorrect, incorrect, correct."""
    rows = [
        PRMBenchRow("a", "circular", "p", ("x", "y"), frozenset({1})),
        PRMBenchRow("b", "circular", "p", ("x", "y", " "), frozenset({1})),
        PRMBenchRow("c", "circular", "p", ("x", "y"), frozenset({0})),
    ]
    found = named(prmbench_baselines(rows))
    assert found["every step correct"].values == {
        "prm_score": pytest.approx(1 / 3),
        "f1": pytest.approx(2 / 3),
        "negative_f1": 0,
    }
    assert found["every step incorrect"].values == {
        "prm_score": pytest.approx(1 / 3),
        "f1": 0,
        "negative_f1": pytest.approx(2 / 3),
    }
    assert found["first step incorrect"].values["prm_score"] == pytest.approx(1 / 3)
    # Rejecting index 1: 2 of 3 correct steps accepted with 1 mistake, and the same for incorrect ones.
    assert found["position"].values == {name: pytest.approx(2 / 3) for name in ("prm_score", "f1", "negative_f1")}


def test_trajectories_by_hand() -> None:
    labels = [(1, 1, -1), (1, 0), (-1, -1), (1, None, 1)]
    found = named(trajectory_baselines(labels))
    # Nine labels: 5 are +1, 3 are -1. First errors: step 3, none, step 1, none.
    assert found["every step +1"].values == {"step_accuracy": pytest.approx(5 / 9), "first_error_accuracy": 0.5}
    assert found["every step -1"].values == {"step_accuracy": pytest.approx(3 / 9), "first_error_accuracy": 0.25}
    # Most frequent by index: +1 (3 of 4), any (1 of 3), any (1 of 2). Step 3 is the first error of one trajectory, and
    # one of the three others is too short to have a step 3 and has no error, so it is as good as no error: 2 of 4.
    assert found["position"].values == {"step_accuracy": pytest.approx(5 / 9), "first_error_accuracy": 0.5}


def test_best_of_n_by_hand() -> None:
    """Problem 1: correct with 1 step, incorrect with 2. Problem 2: incorrect with 1 step, correct with 2, twice."""
    rows = [
        rollout("1", "5", ["a"]),
        rollout("1", "6", ["a", "b"]),
        rollout("2", "6", ["a"]),
        rollout("2", "5", ["a", "b"]),
        rollout("2", "5", ["a", "c"]),
    ]
    result = evaluate.best_of_n(None, rows, ns=[1, 2, 3], draws=0)
    found = {name: list(each.values.values()) for name, each in named(result.baselines).items()}
    assert found["one at random"] == pytest.approx([(1 / 2 + 2 / 3) / 2] * 3)
    assert found["first sample"] == [0.5] * 3
    # N = 2 of problem 2: of the three pairs, two contain the short incorrect one.
    assert found["fewest steps"] == pytest.approx([(1 / 2 + 2 / 3) / 2, (1 + 1 / 3) / 2, (1 + 0) / 2])
    assert found["majority vote"] == [point.value for point in result.majority.values()]
    assert "baseline: fewest steps" in str(result)


def rollout(problem: str, answer: str, steps: list[str]) -> dict[str, Any]:
    scores = [0.5] * len(steps)
    return {"question": problem, "steps": steps, "final_answer": answer, "ground_truth": "5", "scores": scores}


def test_step_auc_by_counting_pairs() -> None:
    generator = np.random.default_rng(3)
    solutions = [
        [
            (float(generator.integers(0, 6)) / 5, bool(generator.random() < 0.6))
            for _ in range(int(generator.integers(0, 5)))
        ]
        for _ in range(40)
    ]
    steps = [step for solution in solutions for step in solution]
    pairs = [
        1.0 if good > bad else 0.5 if good == bad else 0.0
        for good, correct in steps
        if correct
        for bad, other in steps
        if not other
    ]
    assert step_auc(solutions) == pytest.approx(sum(pairs) / len(pairs))
    assert step_auc([[(0.3, True)]]) is None
    interval = step_auc_interval(solutions, evaluate_bootstrap())
    assert interval is not None
    assert interval.low < sum(pairs) / len(pairs) < interval.high


def evaluate_bootstrap() -> Any:
    from surefoot.core.intervals import Bootstrap

    return Bootstrap(200)


SCORED: dict[str, list[dict[str, Any]]] = {
    "processbench": [
        {"problem": "p", "steps": ["a", "b"], "label": 1, "scores": [0.9, 0.2]},
        {"problem": "p", "steps": ["a", "b"], "label": -1, "scores": [0.9, None]},
    ],
    "prmbench": [
        {"problem": "p", "steps": ["a", "b"], "classification": "circular", "error_steps": [1], "scores": [1, 0]}
    ],
    "agentprocessbench": [
        {
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "step_labels": {"1": 1},
            "scores": [0.9],
        }
    ],
    "best-of-n": [rollout("1", "5", ["a"]), rollout("1", "6", ["a", "b"])],
}


@pytest.mark.parametrize("name", SCORED)
def test_they_stand_next_to_the_model_and_are_named_as_baselines(name: str) -> None:
    result = evaluate.BENCHMARKS[name].run(None, SCORED[name], draws=0, name="mine")
    shown, plain = str(result), json.loads(json.dumps(result.to_dict()))
    text = evaluate.report_html(result)
    assert len(result.baselines) >= 3
    for each, data in zip(result.baselines, plain["baselines"], strict=True):
        assert f"baseline: {each.name}" in shown
        assert f"baseline: {each.name}" in text
        assert each.about.split("<")[0].rstrip(".") in text
        assert data == {"name": each.name, "about": each.about, "fitted": each.fitted, "values": dict(each.values)}


def test_labels_of_unscored_solutions_count() -> None:
    """A baseline is about the data, not about what a model could score."""
    result = evaluate.processbench(None, SCORED["processbench"], draws=0)
    assert result.unscored == 1
    assert named(result.baselines)["every step correct"].values["correct"] == 1.0
