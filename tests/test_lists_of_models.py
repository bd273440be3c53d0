"""A list of models works wherever the name of a model does. Expected scores are numpy's mean of the members' own."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import surefoot
from helpers.bulk import content, parts, sums, write_jsonl
from helpers.policies import END, START, Table, write_table_policy
from helpers.serving import QUESTION, SOLUTION, served
from surefoot.errors import JobError, OptionError
from surefoot.rewards.source import RewardSource, Sample, find_scorer, forget_shared

APPLES = "Tom has 3 bags of 4 apples and 2 more apples. How many apples does he have?"
RIGHT, WRONG = "The bags hold 3 * 4 = 12 apples.\n\n", "The bags hold 3 * 4 = 13 apples.\n\n"
LAST, BAD_LAST = "The answer is \\boxed{14}.", "The answer is \\boxed{15}."


def expected(members: Sequence[surefoot.StepScorer], item: tuple[str, Any]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of what the members give on their own."""
    table = np.array([member.score(*item).step_scores for member in members], dtype=float)
    return list(table.mean(axis=0)), list(table.std(axis=0, ddof=1))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[surefoot.Generator]:
    table: Table = {
        START: {RIGHT: 0.5, WRONG: 0.5},
        RIGHT: {LAST: 1.0},
        WRONG: {BAD_LAST: 1.0},
        LAST: {END: 1.0},
        BAD_LAST: {END: 1.0},
    }
    generator = surefoot.load_generator(write_table_policy(tmp_path_factory.mktemp("policy"), table), system="")
    yield generator
    asyncio.run(generator.close())


def test_rewards(checkpoint: Path, scorer: surefoot.Scorer, mini: surefoot.Scorer) -> None:
    forget_shared()
    models: list[str | Path] = ["mini", checkpoint]
    result = surefoot.compute_reward(QUESTION, SOLUTION, model=models, recipe="min")
    assert result.value == pytest.approx(min(expected([mini, scorer], (QUESTION, SOLUTION))[0]), abs=1e-5)
    assert find_scorer(models) is find_scorer(["mini", str(checkpoint)]), "one ensemble per process"
    lowest = surefoot.compute_reward(QUESTION, SOLUTION, model=models, recipe="min", load={"combine": "min"})
    assert result.value is not None
    assert lowest.value is not None
    assert lowest.value < result.value
    source = RewardSource([mini, "no model"], "min")  # loads nothing before the first batch
    with pytest.raises(surefoot.SurefootError, match="neither an existing folder"):
        source.rewards([Sample(QUESTION, SOLUTION)])


def test_search(policy: surefoot.Generator, checkpoint: Path, scorer: surefoot.Scorer, mini: surefoot.Scorer) -> None:
    result = surefoot.search(APPLES, generator=policy, scorer=["mini", checkpoint], strategy="best-of-n", n=8)
    assert result.model == f"mean(mini, {checkpoint})"
    assert len(result.finished) > 1
    for node in result.finished:
        steps = [step for each in result.path(node.id) for step in each.steps]
        scores, spreads = expected([mini, scorer], (APPLES, [step.text for step in steps]))
        assert [step.score for step in steps] == pytest.approx(scores, abs=1e-5)
        assert [step.spread for step in steps] == pytest.approx(spreads, abs=1e-5)
        assert node.spread == max(step.spread for step in node.steps if step.spread is not None)
    again = surefoot.SearchResult.from_dict(json.loads(result.to_json()))
    assert again == result
    single = surefoot.search(APPLES, generator=policy, scorer="mini", strategy="beam", n=4)
    assert {step.spread for node in single.nodes for step in node.steps} == {None}
    assert "spread" not in single.to_json()


def test_labels(policy: surefoot.Generator, checkpoint: Path, mini: surefoot.Scorer, tmp_path: Path) -> None:
    rows = [{"question": APPLES, "answer": "14", "text": RIGHT + LAST}]
    settings = surefoot.LabelSettings(k=2)
    report = surefoot.label(
        rows,
        tmp_path / "out",
        generator=policy,
        solution="text",
        settings=settings,
        judge=["mini", checkpoint],
        screen=[mini, checkpoint],
    )
    (solution,) = report.solutions
    assert solution.judge is not None
    assert solution.screen is not None
    assert solution.judge.model == solution.screen.model == f"mean(mini, {checkpoint})"
    scores, spreads = expected([mini, surefoot.load(checkpoint)], (APPLES, [RIGHT.strip(), LAST]))
    assert solution.judge.scores == pytest.approx(scores, abs=1e-5)
    assert solution.screen.spreads == pytest.approx(spreads, abs=1e-5)
    assert solution.screen.certain is False, "the members disagree by more than max_spread"


def test_bulk_in_one_process_and_in_workers(
    checkpoint: Path, scorer: surefoot.Scorer, mini: surefoot.Scorer, tmp_path: Path
) -> None:
    rows = sums(questions=4, solutions=2)
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    models: list[str | Path] = ["mini", checkpoint]
    surefoot.bulk(source, tmp_path / "one", model=models, unit_rows=4, threads=1)
    found = [row for part in parts(tmp_path / "one") for row in pq.read_table(part).to_pylist()]
    assert len(found) == len(rows)
    for row in found:
        scores, spreads = expected([mini, scorer], (row["question"], row["solution"]))
        assert row["prm_step_scores"] == pytest.approx(scores, abs=1e-5)
        assert [step["spread"] for step in row["prm_steps"]] == pytest.approx(spreads, abs=1e-5)
    surefoot.bulk(source, tmp_path / "two", model=models, unit_rows=4, workers=2, threads=1)
    assert content(tmp_path / "two") == content(tmp_path / "one")
    with pytest.raises(JobError, match="load"):
        surefoot.bulk(source, tmp_path / "one", model=models, unit_rows=4, load={"combine": "min"})
    with pytest.raises(OptionError, match="A loaded scorer works in this process only"):
        surefoot.bulk(source, tmp_path / "three", model=["mini", scorer], workers=2)


def test_a_pickled_ensemble_of_a_service_and_a_model(scorer: surefoot.Scorer, mini: surefoot.Scorer) -> None:
    with served([scorer]) as (url, _):
        ensemble = surefoot.load(["mini", url], combine="min", missing="skip")
        copy = pickle.loads(pickle.dumps(ensemble))
        one, two = ensemble.score(QUESTION, SOLUTION), copy.score(QUESTION, SOLUTION)
        assert (copy.name, copy.fingerprint) == (ensemble.name, ensemble.fingerprint)
        assert one.step_scores == pytest.approx(two.step_scores, abs=1e-5)
