"""A local model, a service and a vLLM server are interchangeable wherever a scorer is accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.serving import QUESTION, SOLUTION, served
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.core.options import THINKING
from surefoot.core.protocols import AsyncStepScorer
from surefoot.errors import OptionError
from surefoot.integrations import openrlhf, trl, verl
from surefoot.scoring.scorer import Scorer

KINDS = ("local", "service", "vllm")
ROWS: list[dict[str, Any]] = [
    {
        "id": f"gsm8k-{number}",
        "problem": f"What is {number} + 2?",
        "steps": [f"{number} + 2 = {number + 2}.", f"The answer is {number + 2}.", "Done."],
        "label": -1 if number % 2 else number % 3,
    }
    for number in range(12)
]
ROLLOUTS: list[dict[str, Any]] = [
    {
        "problem_id": str(number // 4),
        "problem": f"What is {number // 4} + 2?",
        "steps": [f"We add 2 to {number // 4}.", f"The answer is {number // 4 + 2 + number % 2}."],
        "ground_truth": str(number // 4 + 2),
    }
    for number in range(12)
]


@pytest.fixture(scope="module")
def addresses(scorer: surefoot.Scorer, checkpoint: Path) -> Iterator[dict[str, tuple[str, dict[str, Any]]]]:
    """How each kind is named: what `load` takes, and its options. Our service also speaks vLLM's /pooling."""
    with served([scorer]) as (url, _):
        yield {
            "local": (str(checkpoint), {}),
            "service": (url, {}),
            "vllm": (f"vllm+{url}", {"tokenizer": str(checkpoint)}),
        }


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def other(name: str, addresses: dict[str, tuple[str, dict[str, Any]]]) -> surefoot.StepScorer:
    address, options = addresses[name]
    return surefoot.load(address, **options)


def test_the_protocol(other: surefoot.StepScorer, scorer: surefoot.Scorer) -> None:
    assert other.name
    assert (other.scale, other.calibration) == ("probability", None)
    assert len(other.fingerprint) == 64
    items: list[tuple[str, Any]] = [(QUESTION, SOLUTION), (QUESTION, ["One step."]), (QUESTION, "")]
    thought = f"<think>\nIs it 3?\n</think>\n{SOLUTION}"
    for thinking in THINKING:
        chosen = surefoot.ReadOptions(thinking=thinking)
        one, two = other.score(QUESTION, thought, chosen), scorer.score(QUESTION, thought, chosen)
        assert [step.text for step in one.steps] == [step.text for step in two.steps]
        assert (one.skipped, one.outside, one.warnings) == (two.skipped, two.outside, two.warnings)
    options = surefoot.ReadOptions(split="lines", closing=False)
    expected = scorer.score_many(items, options)
    for found in (
        other.score_many(items, options),
        list(other.score_stream(items, options, window=2)),
        [other.score(*item, options) for item in items],
    ):
        for one, two in zip(found, expected, strict=True):
            assert one.step_scores == pytest.approx(two.step_scores, abs=1e-5)
            assert (one.reason, one.answer, one.split) == (two.reason, two.answer, two.split)
    stream = list(other.score_stream([(QUESTION, 3), (QUESTION, SOLUTION)]))  # type: ignore[list-item]
    assert [result.status for result in stream] == ["unscored", "scored"]
    assert stream[0].reason == "Item 0: The solution is of type int; pass a str, or a list with one str per step."


def middle(scorer: surefoot.Scorer) -> float:
    """A threshold between the scores, so that the random model calls about half of the steps correct."""
    results = scorer.score_many([(row["problem"], row["steps"]) for row in ROWS])
    scores = sorted(score for result in results for score in result.step_scores if score is not None)
    return (scores[len(scores) // 2 - 1] + scores[len(scores) // 2]) / 2


def test_evaluation(other: surefoot.StepScorer, scorer: surefoot.Scorer) -> None:
    threshold = middle(scorer)
    mine, theirs = (evaluate.processbench(each, ROWS, threshold=threshold, draws=20) for each in (scorer, other))
    assert mine.f1
    assert theirs.f1 == mine.f1
    assert theirs.to_dict()["splits"] == mine.to_dict()["splits"]
    best, found = (evaluate.best_of_n(each, ROLLOUTS, ns=(4,), draws=20) for each in (scorer, other))
    assert {**found.to_dict(), "model": ""} == {**best.to_dict(), "model": ""}


def test_calibration(other: surefoot.StepScorer, scorer: surefoot.Scorer) -> None:
    mine, theirs = (evaluate.calibrate(each, ROWS, method="temperature", draws=20) for each in (scorer, other))
    assert theirs.calibration.fingerprint == other.fingerprint
    assert theirs.calibration.map(0.4) == pytest.approx(mine.calibration.map(0.4), abs=1e-3)


def test_rewards(other: surefoot.StepScorer, scorer: surefoot.Scorer) -> None:
    expected = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=scorer, recipe="outcome+process").value
    found = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=other, recipe="outcome+process").value
    assert found == pytest.approx(expected, abs=1e-5)


def test_integrations(other: surefoot.StepScorer, scorer: surefoot.Scorer) -> None:
    lowest = scorer.score(QUESTION, SOLUTION).min
    reward = trl.reward_function(other, "min")
    assert reward([QUESTION], [SOLUTION]) == [pytest.approx(lowest, abs=1e-5)]
    scored = verl.compute_score("any", SOLUTION, "14", {"question": QUESTION}, model=other, recipe="min")
    assert scored["score"] == pytest.approx(lowest, abs=1e-5)
    body = {"query": [QUESTION + SOLUTION], "prompts": [QUESTION], "labels": ["14"]}
    assert openrlhf.OpenRLHFReward(other, "min").get_reward(body)["rewards"] == [pytest.approx(lowest, abs=1e-5)]


def test_the_command_line(
    name: str,
    addresses: dict[str, tuple[str, dict[str, Any]]],
    scorer: surefoot.Scorer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, options = addresses[name]
    flags = [text for key, value in options.items() for text in (f"--{key}", value)]
    file = tmp_path / "items.jsonl"
    file.write_text(json.dumps({"question": QUESTION, "solution": SOLUTION}) + "\n")
    assert main(["score", str(file), "--model", address, *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["min"] == pytest.approx(scorer.score(QUESTION, SOLUTION).min, abs=1e-5)
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(ROWS))
    call = ["--model", address, *flags, "--data", str(rows), "--no-cache", "--json"]
    assert main(["eval", "processbench", *call]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["f1"] == evaluate.processbench(scorer, ROWS, draws=20).f1


def test_options_that_do_not_fit_the_kind(addresses: dict[str, tuple[str, dict[str, Any]]], checkpoint: Path) -> None:
    with pytest.raises(OptionError, match="quantize, dtype: not supported for http"):
        surefoot.load(addresses["service"][0], quantize="nf4", dtype="bfloat16")
    with pytest.raises(OptionError, match="device: not supported for vllm"):
        surefoot.load(addresses["vllm"][0], device="cuda")
    with pytest.raises(OptionError, match=r"api_key: only for a server"):
        surefoot.load(checkpoint, api_key="k")


def test_a_session_finds_the_same_scores(scorer: surefoot.Scorer, addresses: dict[str, Any]) -> None:
    expected = scorer.session(QUESTION).score([SOLUTION, "One line."])
    found = surefoot.load(addresses["service"][0]).session(QUESTION).score([SOLUTION, "One line."])
    for one, two in zip(found, expected, strict=True):
        assert one.step_scores == pytest.approx(two.step_scores, abs=1e-5)


def test_readable_reprs(scorer: surefoot.Scorer) -> None:
    assert isinstance(scorer, Scorer)
    assert "family qwen" in repr(scorer)
    assert repr(surefoot.Client("http://127.0.0.1:1")) == "<surefoot.Client http://127.0.0.1:1>"
    assert len(repr(scorer.score(QUESTION, SOLUTION))) < 200


def test_async_clients_implement_the_async_protocol() -> None:
    client: AsyncStepScorer = surefoot.AsyncClient("http://127.0.0.1:1/")
    assert client.name == "http://127.0.0.1:1"


def test_results_of_a_service_name_its_model(scorer: surefoot.Scorer, addresses: dict[str, Any]) -> None:
    client = surefoot.load(addresses["service"][0] + "/")
    broken: list[Any] = [(QUESTION, 3)]
    (unscored,) = client.score_stream(broken)
    assert unscored.model == client.name == scorer.name
    assert evaluate.processbench(client, ROWS, draws=0).model == scorer.name
