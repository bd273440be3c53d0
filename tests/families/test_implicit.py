"""Implicit PRMs: two models, one trie, and a log-ratio that is not a probability."""

from __future__ import annotations

import json
import random
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
import torch

import surefoot
from helpers.small import plain, states, write
from helpers.vocabulary import llama_tokenizer_json
from surefoot.core.prompt import Prompt
from surefoot.errors import CheckpointError
from surefoot.families import TokenizerSettings, adopt_settings, check_settings, find_family
from surefoot.families.implicit import Implicit
from surefoot.scoring.local import load_local
from surefoot.scoring.score_cache import ScoreCache
from surefoot.tokenization.tokenizer import parse_tokenizer

QUESTION, STEPS = "How much is 2 + 2?", ["2 + 2 = 4.", "So it is 4.", "The answer is: 4"]


BASES = {"EurusPRM-Stage2": ("qwen2", "Qwen2ForCausalLM"), "ImplicitPRM_DPO": ("llama", "LlamaForCausalLM")}


@pytest.fixture(scope="module", params=BASES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("implicit") / request.param, *BASES[request.param])


@pytest.fixture(scope="module")
def reference(model: Path) -> Path:
    return write(model.parent / "reference", *BASES[model.name], seed=1)


@pytest.fixture(scope="module")
def scorer(model: Path, reference: Path) -> surefoot.Scorer:
    return load_local(model, family_options={"reference": str(reference), "coefficient": 1.0})


def log_probabilities(folder: Path, prompt: Prompt) -> torch.Tensor:
    """The log-probability of every token of the prompt but the first, from one plain forward pass."""
    _, tensors = plain(folder)
    logits = states(folder, prompt.ids)[:-1] @ tensors["lm_head.weight"].T
    return logits.double().log_softmax(-1).gather(1, torch.tensor(prompt.ids[1:])[:, None])[:, 0]


def expected(model: Path, reference: Path, scorer: surefoot.Scorer, question: str, steps: list[str]) -> list[float]:
    """Cumulative differences from the first token of the solution to the last one of each step."""
    if not steps:
        return []
    prompt = scorer.family.render(scorer.tokenizer, question, steps)
    ratio = log_probabilities(model, prompt) - log_probabilities(reference, prompt)
    sums = ratio[prompt.prefix - 1 :].cumsum(0)
    return [sums[end - 1].item() for end in prompt.ends]


@pytest.mark.parametrize(("model", "template"), [("ImplicitPRM_DPO", "llama3_1"), ("ImplicitPRM_CE", "llama3")])
def test_the_system_turn_is_that_of_the_chat_template(model: str, template: str) -> None:
    text = (files("trl") / "chat_templates" / f"{template}.jinja").read_text(encoding="utf-8")
    settings = TokenizerSettings(("chat_template.jinja",), "<|begin_of_text|>", True, True, text)
    family = adopt_settings(find_family([], model=f"Windy0822/{model}"), settings)
    tokenizer = parse_tokenizer(llama_tokenizer_json())
    assert check_settings(family, tokenizer, settings).mismatches == ()
    messages = [{"role": "system", "content": "Be strict."}, *(family.chat_messages("Why?", ["So.", "Thus."]) or [])]
    prompt = family.render(tokenizer, "Why?", ["So.", "Thus."], system="Be strict.")
    assert list(prompt.ids) == tokenizer.encode_prompt(settings.render_chat(messages))


def test_every_weight_of_the_reference_counts(model: Path, reference: Path, tmp_path: Path) -> None:
    other = shutil.copytree(reference, tmp_path / "reference")
    options = {"reference": str(other), "coefficient": 1.0}
    before = load_local(model, family_options=options).fingerprint
    raw = bytearray((other / "model.safetensors").read_bytes())
    raw[-len(raw) // 3] ^= 1
    (other / "model.safetensors").write_bytes(raw)
    assert load_local(model, family_options=options).fingerprint != before


def test_sums_and_increments(model: Path, reference: Path, scorer: surefoot.Scorer) -> None:
    result = scorer.score(QUESTION, STEPS)
    sums = expected(model, reference, scorer, QUESTION, STEPS)
    assert result.step_scores == pytest.approx(sums, abs=1e-4)
    options = {"reference": str(reference), "coefficient": 0.5, "reading": "increment"}
    steps = load_local(model, family_options=options).score(QUESTION, STEPS).step_scores
    assert steps == pytest.approx([0.5 * (end - start) for start, end in zip([0, *sums], sums, strict=False)], abs=1e-4)
    assert Implicit().coefficient == 0.001


def test_a_log_ratio_is_not_a_probability(scorer: surefoot.Scorer) -> None:
    result = scorer.score(QUESTION, STEPS)
    assert result.scale == scorer.scale == "log_ratio"
    assert result.product is None
    assert result.geometric_mean is None
    assert result.mean is not None
    scores = [score for score in result.step_scores if score is not None]
    wrong = next((at for at, score in enumerate(scores) if score <= 0), -1)
    assert result.first_error() == wrong
    assert json.loads(result.to_json())["scale"] == "log_ratio"


def test_alone_or_together(model: Path, reference: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    """Solutions diverge after any token: the last shared one is read with both targets."""
    rng = random.Random(1)
    words = ["so", "so it", "one", "1 + 1", "1 + 2", "the rest"]
    items = [(rng.choice("qr"), [rng.choice(words) for _ in range(rng.randint(0, 3))]) for _ in range(14)]
    wanted = [expected(model, reference, scorer, *item) for item in items]
    for result, scores in zip(scorer.score_many(items), wanted, strict=True):
        assert result.step_scores == pytest.approx(scores, abs=1e-4)
    sessions = {question: scorer.session(question) for question in "qr"}
    for (question, steps), scores in zip(items, wanted, strict=True):
        assert sessions[question].score([steps])[0].step_scores == pytest.approx(scores, abs=1e-4)
    with ScoreCache(tmp_path / "scores.sqlite") as cache:
        scorer.with_cache(cache).score_many(items)
        for result, scores in zip(scorer.with_cache(cache).score_many(items), wanted, strict=True):
            assert result.step_scores == pytest.approx(scores, abs=1e-4)
        assert cache.hits >= len(items)


def test_a_session_computes_a_shared_token_once_more_at_most(scorer: surefoot.Scorer) -> None:
    session = scorer.session(QUESTION)
    session.score([["one two three four five six"]])
    before = session.computed_tokens
    prompt = scorer.family.render(scorer.tokenizer, QUESTION, ["one two three four five seven"])
    session.score([["one two three four five seven"]])
    # Both models compute the word that differs, the end of the turn if it is read, and the last shared token.
    assert session.computed_tokens - before <= 2 * 2
    assert len(prompt.ids) > 20


def test_the_head_is_loaded_in_the_model_dtype(model: Path, reference: Path) -> None:
    half = load_local(model, dtype="bfloat16", family_options={"reference": str(reference)})
    (head,) = half.engine.head.tensors.values()
    assert head.dtype == torch.bfloat16


def test_a_different_vocabulary_is_rejected(model: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "mistral", "MistralForCausalLM")
    with pytest.raises(CheckpointError, match="another vocabulary"):
        load_local(model, family_options={"reference": str(other)})
