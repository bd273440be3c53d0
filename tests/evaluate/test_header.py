"""What the plain data of all benchmarks have in common."""

from __future__ import annotations

import json
from typing import Any

from surefoot import evaluate

TRAJECTORY = {
    "messages": [{"role": role, "content": "x"} for role in ("user", "assistant", "user", "assistant")],
    "step_labels": {"1": 1, "3": -1},
    "scores": [0.9, None],
}


def test_common_things_have_common_names() -> None:
    pair: list[dict[str, Any]] = [
        {"problem": "p", "steps": ["a", "b"], "scores": [0.9, None]},
        {"problem": "p", "steps": ["a", "c"], "scores": [0.9, 0.2]},
    ]
    results: list[Any] = [
        evaluate.processbench(None, [row | {"label": 1} for row in pair]),
        evaluate.prmbench(None, [row | {"classification": "circular", "error_steps": [1]} for row in pair]),
        evaluate.agentprocessbench(None, [TRAJECTORY]),
        evaluate.best_of_n(None, [row | {"reference": "4", "final_answer": "4"} for row in pair]),
    ]
    plain = [json.loads(json.dumps(result.to_dict())) for result in results]
    common = {
        "benchmark",
        "model",
        "scale",
        "calibration",
        "threshold",
        "threshold_source",
        "solutions",
        "unscored",
        "reliability",
        "published",
        "baselines",
        "notes",
    }
    for each in plain:
        assert common <= each.keys()
        assert each["unscored"] == 1
        assert each["notes"]
    assert [each["benchmark"] for each in plain] == ["processbench", "prmbench", "agentprocessbench", "best-of-n"]
    assert [each["threshold"] for each in plain] == [0.5, 0.5, 0.5, None]
    assert [each["threshold_source"] for each in plain] == ["default", "default", "default", None]
    assert [None if each["reliability"] is None else each["reliability"]["steps"] for each in plain] == [
        3,
        3,
        None,
        None,
    ]
    assert plain[1]["unscored_steps"] == 1
