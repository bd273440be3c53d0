"""vLLM as the engine: against its real server with `make test-vllm`, and the contract of /pooling against our own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from helpers.serving import QUESTION, SOLUTION, served
from surefoot.errors import OptionError, ServiceError
from surefoot.families.qwen import MARKER
from surefoot.scoring.local import load_local
from surefoot.scoring.pipeline import NOT_COMPUTED
from surefoot.scoring.scorer import Scorer
from surefoot.serve import Settings
from surefoot.testing import write_qwen_checkpoint

BENCH = Path(__file__).parent.parent.parent / "bench"
ITEMS: list[tuple[str, str | list[str]]] = [
    (QUESTION, SOLUTION),
    (CARD_QUESTION, list(CARD_STEPS)),
    (QUESTION, [f"A step that spells {MARKER} and <|im_end|>.", "Another one."]),
    (QUESTION, ""),
    (QUESTION, [f"{number} is a number." for number in range(700)]),
]


@pytest.fixture(scope="module")
def ours(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer]) as (url, _):
        yield url


def on_vllm(url: str, folder: Path, **options: Any) -> surefoot.Scorer:
    scorer = surefoot.load(f"vllm+{url}", tokenizer=folder, **options)
    assert isinstance(scorer, Scorer)
    return scorer


def compare(remote: surefoot.Scorer, local: surefoot.Scorer, tolerance: float) -> None:
    for found, expected in zip(remote.score_many(ITEMS), local.score_many(ITEMS), strict=True):
        assert [step.text for step in found.steps] == [step.text for step in expected.steps]
        assert [step.status for step in found.steps] == [step.status for step in expected.steps]
        assert (found.reason, found.warnings, found.answer) == (expected.reason, expected.warnings, expected.answer)
        assert found.step_scores == pytest.approx(expected.step_scores, abs=tolerance)


def test_a_scorer_whose_engine_is_elsewhere(ours: str, scorer: surefoot.Scorer, checkpoint: Path) -> None:
    """Our own service speaks vLLM's /pooling, so it can stand in its place."""
    remote = on_vllm(ours, checkpoint)
    compare(remote, scorer, 1e-5)
    assert remote.max_tokens == 4096
    assert on_vllm(ours, checkpoint, max_tokens=100).score(*ITEMS[1]).status == "unscored"
    # Nothing here has seen the weights: another server may have others.
    with served([scorer]) as (another, _):
        assert on_vllm(another, checkpoint).fingerprint != remote.fingerprint
    assert on_vllm(ours, checkpoint).fingerprint == remote.fingerprint
    session, steps = remote.session(CARD_QUESTION), list(CARD_STEPS)
    (whole,) = session.score([steps])
    assert whole.step_scores == pytest.approx(scorer.score(CARD_QUESTION, steps).step_scores, abs=1e-5)
    assert session.computed_tokens == whole.tokens  # scored from scratch
    with pytest.raises(OptionError, match="Choose one with `served_name`"):
        on_vllm(ours, checkpoint, served_name="other")


def test_no_weights_are_needed(ours: str, checkpoint: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((checkpoint / name).read_bytes())
    assert on_vllm(ours, tmp_path).score(QUESTION, SOLUTION).status == "scored"


def test_a_prompt_that_the_engine_refuses_costs_the_others_nothing(scorer: surefoot.Scorer, checkpoint: Path) -> None:
    items: list[tuple[str, str | list[str]]] = [(QUESTION, SOLUTION), (QUESTION, ["x " * 500]), (CARD_QUESTION, ["1."])]
    with (
        served([scorer], Settings(queue_tokens=400)) as (engine, _),
        served([on_vllm(engine, checkpoint, patience=5)]) as (url, _),
    ):
        found = surefoot.connect(url).score_many(items)
    assert [result.status for result in found] == ["scored", "unscored", "scored"]
    assert found[1].reason == NOT_COMPUTED
    assert found[0].step_scores == pytest.approx(scorer.score(*items[0]).step_scores, abs=1e-5)


def test_a_server_that_is_gone_is_an_error(checkpoint: Path) -> None:
    with pytest.raises(ServiceError, match="did not answer"):
        on_vllm("http://127.0.0.1:9", checkpoint, patience=0.2)


@pytest.mark.skipif("SUREFOOT_TEST_VLLM" not in os.environ, reason="needs vLLM: make test-vllm")
def test_the_real_vllm_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(BENCH)])
    from vllm_server import vllm_server

    # vLLM's attention wants heads of 32 at least.
    folder = write_qwen_checkpoint(tmp_path / "model", hidden_size=128, num_attention_heads=4, num_key_value_heads=2)
    local = load_local(folder)
    with vllm_server(folder) as url:
        remote = on_vllm(url, folder)
        # The same arithmetic in another order, on random weights that amplify every difference.
        compare(remote, local, 5e-3)
        with served([remote]) as (service, _):
            found = surefoot.connect(service).score(QUESTION, SOLUTION)
            assert found.step_scores == pytest.approx(local.score(QUESTION, SOLUTION).step_scores, abs=5e-3)
