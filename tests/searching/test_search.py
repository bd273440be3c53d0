"""`surefoot.search` with real parties: a language model in this process, and the embedded PRM."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

import surefoot
from helpers.policies import END, START, Table, write_table_policy
from helpers.search_parties import Judge, Policy
from helpers.serving import served
from surefoot.core.generation import GREEDY
from surefoot.core.search_result import SearchResult
from surefoot.errors import OptionError
from surefoot.searching.events import SearchEvent

QUESTION = "Tom has 3 bags of 4 apples and 2 more apples. How many apples does he have?"
RIGHT, WRONG = "The bags hold 3 * 4 = 12 apples.\n\n", "The bags hold 3 * 4 = 13 apples.\n\n"
SUM, BAD_SUM = "In all he has 12 + 2 = 14 apples.\n\n", "In all he has 12 + 2 = 15 apples.\n\n"
LAST, BAD_LAST = "The answer is \\boxed{14}.", "The answer is \\boxed{15}."


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[surefoot.Generator]:
    """A real checkpoint whose next step depends on the last one, and is wrong in two of three cases."""
    table: Table = {
        START: {RIGHT: 0.3, WRONG: 0.7},
        RIGHT: {SUM: 0.3, BAD_SUM: 0.7},
        WRONG: {SUM: 0.3, BAD_SUM: 0.7},
        SUM: {LAST: 1.0},
        BAD_SUM: {BAD_LAST: 1.0},
        LAST: {END: 1.0},
        BAD_LAST: {END: 1.0},
    }
    generator = surefoot.load_generator(write_table_policy(tmp_path_factory.mktemp("policy"), table), system="")
    yield generator
    asyncio.run(generator.close())


@pytest.fixture(scope="module")
def mini() -> surefoot.StepScorer:
    return surefoot.load("mini")


@pytest.mark.parametrize("strategy", ["best-of-n", "beam", "dvts", "backtracking"])
def test_the_prm_finds_the_rare_right_solution(
    strategy: str, policy: surefoot.Generator, mini: surefoot.StepScorer
) -> None:
    n = 64 if strategy == "best-of-n" else 16  # one whole solution in eleven is right
    result = surefoot.search(QUESTION, generator=policy, scorer=mini, strategy=strategy, n=n, branches=8)
    assert result.answer == "14"
    assert result.solution == RIGHT + SUM + LAST
    # Only tokens of new steps are computed; rescoring would read the whole path in every round.
    if strategy in ("beam", "dvts"):
        assert result.spent.prm_tokens < result.spent.prm_tokens_rescored / 2


def test_scores_in_the_tree_are_those_of_the_whole_solution(
    policy: surefoot.Generator, mini: surefoot.StepScorer
) -> None:
    result = surefoot.search(QUESTION, generator=policy, scorer=mini, strategy="beam", n=8)
    for node in result.finished:
        steps = [step.text for each in result.path(node.id) for step in each.steps]
        expected = mini.score(QUESTION, steps).step_scores
        assert result.path_scores(node.id) == pytest.approx(expected, abs=1e-5)
        assert steps == [part for part in result.text(node.id).split("\n\n") if part]


def test_a_service_as_the_scorer_gives_the_same_tree(policy: surefoot.Generator, mini: surefoot.StepScorer) -> None:
    assert isinstance(mini, surefoot.Scorer)
    local = surefoot.search(QUESTION, generator=policy, scorer=mini, strategy="beam", n=8)
    with served([mini]) as (url, _):
        remote = surefoot.search(QUESTION, generator=policy, scorer=url, strategy="beam", n=8)
    assert [(node.parent, node.text, node.fate) for node in remote.nodes] == [
        (node.parent, node.text, node.fate) for node in local.nodes
    ]
    assert remote.spent.prm_tokens == remote.spent.prm_tokens_rescored > local.spent.prm_tokens


def test_an_ensemble_as_the_scorer(
    policy: surefoot.Generator, mini: surefoot.StepScorer, scorer: surefoot.Scorer
) -> None:
    ensemble = surefoot.load([mini, scorer], combine="min")
    result = surefoot.search(QUESTION, generator=policy, scorer=ensemble, strategy="beam", n=8)
    assert result.finished
    for node in result.finished:
        steps = [step.text for each in result.path(node.id) for step in each.steps]
        own = np.array([each.score(QUESTION, steps).step_scores for each in (mini, scorer)], dtype=float)
        assert result.path_scores(node.id) == pytest.approx(own.min(0), abs=1e-5)
    assert result.spent.prm_tokens < result.spent.prm_tokens_rescored


def test_the_same_seed_gives_the_same_tree(policy: surefoot.Generator, mini: surefoot.StepScorer) -> None:
    trees = [
        surefoot.search(QUESTION, generator=policy, scorer=mini, strategy="dvts", n=8, seed=seed).to_dict()
        for seed in (1, 1, 2)
    ]
    assert trees[0] == trees[1]
    assert trees[0] != trees[2]


def test_greedy_search_follows_the_most_probable_path(policy: surefoot.Generator, mini: surefoot.StepScorer) -> None:
    result = surefoot.search(QUESTION, generator=policy, scorer=mini, strategy="beam", n=2, sampling=GREEDY)
    assert result.text(result.finished[0].id) == WRONG + BAD_SUM + BAD_LAST


def test_search_works_inside_a_running_event_loop(policy: surefoot.Generator, mini: surefoot.StepScorer) -> None:
    async def notebook() -> SearchResult:
        return surefoot.search(QUESTION, generator=policy, scorer=mini, strategy="best-of-n", n=4)

    expected = surefoot.search(QUESTION, generator=policy, scorer=mini, strategy="best-of-n", n=4)
    assert asyncio.run(notebook()).to_dict() == expected.to_dict()


def test_an_interrupt_in_a_notebook_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(lambda prefix, seed: f"Again {seed} [0.9]\n\n" * 2)
    interrupted: list[bool] = []

    class Interrupted(Future[object]):
        def result(self, timeout: float | None = None) -> object:
            while not interrupted and len(policy.requests) < 5:
                time.sleep(0.01)
            if not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt  # the user presses Ctrl+C while the call waits
            return super().result(timeout)

    async def notebook() -> None:
        surefoot.search(QUESTION, generator=policy, scorer=Judge(), max_steps=10**6, max_tokens=10**9)

    monkeypatch.setattr("surefoot.core.event_loop.Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(notebook())
    asked = len(policy.requests)
    time.sleep(0.1)
    assert len(policy.requests) == asked


def test_concurrent_searches_do_not_mix(policy: surefoot.Generator, mini: surefoot.StepScorer) -> None:
    questions = [f"{QUESTION} Tell me, person {number}." for number in range(4)]

    async def together() -> list[SearchResult]:
        calls = [
            surefoot.search_async(question, generator=policy, scorer=mini, strategy="beam", n=4)
            for question in questions
        ]
        return list(await asyncio.gather(*calls))

    for question, found in zip(questions, asyncio.run(together()), strict=True):
        alone = surefoot.search(question, generator=policy, scorer=mini, strategy="beam", n=4)
        assert [(node.parent, node.text, node.fate) for node in found.nodes] == [
            (node.parent, node.text, node.fate) for node in alone.nodes
        ]


def test_events_arrive_while_the_search_runs(policy: surefoot.Generator, mini: surefoot.StepScorer) -> None:
    async def watch() -> list[SearchEvent]:
        events = surefoot.search_events(QUESTION, generator=policy, scorer=mini, strategy="beam", n=4)
        return [event async for event in events]

    events = asyncio.run(watch())
    assert len(events) >= 4
    assert events[-1].result is not None
    assert [node.id for event in events for node in event.nodes] == list(range(1, len(events[-1].result.nodes)))


def test_an_error_ends_the_event_stream(policy: surefoot.Generator) -> None:
    async def watch() -> None:
        async for _ in surefoot.search_events(QUESTION, generator=policy, strategy="beam", n=3):
            pass

    with pytest.raises(OptionError, match="n=3 is not a multiple"):
        asyncio.run(watch())


def test_an_unknown_setting_is_named(policy: surefoot.Generator) -> None:
    with pytest.raises(OptionError, match="beam_width: unknown. The settings of a search are: n, branches"):
        surefoot.search(QUESTION, generator=policy, beam_width=4)


def test_recorded_calls_replay_the_search(
    policy: surefoot.Generator, mini: surefoot.StepScorer, tmp_path: Path
) -> None:
    from surefoot.generate.recorded import RecordingGenerator

    recording = RecordingGenerator(policy, tmp_path / "calls.jsonl")
    first = surefoot.search(QUESTION, generator=recording, scorer=mini, strategy="beam", n=8)
    again = surefoot.search(QUESTION, generator=str(tmp_path / "calls.jsonl"), scorer=mini, strategy="beam", n=8)
    assert again.to_dict() == first.to_dict()
