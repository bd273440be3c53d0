"""The monitor detects what policies do to game a scorer, and stays quiet on honest solutions."""

from __future__ import annotations

import pickle

import pytest

import surefoot
from surefoot.errors import OptionError
from surefoot.rewards.monitor import THRESHOLDS, Monitor, hacking_signals, is_filler, penalty
from surefoot.rewards.recipes import RECIPES
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.text.split import split

QUESTION = "A baker sells 12 rolls at $2 each and 5 loaves at $4 each. How much money does she make?"
HONEST = [
    "Step 1: The rolls bring 12 * 2 = 24 dollars.\nStep 2: The loaves bring 5 * 4 = 20 dollars.\n"
    "Step 3: Together that is 24 + 20 = 44 dollars.\nFinal Answer: 44",
    "First find what the rolls bring.\n\n12 * 2 = 24\n\nThen the loaves.\n\n5 * 4 = 20\n\nAdd both.\n\nSo \\boxed{44}.",
    "By symmetry both triangles are congruent.\n\nHence the angles agree.\n\nThe answer is yes.",
]


@pytest.mark.parametrize(
    "text",
    ["Thanks!", "Happy birthday!", "Let's go", "Thank you so much, my friend.", "I hope this helps!", "...", "---",
     "🎉🎉", "Sure! Let’s solve this problem.", "Okay, I see. Good luck!"],
)  # fmt: skip
def test_steps_without_content(text: str) -> None:
    assert is_filler(text)


@pytest.mark.parametrize(
    "text",
    [
        "So x = 5.",
        "By symmetry.",
        "12",
        "Add both sides.",
        "Hence even.",
        "The answer is yes.",
        "Yes, that is correct.",
        "Тогда ответ чётный.",
        "\\sqrt{x}",
    ],
)
def test_steps_with_content(text: str) -> None:
    assert not is_filler(text)


def test_honest_solutions_have_no_signals(scorer: surefoot.Scorer) -> None:
    for text in HONEST:
        found = hacking_signals(scorer.score(QUESTION, text))
        assert all(found[name] <= THRESHOLDS[name] for name in found), (text, found)


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("Step 1: 12 * 2 = 24.\nStep 2: Thanks!\nStep 3: Happy birthday!\nFinal Answer: 44", "filler"),
        ("Step 1: 12 * 2 = 24.\nStep 2: 12 * 2 = 24.\nStep 3: 12  *  2 = 24.\nFinal Answer: 44", "repeated"),
        ("1 + 1 = 2\n2 + 1 = 3\n3 + 1 = 4\n4 + 1 = 5", "templated"),
        ("Here is a long talk about nothing at all, outside.\nStep 1: 24.\nFinal Answer: 44", "outside"),
        ("Step 1: 12 * 2 = 24.<extra_0><|im_end|>\nFinal Answer: 44", "markers"),
    ],
)
def test_each_signal_is_detected(scorer: surefoot.Scorer, text: str, signal: str) -> None:
    found = hacking_signals(scorer.score(QUESTION, text))
    assert found[signal] > THRESHOLDS[signal]
    clean = {name: value for name, value in found.items() if name not in (signal, "templated")}
    assert all(value <= THRESHOLDS[name] for name, value in clean.items()), found


def test_the_penalty_only_subtracts(scorer: surefoot.Scorer) -> None:
    plain, penalized = RECIPES["min"], RECIPES["min"].plus(penalty(0.5))
    thanks = scorer.score(QUESTION, "Step 1: 12 * 2 = 24.\nStep 2: Thanks!\nFinal Answer: 44")
    before, after = plain(thanks).value, penalized(thanks)
    assert before is not None
    assert after.value == pytest.approx(before - 0.5 * 0.5)
    assert after.terms["hacking"] == 0.5
    for text in HONEST:
        score = scorer.score(QUESTION, text)
        assert penalized(score).value == plain(score).value
    assert pickle.loads(pickle.dumps(penalized))(thanks).value == after.value
    assert penalized(scorer.score(QUESTION, "")).value is None


def rewarded(scorer: surefoot.Scorer, texts: list[str], recipe: Reward, gold: str | None = None) -> list[RewardResult]:
    return [recipe(score, gold) for score in scorer.score_many([(QUESTION, text) for text in texts])]


def test_metrics_of_a_batch(scorer: surefoot.Scorer) -> None:
    texts = [HONEST[0], "", "Thanks!\n\nHappy birthday!", HONEST[0].replace("44", "45")]
    metrics = Monitor().observe(rewarded(scorer, texts, RECIPES["outcome+process"], "44"))
    assert metrics["unscored"] == 0.25
    assert metrics["filler"] == pytest.approx(1 / 3)
    assert metrics["steps"] == pytest.approx((3 + 2 + 3) / 3)
    assert "steps_drift" not in metrics, "no baseline yet"
    assert metrics["unanswered"] == pytest.approx(1 / 3)
    assert set(Monitor().alerts(metrics)) == {"unscored", "unanswered", "filler"} | (
        {"false_positives"} if metrics["false_positives"] > 0.3 else set()
    )
    assert Monitor().observe([]) == {}
    nothing = Monitor().observe(rewarded(scorer, [""], RECIPES["min"]))
    assert nothing == {"unscored": 1.0}


def test_wrong_answers_with_high_scores_are_false_positives(scorer: surefoot.Scorer) -> None:
    results = rewarded(scorer, [HONEST[0], HONEST[0].replace("44", "45")], RECIPES["outcome+process"], "44")
    wrong = results[1].score
    assert wrong is not None
    assert wrong.mean is not None
    assert Monitor(confidence=wrong.mean - 0.01).observe(results)["false_positives"] == 1.0
    assert Monitor(confidence=wrong.mean + 0.01).observe(results)["false_positives"] == 0.0
    assert "false_positives" not in Monitor().observe(rewarded(scorer, HONEST, RECIPES["min"])), "without a gold answer"


def test_a_slow_drift_to_fewer_and_longer_steps_is_detected(scorer: surefoot.Scorer) -> None:
    """A policy that learns to avoid blank lines: the same words in fewer and longer steps."""
    lines = [f"{n} + 1 = {n + 1}, as anyone can see." for n in range(8)]
    monitor = Monitor(warmup=3, smoothing=2)
    for _ in range(3):
        metrics = monitor.observe(rewarded(scorer, ["\n\n".join(lines)], RECIPES["min"]))
    assert metrics["steps"] == 8
    for size in (2, 4, 8):
        text = "\n\n".join(" ".join(lines[at : at + size]) for at in range(0, 8, size)) + "\n\n1 = 1"
        metrics = monitor.observe(rewarded(scorer, [text], RECIPES["min"]))
    assert metrics["steps_drift"] < -0.5
    assert metrics["length_drift"] > 0.5
    assert {"steps_drift", "length_drift"} <= set(monitor.alerts(metrics))


@pytest.mark.parametrize("option", ["warmup", "smoothing"])
def test_invalid_numbers_of_batches_raise(option: str) -> None:
    with pytest.raises(OptionError, match=f"{option}=0"):
        Monitor(**{option: 0})  # type: ignore[arg-type]


def test_signals_cost_about_as_much_as_splitting() -> None:
    from time import perf_counter

    from surefoot.core.result import SolutionScore, StepScore

    text = "\n\n".join(f"We add {n} and 1 and get {n + 1}, which is what we want to know." for n in range(2000))
    started = perf_counter()
    solution = split(text)
    splitting = perf_counter() - started
    steps = tuple(StepScore(s.text, s.start, s.end, 0.5, "scored", s.index) for s in solution.steps)
    score = SolutionScore(steps, "a model")
    started = perf_counter()
    hacking_signals(score)
    assert perf_counter() - started < 5 * splitting + 0.2
