"""The log-probabilities of tokens: which are read, what they add to a score, and that training agrees."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from surefoot.families import FAMILIES, PromptTokenizer
from surefoot.families.mini.family import SOLUTION, STEP
from surefoot.families.mini.surprise import DIGITS, EMBEDDINGS, INTERCEPT, SURPRISE, digit_tokens
from surefoot.scoring.local import load_local
from surefoot.scoring.logits import TwoClassModel
from surefoot.testing import byte_tokenizer_json, write_base
from surefoot.train import snapshot
from surefoot.train.batch import Shape, collate, encode, merge
from surefoot.train.example import from_label
from surefoot.train.export import change_head, export
from surefoot.train.loop import Run, train
from surefoot.train.model import INITIAL, Trainee, make_trainee
from surefoot.train.settings import Settings, Sitting

MINI = FAMILIES["mini-lm"]
TOKENIZER = PromptTokenizer(json.loads(byte_tokenizer_json(*MINI.added_tokens)))  # one token per byte
QUESTION = "What are 2 bags of 3 pens?"


def test_the_tokens_of_a_step_are_read_except_for_its_first() -> None:
    prompt = MINI.render(TOKENIZER, "23?", ["1. a 23", "x", "4"])
    text = "".join(TOKENIZER.decode([id]) if id < 256 else "|" for id in prompt.ids)
    assert text == "23?|1. a 23|x|4|"
    first = text.index("1.")
    markers = [at for at, id in enumerate(prompt.ids) if id == TOKENIZER.token(STEP)]
    assert prompt.reads == (*range(first, first + 6), *markers)
    assert prompt.targets == (*TOKENIZER.encode(". a 23")[0], -1, -1, -1)
    assert prompt.ends == (7, 8, 9)


def test_the_calculators_notes_are_not_read() -> None:
    prompt = MINI.render(TOKENIZER, QUESTION, ["2 * 3 = 7 pens"])
    assert "<|sum-fails|>" in TOKENIZER.decode(prompt.ids)
    assert prompt.targets == (*TOKENIZER.encode(" * 3 = 7 pens")[0], -1)


def test_which_tokens_are_digits() -> None:
    assert sorted(TOKENIZER.decode([id]) for id in digit_tokens(TOKENIZER)) == list("0123456789")


def test_a_prompt_rendered_elsewhere_is_read_at_the_same_places() -> None:
    """The calculator's notes are special tokens, too, and come before the first marker."""
    prompt = MINI.render(TOKENIZER, QUESTION, ["2 * 3 = 6 pens", "So 6."])
    assert MINI.place_reads(TOKENIZER, list(prompt.ids), 0) == prompt
    assert SOLUTION in TOKENIZER.decode(prompt.ids)


def test_the_score_is_that_of_torch() -> None:
    """Logit of the head and intercept, plus a constant and a weighted log-probability per token, at least -16."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"score.0.weight": (8, 8), "score.0.bias": (8,), "score.2.weight": (2, 8), "score.2.bias": (2,)}
    head = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    head[EMBEDDINGS] = torch.randn(300, 8, generator=generator) * 4
    head[SURPRISE] = torch.tensor([[0.3, 0.7], [0.1, 0.2]])
    head[INTERCEPT] = torch.tensor([0.5])
    head[DIGITS] = torch.zeros(300)
    head[DIGITS][TOKENIZER.encode("0123456789")[0]] = 1.0
    prompt = MINI.render(TOKENIZER, "2?", ["a2b3", "b"])
    hidden = torch.randn(len(prompt.reads), 8, generator=generator) * 3
    values = MINI.read_targets(head, hidden, torch.tensor(prompt.targets))
    found = [value.score for value in MINI.combine(prompt, values)]

    logprobs = (hidden @ head[EMBEDDINGS].T).log_softmax(-1)
    inner = (hidden @ head["score.0.weight"].T + head["score.0.bias"]).relu()
    right = (inner @ head["score.2.weight"].T + head["score.2.bias"]).softmax(-1)[:, 1].tolist()
    two, b, three = (max(-16.0, float(logprobs[at, prompt.targets[at]])) for at in (0, 1, 2))
    assert min(two, b, three) == -16.0, "the floor is reached in this example"
    first, second = (math.log(each / (1 - each)) + 0.5 for each in (right[3], right[4]))
    logit = first + 0.3 + 0.7 * two + 0.1 + 0.2 * b + 0.3 + 0.7 * three
    assert found == pytest.approx([1 / (1 + math.exp(-each)) for each in (logit, second)], rel=1e-4)


def test_without_tokens_the_score_is_that_of_the_head() -> None:
    """With the intercept. The engine then passes no targets at all."""
    head = {
        "score.0.weight": torch.eye(2), "score.0.bias": torch.zeros(2),
        "score.2.weight": torch.eye(2), "score.2.bias": torch.zeros(2), INTERCEPT: torch.tensor([-0.5]),
    }  # fmt: skip
    values = MINI.read(head, torch.tensor([[1.0, 3.0]]))
    prompt = MINI.render(TOKENIZER, "?", ["a"])
    assert [value.score for value in MINI.combine(prompt, values)] == pytest.approx([1 / (1 + math.exp(-1.5))])


STEPS = [
    (["2 * 3 = 6 pens", "So 6."], -1),
    (["2 * 3 = 6 pens", "So 16."], 1),
    (["2 + 3 = 5 pens", "So 5."], 0),
    (["We count.", "So 12 * 3 = 36."], 1),
]


def test_training_and_scoring_agree(tmp_path: Path) -> None:
    """One by one, merged into a trie in which steps branch between two digits, and scored by the engine."""
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    model = trainee.model
    with torch.no_grad():
        assert model.surprise is not None
        model.surprise.weight.copy_(torch.tensor([[0.1, 0.6], [-0.1, 0.2]]))
    model.eval()
    examples = [from_label(QUESTION, steps, label) for steps, label in STEPS]
    encoded, _ = encode(examples, trainee.family, trainee.tokenizer, 512)
    shape = Shape(4096, 8)
    with torch.no_grad():
        alone = [model(collate([each], shape, segments=True)).sigmoid().tolist() for each in encoded]
        (row,) = merge(encoded, range(len(encoded)), 4096, 0, 0)
        together = model(collate([row], shape, segments=True)).sigmoid().tolist()
    assert {round(score, 5) for score in together} == {round(score, 5) for scores in alone for score in scores}

    scorer = load_local(export(trainee, tmp_path / "out"))
    with pytest.raises(AttributeError, match="mini-lm do not have two logits per token"):
        TwoClassModel(scorer)  # they would lack what the digits add
    for (steps, label), scores in zip(STEPS, alone, strict=True):
        read = len(steps) if label == -1 else label + 1
        assert scorer.score(QUESTION, steps).step_scores[:read] == pytest.approx(scores, abs=1e-5)


def test_a_session_reads_them_too(tmp_path: Path) -> None:
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    scorer = load_local(export(trainee, tmp_path / "out"))
    steps = ["2 * 3 = 6 pens.", "12 more make 6 + 12 = 18 pens.", "The answer is 18."]
    expected = scorer.score(QUESTION, steps).step_scores
    session = scorer.session(QUESTION)
    for count in range(1, len(steps) + 1):
        (found,) = session.score([steps[:count]])
        assert found.step_scores == pytest.approx(expected[:count], abs=1e-5)


def test_the_head_can_be_changed(tmp_path: Path) -> None:
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    steps = STEPS[0][0]
    (example,), _ = encode([from_label(QUESTION, steps, -1)], trainee.family, trainee.tokenizer, 512)
    batch = collate([example], Shape(4096, 8), segments=True)
    with torch.no_grad():
        model = trainee.model.eval()
        mlp, *others = model.features(model.hidden(batch), batch).unbind(-1)
    counts = [len(step) - 1 for step in steps]  # one token per character, and the first is not read
    assert (others[0] + others[2]).tolist() == counts
    weights = torch.linspace(-0.3, 0.5, 5)
    changed = change_head(trainee.model.state_dict(), 2.0, weights)
    found = load_local(export(trainee, tmp_path / "out", weights=changed)).score(QUESTION, steps).step_scores
    expected = 2 * mlp + sum(weight * other for weight, other in zip(weights[:-1], others, strict=True)) + weights[-1]
    assert found == pytest.approx(expected.sigmoid().tolist(), abs=1e-5)


def test_each_part_learns_to_judge_alone(tmp_path: Path) -> None:
    """The gradient of a part is that of its own cross-entropy, with half of its logit in the score."""
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    examples = [from_label(QUESTION, steps, label) for steps, label in STEPS]
    run = Run(trainee, examples, tmp_path / "out", Settings(precision="float32", clip=math.inf), Sitting(), (), ())
    encoded, _ = encode(examples, trainee.family, trainee.tokenizer, 512)
    batch = collate(encoded, Shape(4096, 8), segments=True)
    model = trainee.model.train()
    mlp = model.features(model.hidden(batch), batch)[:, 0]
    expected = torch.nn.functional.binary_cross_entropy_with_logits(2 * mlp, batch.targets) / 2
    last = model.get_parameter("score.2.weight")
    (gradient,) = torch.autograd.grad(expected, [last])
    seen: list[torch.Tensor] = []
    last.register_hook(lambda found: seen.append(found.clone()))  # type: ignore[no-untyped-call]
    run.learn([batch])
    assert torch.allclose(seen[0], gradient, atol=1e-7)


PAIRS = [from_label(f"{QUESTION} {number}", steps, label) for number in range(50) for steps, label in STEPS[:2]]
"""As many correct and incorrect solutions as the weights of log-probabilities are fitted to."""


def slope(trainee: Trainee, start: torch.Tensor) -> torch.Tensor:
    """The gradient of what the weights of log-probabilities should minimize, in standard deviations of the features.

    It is the cross-entropy that they have alone, and half the squared distance from the weights before.
    """
    encoded, _ = encode(PAIRS, trainee.family, trainee.tokenizer, 512)
    model = trainee.model
    assert model.surprise is not None
    loss, rows, weights = torch.zeros(()), [], model.surprise.weight
    for each in encoded:
        batch = collate([each], Shape(4096, 8), segments=True)
        hidden = model.hidden(batch)
        rows.append(2 * model.features(hidden, batch)[:, 1:].detach())
        alone = 2 * model.parts(hidden, batch)[:, 1]
        loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(alone, batch.targets, reduction="sum")
    deviations = torch.cat(rows).std(0, correction=0).reshape(2, 2)
    distance = (weights - start) * deviations
    (gradient,) = torch.autograd.grad(loss + distance.square().sum() / 2, [weights])
    return gradient / deviations


def test_log_probabilities_are_fitted_before_the_training(tmp_path: Path) -> None:
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    start = torch.tensor(INITIAL)
    assert slope(trainee, start).abs().max() > 1
    Run(trainee, PAIRS, tmp_path / "out", Settings(precision="float32"), Sitting(), (), ())
    assert slope(trainee, start) == pytest.approx(torch.zeros(2, 2), abs=0.05)


def test_log_probabilities_alone_expect_the_share_of_correct_steps(tmp_path: Path) -> None:
    """A logistic regression with an intercept does: the derivative of its loss by the intercept is 0."""
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    Run(trainee, PAIRS, tmp_path / "out", Settings(precision="float32"), Sitting(), (), ())
    encoded, _ = encode(PAIRS, trainee.family, trainee.tokenizer, 512)
    batches = [collate([each], Shape(4096, 8), segments=True) for each in encoded]
    model = trainee.model
    expected = torch.cat([(2 * model.parts(model.hidden(batch), batch)[:, 1]).sigmoid() for batch in batches])
    targets = torch.cat([batch.targets for batch in batches])
    assert expected.mean().item() == pytest.approx(targets.mean().item(), abs=1e-4)


def test_the_intercept_of_log_probabilities_is_added_once_per_step(tmp_path: Path) -> None:
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    logits = []
    for intercept in (0.0, 1.5):
        weights = trainee.model.state_dict() | {INTERCEPT: torch.tensor([intercept])}
        folder = export(trainee, tmp_path / str(intercept), weights=weights)
        scores = load_local(folder).score(QUESTION, STEPS[0][0]).step_scores
        logits.append(torch.logit(torch.tensor(scores, dtype=torch.float64)))
    assert logits[1] - logits[0] == pytest.approx(torch.full_like(logits[0], 1.5), abs=1e-4)


def test_log_probabilities_are_fitted_in_the_end(tmp_path: Path) -> None:
    """Without validation examples, to training examples."""
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    train(trainee, PAIRS, tmp_path / "out", Settings(steps=3, precision="float32"), Sitting(progress=False))
    trained = snapshot.load(tmp_path / "out" / "checkpoints" / "step-00000003.pt")["model"]
    exported = load_file(tmp_path / "out" / "model.safetensors")
    trainee.model.load_state_dict(exported)
    assert not torch.equal(exported[SURPRISE], trained[SURPRISE])
    assert slope(trainee, trained[SURPRISE]) == pytest.approx(torch.zeros(2, 2), abs=0.05)


def test_log_probabilities_are_fitted_during_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.train.loop.CALIBRATED_EVERY", 2)
    settings = Settings(steps=4, precision="float32", learning_rate=1e-12)  # nothing else changes
    weights = []
    for _ in range(3):
        trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
        train(trainee, PAIRS, tmp_path / "out", settings, Sitting(steps=1, progress=False))
        assert trainee.model.surprise is not None
        weights.append(trainee.model.surprise.weight.detach().clone())
    assert not torch.allclose(weights[0], weights[1], rtol=1e-3)
    assert torch.allclose(weights[1], weights[2], rtol=1e-3)


def test_the_head_is_fitted_to_validation_examples(tmp_path: Path) -> None:
    examples = [from_label(f"{QUESTION} {number}", steps, label) for number in range(6) for steps, label in STEPS]
    settings = Settings(steps=2, precision="float32")
    trainee = make_trainee(write_base(tmp_path / "base"), family="mini-lm")
    noise = [replace(example, targets=tuple(reversed(example.targets))) for example in examples[::3]]
    result = train(
        trainee, examples, tmp_path / "out", settings, Sitting(progress=False), validation=[*examples, *noise]
    )
    trained = snapshot.load(tmp_path / "out" / "checkpoints" / "step-00000002.pt")["model"]
    exported = load_file(result.folder / "model.safetensors")
    shares = exported[SURPRISE] / trained[SURPRISE]
    factor = exported["score.2.weight"][0, 0] / trained["score.2.weight"][0, 0]
    assert torch.allclose(exported["score.2.weight"], trained["score.2.weight"] * factor, rtol=1e-4)
    assert not torch.allclose(shares[:, 1], factor.expand(2), rtol=1e-2), "more than the scale changed"


def test_a_model_of_the_family_mini_keeps_its_head(tmp_path: Path) -> None:
    old = make_trainee(write_base(tmp_path / "base"), family="mini", seed=1).model.state_dict()
    export(make_trainee(tmp_path / "base", family="mini", seed=1), tmp_path / "old")
    new = make_trainee(tmp_path / "old", family="mini-lm", seed=2).model.state_dict()
    assert new.pop(SURPRISE).tolist() == [pytest.approx(row) for row in INITIAL]
    assert new.pop(DIGITS).sum() == 10
    assert new.pop(INTERCEPT) == 0
    assert new.keys() == old.keys()
    assert all(torch.equal(new[name], old[name]) for name in old)
