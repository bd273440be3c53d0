"""Alarms are logged once, with advice, after enough samples; they go off when the metric recovers."""

from __future__ import annotations

import logging

import pytest

import surefoot
from surefoot.errors import OptionError
from surefoot.rewards.monitor import THRESHOLDS, Monitor
from surefoot.rewards.recipes import RECIPES
from surefoot.rewards.reward import RewardResult
from surefoot.rewards.run_monitor import ADVICE, RunMonitor

QUESTION = "What is 2 + 3 * 4?"
ANSWERED = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
UNANSWERED = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14."


@pytest.fixture(scope="module")
def answered(scorer: surefoot.Scorer) -> RewardResult:
    return RECIPES["min"](scorer.score(QUESTION, ANSWERED))


@pytest.fixture(scope="module")
def unanswered(scorer: surefoot.Scorer) -> RewardResult:
    return RECIPES["min"](scorer.score(QUESTION, UNANSWERED))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_every_metric_with_a_threshold_has_advice() -> None:
    assert ADVICE.keys() == THRESHOLDS.keys()


@pytest.mark.parametrize("min_batch", [1, 16])
def test_an_alarm_is_logged_once(
    answered: RewardResult, unanswered: RewardResult, caplog: pytest.LogCaptureFixture, min_batch: int
) -> None:
    watch = RunMonitor(window=16, min_batch=min_batch)
    for _ in range(3):
        watch.record([unanswered] * 5)
    assert warnings(caplog) == [], "15 samples are not enough"
    assert watch.alarms == dict.fromkeys(THRESHOLDS, 0.0)
    for _ in range(10):
        watch.record([unanswered] * 8)
    (message,) = warnings(caplog)
    assert "unanswered is 1.00" in message
    assert "threshold: 0.30" in message
    assert "Final Answer: 14" in message
    assert watch.alarms == dict.fromkeys(THRESHOLDS, 0.0) | {"unanswered": 1.0}
    watch.record([answered] * 32)
    assert watch.alarms["unanswered"] == 0.0, "the alarm is off again"
    watch.record([unanswered] * 32)
    assert watch.alarms["unanswered"] == 1.0
    assert len(warnings(caplog)) == 1


def test_the_mean_is_over_samples_and_not_over_batches(answered: RewardResult, unanswered: RewardResult) -> None:
    """One batch of a hard question is no alarm: 8 of 32 samples have no answer."""
    watch = RunMonitor(window=32)
    assert watch.record([answered] * 24)["unanswered"] == 0.0
    assert watch.record([unanswered] * 8)["unanswered"] == 1.0, "the metrics are those of the batch"
    assert watch.alarms["unanswered"] == 0.0
    watch.record([unanswered] * 8)
    assert watch.alarms["unanswered"] == 1.0, "16 of the last 40"


def test_small_batches_are_observed_together(answered: RewardResult, unanswered: RewardResult) -> None:
    watch = RunMonitor(min_batch=4)
    assert watch.record([answered]) == {}
    assert watch.record([answered, answered]) == {}
    assert watch.record([unanswered])["unanswered"] == 0.25


def test_a_threshold_can_be_switched_off(unanswered: RewardResult, caplog: pytest.LogCaptureFixture) -> None:
    watch = RunMonitor(Monitor(thresholds={"unanswered": float("inf")}), window=4)
    watch.record([unanswered] * 8)
    assert not any(watch.alarms.values())
    assert warnings(caplog) == []


@pytest.mark.parametrize("option", ["window", "min_batch"])
def test_invalid_numbers_of_samples_raise(option: str) -> None:
    with pytest.raises(OptionError, match=f"{option}=0"):
        RunMonitor(**{option: 0})  # type: ignore[arg-type]
