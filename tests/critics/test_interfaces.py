"""Critics where other scorers are used: the service, the command line, evaluation and rewards."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import surefoot
from helpers.critic_models import EXPECTED, PROCESSBENCH, QUESTION, STEPS, YES_NO
from helpers.policies import write_table_policy
from surefoot.cli.main import main
from surefoot.cli.options import CalibrationOptions
from surefoot.cli.serve import sources
from surefoot.core.result import SolutionScore
from surefoot.errors import OptionError
from surefoot.serve import create_app
from surefoot.serve.critic_service import CriticService


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table_policy(tmp_path_factory.mktemp("critics") / "judge", YES_NO)


def test_a_served_critic_gives_the_same_scores(judge: Path) -> None:
    critic = surefoot.load(judge, critic="yes-no", name="judge")
    body = {"items": [{"question": QUESTION, "steps": STEPS}, {"question": QUESTION, "steps": []}]}
    with TestClient(create_app([critic])) as client:
        reply = client.post("/v1/score", json=body)
        assert reply.status_code == 200, reply.text
        first, empty = (SolutionScore.from_dict(each) for each in reply.json()["results"])
        assert client.post("/pooling", json={"model": "judge", "input": "x"}).status_code == 422
    assert first.step_scores == pytest.approx(EXPECTED["yes-no"][1], abs=1e-5)
    assert first.calls == 6
    assert empty.status == "unscored"


def test_an_ensemble_of_a_model_and_a_critic_is_served(judge: Path) -> None:
    critic = surefoot.load(judge, critic="yes-no", name="judge")
    both = surefoot.load(["mini", critic], name="both")
    with TestClient(create_app([both])) as client:
        reply = client.post("/v1/score", json={"items": [{"question": QUESTION, "steps": STEPS}]})
    (result,) = reply.json()["results"]
    assert [member["model"] for member in result["steps"][0]["members"]] == ["mini", "judge"]


def test_the_command_line_takes_critics(judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"question": QUESTION, "steps": STEPS}) + "\n")
    options = ["--critic", "yes-no", "--critic-option", "explain=false", "--json"]
    assert main(["score", str(items), "--model", str(judge), *options]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert [step["score"] for step in result["steps"]] == pytest.approx(EXPECTED["yes-no"][1], abs=1e-5)
    assert result["generated_tokens"] == 0


def test_a_bulk_job_with_a_critic(judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"question": f"{QUESTION} ({n})", "steps": STEPS}) + "\n" for n in range(3)))
    command = ["bulk", str(rows), str(tmp_path / "out"), "--model", str(judge), "--critic", "yes-no", "--quiet"]
    assert main(command) == 0
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    found = pq.read_table(part).to_pylist()
    assert [row["prm_step_scores"] for row in found] == [pytest.approx(EXPECTED["yes-no"][1], abs=1e-5)] * 3
    assert [row["prm_calls"] for row in found] == [6, 6, 6]  # an analysis and a verdict for each of three steps
    written = part.stat().st_mtime_ns
    assert main(command) == 0
    assert part.stat().st_mtime_ns == written, "a job that is complete computes nothing"
    assert main([*command[:2], str(tmp_path / "other"), *command[3:], "--compile"]) == 2
    assert "--compile: not supported for a critic" in capsys.readouterr().err


def test_the_options_of_a_served_critic_reach_its_server(judge: Path) -> None:
    address = "processbench@http://127.0.0.1:9"
    arguments = {"served_name": "chat", "api_key": "k", "critic_options": {"votes": 1}}
    mini, critic = sources(["mini", f"judge={address}"], arguments, CalibrationOptions())
    assert (mini.model, mini.options) == ("mini", {})
    assert (critic.model, critic.served_name, critic.options) == (address, "judge", arguments)
    with pytest.raises(OptionError, match="--model NAME=processbench@http"):
        sources([address], {}, CalibrationOptions())


def test_critics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--critics", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["critic"] for row in rows} == set(EXPECTED)
    assert main(["models", "--critics", "--fits", "8GB"]) == 2


def test_processbench_counts_the_reported_error(tmp_path: Path) -> None:
    scorer = surefoot.load(write_table_policy(tmp_path / "critic", PROCESSBENCH), critic="processbench")
    rows = [
        {"id": "a", "problem": QUESTION, "steps": STEPS, "label": 1, "final_answer_correct": False},
        {"id": "b", "problem": QUESTION, "steps": STEPS, "label": -1, "final_answer_correct": True},
        {"id": "c", "problem": QUESTION, "steps": STEPS, "label": 2, "final_answer_correct": False},
    ]
    assert [scorer.score(QUESTION, STEPS).first_error()] == [1]
    report = surefoot.evaluate.processbench(scorer, rows)
    # The critic always says 1: one of two errors is found, and the correct solution is not.
    (split,) = report.splits
    assert (split.error.hits, split.error.total, split.correct.hits, split.correct.total) == (1, 2, 0, 1)


def test_a_reward_from_a_critic(judge: Path) -> None:
    scorer = surefoot.load(judge, critic="yes-no")
    result = surefoot.compute_reward(QUESTION, STEPS, model=scorer, recipe="min")
    assert result.value == pytest.approx(0.55 / 0.9, abs=1e-4)


def test_two_critics_with_one_name_are_refused(judge: Path) -> None:
    twins = [surefoot.load(judge, critic="yes-no", name="same") for _ in range(2)]
    with pytest.raises(OptionError, match="Two models have the name 'same'"):
        create_app(twins)


def test_a_cancelled_request_stops_the_critic(judge: Path) -> None:
    service = CriticService(surefoot.load(judge, critic="yes-no"))  # type: ignore[arg-type]

    async def give_up() -> None:
        items = [(f"{QUESTION} {number}", STEPS) for number in range(500)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(service.score(items), 0.3)
        started = time.perf_counter()
        (result,) = await service.score([(QUESTION, STEPS)])
        assert result.status == "scored"
        assert time.perf_counter() - started < 10

    asyncio.run(give_up())
    service.close()
