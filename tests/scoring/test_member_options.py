"""Options for an ensemble reach the members that can take them, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.search_parties import Judge
from helpers.serving import QUESTION, SOLUTION, served
from surefoot.core.calibration import Calibration, FittedOn, Logistic
from surefoot.errors import OptionError
from surefoot.scoring.member_options import member_options, options_of_each

SERVICE, VLLM = "http://127.0.0.1:9", "vllm+http://127.0.0.1:9"
CRITIC = "processbench@http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("members", "given", "expected"),
    [
        (["mini", SERVICE, VLLM], {"quantize": "int8"}, [{"quantize": "int8"}, {}, {}]),
        (["mini", Path("prm"), Judge()], {"dtype": "float32"}, [{"dtype": "float32"}, {"dtype": "float32"}, {}]),
        (["mini", SERVICE, VLLM], {"max_tokens": 9}, [{"max_tokens": 9}, {}, {"max_tokens": 9}]),
        (["mini", SERVICE, VLLM], {"timeout": 1.0}, [{}, {"timeout": 1.0}, {"timeout": 1.0}]),
        (["mini", SERVICE], {"api_key": "k", "family": "qwen"}, [{"family": "qwen"}, {"api_key": "k"}]),
        ([SERVICE, VLLM], {"tokenizer": "prm"}, [{}, {"tokenizer": "prm"}]),
        (["mini", SERVICE, "prm"], {"calibration": ["a", "b"]}, [{"calibration": "a"}, {}, {"calibration": "b"}]),
        (["mini", SERVICE], {"calibration": "a.json"}, [{"calibration": "a.json"}, {}]),
        (["mini", CRITIC], {"critic_options": {"votes": 2}}, [{}, {"critic_options": {"votes": 2}}]),
        (["mini", CRITIC], {"api_key": "k", "dtype": "float32"}, [{"dtype": "float32"}, {"api_key": "k"}]),
        (["mini", "yes-no@chat"], {"generator": SERVICE, "api_key": "k"}, [{}, {"generator": SERVICE, "api_key": "k"}]),
    ],
)
def test_who_gets_which(members: list[Any], given: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert member_options(members, given) == expected


@pytest.mark.parametrize(
    ("members", "given", "message"),
    [
        (["mini", "prm"], {"api_key": "k"}, "api_key: not supported for any member"),
        ([SERVICE, Judge()], {"quantize": "int8"}, "quantize: not supported for any member"),
        ([SERVICE, VLLM], {"api_key": "k"}, f"api_key: belongs to one model, and several .*: {SERVICE}, vllm"),
        (["mini", "prm"], {"revision": "v1"}, "revision: belongs to one model, and several .*: mini, prm"),
        (["mini", "prm"], {"calibration": "a"}, "calibration: belongs to one model"),
        (["mini", "prm", SERVICE], {"calibration": ["a"]}, r"one for each of 2 models \(mini, prm\).*, not 1"),
    ],
)
def test_what_is_ambiguous_or_has_no_effect(members: list[Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        member_options(members, given)


VOTES: dict[str, Any] = {"critic_options": {"votes": 2}}
THERE = {"generator": SERVICE, "api_key": "k"}
YES_NO = {"critic": "yes-no"}


@pytest.mark.parametrize(
    ("models", "given", "expected"),
    [
        (["mini", CRITIC], VOTES | {"api_key": "k"}, [{}, VOTES | {"api_key": "k"}]),
        (["mini", "GenPRM/GenPRM-7B"], THERE, [{}, THERE]),
        (["chat", CRITIC], {"critic": "yes-no"}, [{"critic": "yes-no"}, {}]),
        ([SERVICE, "chat"], YES_NO | {"served_name": "a"}, [YES_NO | {"served_name": "a"}, YES_NO]),
        (
            ["mini", VLLM],
            {"tokenizer": "prm", "strict": True},
            [{"strict": True}, {"tokenizer": "prm", "strict": True}],
        ),
    ],
)
def test_who_gets_which_of_several_models(
    models: list[str], given: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    assert options_of_each(models, given, server=("tokenizer", "served_name", "api_key")) == expected


@pytest.mark.parametrize(
    ("models", "given", "message"),
    [
        (["mini", SERVICE], VOTES, "critic_options: for critics only, and none of the models is one"),
        (["a", "b"], {"critic": "yes-no", "generator": SERVICE}, "generator: belongs to one model"),
    ],
)
def test_options_of_critics_that_have_no_effect(models: list[str], given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options_of_each(models, given, server=())


def test_calibrated_members(checkpoint: Path, scorer: surefoot.Scorer, mini: surefoot.Scorer) -> None:
    """The calibrated score is sigmoid(slope * logit(raw) + bias), computed here by hand."""
    import numpy as np

    maps = [Logistic(0.5, 0.3), Logistic(2.0, -0.1)]
    fitted = [Calibration(each, "any", None, FittedOn(1, 1, "")).for_any_model() for each in maps]
    ensemble = surefoot.load(["mini", checkpoint], combine="calibrated", calibration=fitted)
    raw = np.array([each.score(QUESTION, SOLUTION).step_scores for each in (mini, scorer)], dtype=float)
    logits = np.log(raw / (1 - raw))
    expected = 1 / (1 + np.exp(-(logits * [[0.5], [2.0]] + [[0.3], [-0.1]])))
    result = ensemble.score(QUESTION, SOLUTION)
    assert result.step_scores == pytest.approx(expected.mean(axis=0), abs=1e-5)
    with pytest.raises(OptionError, match="a list is for a list of models"):
        surefoot.load("mini", calibration=fitted)


def test_the_key_reaches_the_service_only(checkpoint: Path, mini: surefoot.Scorer) -> None:
    from surefoot.serve import Settings

    with served([mini], Settings(api_key="secret")) as (url, _):
        ensemble = surefoot.load([checkpoint, url], api_key="secret", max_tokens=4000)
        assert ensemble.score(QUESTION, SOLUTION).status == "scored"
