"""Behaviour that is specific to one family."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch

from helpers.small import CASES, ensemble, make_llemma, plain, states, write
from surefoot.display.terminal import show
from surefoot.errors import CheckpointError
from surefoot.families.chat import numbered
from surefoot.scoring.local import load_local

QUESTION, STEPS = "How much is 2 + 2?", ["2 + 2 = 4.", "So it is 4."]


def make(model: str, folder: Path) -> Path:
    (case,) = (case for case in CASES if case.model.endswith(model))
    return case.make(folder / model)


def test_an_ensemble_gives_a_spread(tmp_path: Path) -> None:
    folder = make("ActPRM", tmp_path)
    scorer = load_local(folder)
    result = scorer.score(QUESTION, STEPS)
    prompt = scorer.family.render(scorer.tokenizer, QUESTION, STEPS)
    hidden = states(folder, prompt.ids)[list(prompt.reads)]
    _, tensors = plain(folder)
    votes = []
    for number in range(32):
        one = {name: value[[number]].expand_as(value) for name, value in tensors.items() if "score.model" in name}
        votes.append(ensemble(one, hidden))
    spreads = torch.stack(votes).std(0).tolist()
    assert [step.spread for step in result.steps] == pytest.approx(spreads, abs=1e-5)
    assert min(spreads) > 0.01
    assert "±" in show(result)
    assert result.to_dict()["steps"][0]["spread"] == result.steps[0].spread


def test_only_two_rows_of_the_output_layer_are_kept(tmp_path: Path) -> None:
    scorer = load_local(make("math-shepherd-mistral-7b-prm", tmp_path))
    (head,) = scorer.engine.head.tensors.values()
    assert head.shape == (2, 32)
    assert head.untyped_storage().nbytes() == 2 * 32 * 4
    # Up to 4096 tokens, Mistral's sliding window equals full attention.
    assert scorer.max_tokens == 4096


def test_a_margin_is_kept_on_its_own_scale(tmp_path: Path) -> None:
    scorer = load_local(make("PURE-PRM-7B", tmp_path))
    result = scorer.score(QUESTION, STEPS)
    assert result.scale == "margin"
    assert result.product is None
    assert result.natural_threshold == 0.0
    scores = [score for score in result.step_scores if score is not None]
    plain_scores = load_local(tmp_path / "PURE-PRM-7B", family_options={"margin": False}).score(QUESTION, STEPS)
    assert plain_scores.scale == "probability"
    assert scores == pytest.approx([2 * (score or 0) - 1 for score in plain_scores.step_scores], abs=1e-6)
    assert result.first_error() == plain_scores.first_error()
    assert "product" not in show(result)


def test_a_language_model_is_not_a_llemma_prm(tmp_path: Path) -> None:
    folder = make_llemma(tmp_path / "llemma")
    assert load_local(folder, family="llemma").score(QUESTION, STEPS).status == "scored"
    other = write(tmp_path / "other", "mistral", "MistralForCausalLM")
    with pytest.raises(CheckpointError, match="looks like a language model"):
        load_local(other, family="llemma")
    assert load_local(other, family="llemma", family_options={"constant_head": False}).family.name == "llemma"


def test_skywork_from_pickled_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = make("Skywork-o1-Open-PRM-Qwen-2.5-1.5B", tmp_path)
    expected = load_local(folder).score(QUESTION, STEPS).step_scores
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    # As torch saves a model with a tied output layer: one storage under two names.
    torch.save({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}, folder / "pytorch_model.bin")
    assert load_local(folder).score(QUESTION, STEPS).step_scores == expected


def test_a_session_can_read_a_cached_token_for_the_first_time(tmp_path: Path) -> None:
    """The same ids with other step boundaries: a token is read that was cached without being read."""
    folder = make("Skywork-o1-Open-PRM-Qwen-2.5-1.5B", tmp_path)
    scorer = load_local(folder)
    together, apart = ["one\ntwo", "three"], ["one", "two", "three"]
    session = scorer.session(QUESTION)
    session.score([together])
    before = session.computed_tokens
    (found,) = session.score([apart])
    assert found.step_scores == pytest.approx(scorer.score(QUESTION, apart).step_scores, abs=1e-5)
    assert session.computed_tokens - before == 1
    assert found.step_scores[1:] == pytest.approx(scorer.score(QUESTION, together).step_scores, abs=1e-5)


def test_a_reused_slot_does_not_keep_old_scores(tmp_path: Path) -> None:
    """Slots are reused; the scores read in them belong to the previous token."""
    scorer = load_local(make("Skywork-o1-Open-PRM-Qwen-2.5-1.5B", tmp_path))
    rng = random.Random(0)
    for tokens in (6, 12, 25):
        session = scorer.session("q", max_bytes=tokens * scorer.engine.token_bytes)
        for _ in range(60):
            words = rng.choices("abcxyz", k=rng.randint(1, 4))
            steps = words if rng.random() < 0.5 else ["\n".join(words)]
            (found,) = session.score([steps])
            assert found.step_scores == pytest.approx(scorer.score("q", steps).step_scores, abs=1e-5)


def test_only_newlines_separate_lines(tmp_path: Path) -> None:
    scorer = load_local(make("Skywork-o1-Open-PRM-Qwen-2.5-1.5B", tmp_path))
    newline = scorer.tokenizer.single_token("\n")
    for step in ("half is \x0crac{1}{2}", "a\u2028b", "a\x1cb"):
        assert scorer.family.render(scorer.tokenizer, "q", [step]).ids.count(newline) == 2  # its own and the question's
    assert scorer.family.render(scorer.tokenizer, "q", ["a\r\nb\nc"]).ids.count(newline) == 4


def test_prompts_beyond_the_limit_are_not_all_rendered(tmp_path: Path) -> None:
    scorer = load_local(make("Universal-PRM-7B", tmp_path), max_tokens=200)
    started = time.process_time()
    result = scorer.score("q", [f"take {number}" for number in range(3_000)])
    assert time.process_time() - started < 20
    scored = [step.status == "scored" for step in result.steps]
    assert 10 < sum(scored) < 100
    assert scored == sorted(scored, reverse=True)
    assert result.steps[-1].status == "over_length"


def test_leading_white_space_takes_linear_time() -> None:
    started = time.process_time()
    assert numbered(1, " " * 100_000 + "x").startswith("Step 1: ")
    assert numbered(1, " **Step 1:** x") == " **Step 1:** x"
    assert time.process_time() - started < 2


def test_prefixes_of_one_solution_share_their_tokens(tmp_path: Path) -> None:
    scorer = load_local(make("Universal-PRM-7B", tmp_path))
    steps = [f"Step number {number} is short." for number in range(6)]
    session = scorer.session(QUESTION)
    result = session.score([steps])[0]
    assert result.status == "scored"
    # The longest prompt, plus the blank line and the end of each shorter one.
    assert session.computed_tokens <= result.tokens + 2 * 5
    assert result.tokens == len(scorer.family.render(scorer.tokenizer, QUESTION, steps).ids)
