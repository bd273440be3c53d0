"""Plots for notebooks: what is drawn, read from matplotlib's objects."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

from helpers.search_records import found, record, sample
from surefoot import SolutionScore, StepScore, evaluate
from surefoot.core.intervals import Bootstrap

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def solution(*scores: float | None, scale: str = "probability") -> SolutionScore:
    steps = (StepScore("a", 0, 1, each, "scored", at) for at, each in enumerate(scores))
    return SolutionScore(tuple(steps), "m", scale=scale)  # type: ignore[arg-type]


def test_the_steps_of_a_solution() -> None:
    axes: Any = solution(0.9, 0.2, 0.7).plot()
    scores, limit, error = axes.get_lines()
    assert list(scores.get_xydata().flatten()) == [1, 0.9, 2, 0.2, 3, 0.7]
    assert set(limit.get_ydata()) == {0.5}
    assert list(error.get_xydata().flatten()) == [2, 0.2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["threshold 0.5", "first error: step 2"]


def test_an_unscored_step_is_a_gap() -> None:
    axes: Any = solution(0.9, None, 0.2).plot(threshold=0.3)
    scores, limit = axes.get_lines()  # the first error is unknown
    assert np.isnan(scores.get_ydata()[1])
    assert set(limit.get_ydata()) == {0.3}


def test_given_axes_are_used() -> None:
    from matplotlib import pyplot

    axes = pyplot.subplots()[1]
    assert solution(0.5, scale="margin").plot(axes=axes) is axes


def test_reliability() -> None:
    steps = [(0.05, False), (0.05, True), (0.95, True)]
    curve = evaluate.reliability([steps], bins=2, bootstrap=Bootstrap(0, 0))
    assert curve is not None
    drawn: Any = curve.plot().get_lines()[-1]
    assert drawn.get_xydata().flatten() == pytest.approx([0.05, 0.5, 0.95, 1.0])


def test_accuracy_over_tokens() -> None:
    records = [
        record({"beam": found("14", 40)}, [sample("14")] * 2, index=0),
        record({"beam": found("20", 60)}, [sample("14")] * 2, index=1),
    ]
    axes: Any = evaluate.plot_searches(evaluate.compare_searches(records, draws=10))
    points: Any = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert points["beam"] == [[50.0, 0.5]]
    assert axes.get_xscale() == "log"


def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from surefoot import SolutionScore, StepScore\n"
        "SolutionScore((StepScore('a', 0, 1, 0.5, 'scored', 0),), 'm').plot()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "surefoot[report]"' in done.stderr
    assert "MissingDependencyError" in done.stderr
