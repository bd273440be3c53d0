"""Training small models of the true architectures on a rule that can be learnt, on the CPU."""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from surefoot.errors import CheckpointError, InputError, LoadError, OptionError
from surefoot.families.mini.family import SOLUTION, STEP
from surefoot.families.qwen import MARKER
from surefoot.scoring.local import load_local
from surefoot.testing import write_base
from surefoot.train import loop, snapshot
from surefoot.train.batch import Batch, Mixture, Shape, collate, encode
from surefoot.train.example import Example, from_label, from_scores
from surefoot.train.export import export, move_threshold
from surefoot.train.interrupt import Interrupt
from surefoot.train.loop import Result, train
from surefoot.train.metrics import Judged, measure
from surefoot.train.model import Trainee, average, make_trainee
from surefoot.train.optimizer import freeze, make_optimizer, rate_factor
from surefoot.train.run_log import draw_curve, read_log
from surefoot.train.settings import Settings, Sitting

FAST = Settings(
    steps=40, learning_rate=3e-3, precision="float32", shape=Shape(1024, 16), max_tokens=128, weight_decay=0.01
)
QUIET = Sitting(evaluate_minutes=None, save_minutes=None)


def rule(count: int, seed: int = 0) -> list[Example]:
    """A step is right if it says yes."""
    rng = random.Random(seed)
    examples = []
    for number in range(count):
        words = [rng.choice(["yes", "yes", "no"]) for _ in range(rng.randint(1, 4))]
        label = words.index("no") if "no" in words else -1
        steps = [f"{rng.choice('abc')} {word}" for word in words]
        examples.append(from_label(f"question {number}", steps, label, "rule"))
    return examples


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("bases") / "llama")


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("bases") / "qwen2", "qwen2")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_the_rule_is_learnt_and_the_export_gives_the_same_scores(
    kind: str, llama: Path, qwen2: Path, tmp_path: Path
) -> None:
    trainee = make_trainee({"llama": llama, "qwen2": qwen2}[kind])
    # The chat around a question takes room.
    settings = FAST if kind == "llama" else replace(FAST, steps=60, max_tokens=512, shape=Shape(4096, 32))
    result = train(trainee, rule(300), tmp_path / "out", settings, QUIET, held_out=rule(60, seed=1))
    losses = [row["loss"] for row in read_log(tmp_path / "out" / "log.jsonl") if "loss" in row and "rate" in row]
    assert len(losses) == settings.steps
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert result.finished
    assert result.quality is not None
    assert result.quality.step_auc is not None
    assert result.quality.step_auc > 0.95

    scorer = load_local(result.folder)
    assert scorer.family.name == {"llama": "mini", "qwen2": "qwen"}[kind]
    assert scorer.info["trained_tokens"] == settings.max_tokens
    for example in rule(10, seed=2):
        scores = scorer.score(example.question, example.steps).step_scores
        prompt = trainee.family.render(trainee.tokenizer, example.question, example.steps)
        places = torch.tensor(prompt.reads)
        with torch.no_grad():
            margin = trainee.model(Batch(torch.tensor([prompt.ids]), torch.zeros_like(places), places, places))
        assert scores == pytest.approx(margin.sigmoid().tolist(), abs=1e-5)


def test_the_export_is_an_ordinary_checkpoint(llama: Path, tmp_path: Path) -> None:
    folder = export(make_trainee(llama), tmp_path / "out")
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["SurefootMiniForProcessRewardModel"]
    assert config["model_type"] == "llama"
    added = {
        token["content"]: token["id"] for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    }
    assert (added[SOLUTION], added[STEP]) == (259, 260)
    assert config["vocab_size"] == 265
    tensors = weights(folder)
    assert tensors["model.embed_tokens.weight"].shape == (265, 32)
    assert {name for name in tensors if name.startswith("score.")} == {
        "score.0.weight", "score.0.bias", "score.2.weight", "score.2.bias",
    }  # fmt: skip
    result = load_local(folder).score(f"is {STEP} text?", [f"a {SOLUTION}", "b"])
    assert result.status == "scored"
    assert len(result.warnings) == 2


def test_half_precision_export(llama: Path, tmp_path: Path) -> None:
    folder = export(make_trainee(llama), tmp_path / "out", dtype="bfloat16")
    assert {tensor.dtype for tensor in weights(folder).values()} == {torch.bfloat16}
    assert load_local(folder).score("q", ["a"]).status == "scored"
    with pytest.raises(OptionError, match="dtype='int3'"):
        export(make_trainee(llama), tmp_path / "out", dtype="int3")


@pytest.mark.parametrize("dtype", ["int4", "bfloat16"])
def test_the_quality_is_that_of_the_stored_model(llama: Path, tmp_path: Path, dtype: str) -> None:
    sitting, held = replace(QUIET, dtype=dtype), rule(30, seed=1)
    result = train(make_trainee(llama), rule(24), tmp_path, TEN, sitting, held_out=held, validation=rule(30, seed=2))
    scorer = load_local(result.folder)
    judged = [
        Judged(tuple(score for score in found.step_scores if score is not None)[: len(known)], known)
        for example in held
        for found in [scorer.score(example.question, list(example.steps))]
        for known in [tuple(target for target in example.targets if target is not None)]
    ]
    assert result.quality is not None
    assert result.quality.loss == pytest.approx(measure(judged).loss, abs=1e-5)


@pytest.mark.parametrize(("dtype", "share", "drift"), [("int8", 0.3, 0.02), ("int4", 0.25, 0.1)])
def test_small_exports(llama: Path, tmp_path: Path, dtype: str, share: float, drift: float) -> None:
    trainee = make_trainee(llama)
    whole, small = export(trainee, tmp_path / "whole"), export(trainee, tmp_path / "small", dtype=dtype)
    sizes = [sum(tensor.nbytes for tensor in weights(folder).values()) for folder in (whole, small)]
    assert sizes[1] < share * sizes[0]
    bits = {name: 4 if codes.dtype == torch.uint8 else 8 for name, codes in weights(small).items() if ".codes" in name}
    inside = {name for name in bits if ".layers." in name}
    assert {bits[name] for name in inside} == {4 if dtype == "int4" else 8}
    assert {bits[name] for name in bits.keys() - inside} == {8}
    assert len(inside) == 2 * 7
    a, b = (load_local(folder).score("q", ["a", "1 + 1 = 2"]).step_scores for folder in (whole, small))
    assert a == pytest.approx(b, abs=drift)
    assert a != b


def test_a_free_row_is_used_for_the_marker(tmp_path: Path) -> None:
    base = write_base(tmp_path / "roomy", "qwen2", vocab_size=300)
    trainee = make_trainee(base)
    assert trainee.family.name == "qwen"
    assert trainee.tokenizer.token(MARKER) == 259
    assert trainee.config["vocab_size"] == 300


def test_only_the_first_layers(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama, layers=1)
    folder = export(trainee, tmp_path / "out")
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 1
    assert not any("layers.1." in name for name in weights(folder))
    assert load_local(folder).score("q", ["a"]).status == "scored"
    for layers in (0, 3):
        with pytest.raises(OptionError, match="but the base has 2"):
            make_trainee(llama, layers=layers)


def test_a_prm_can_be_trained_further(llama: Path, tmp_path: Path) -> None:
    first = export(make_trainee(llama, seed=3), tmp_path / "first")
    again = export(make_trainee(first, seed=4), tmp_path / "again")
    assert same(weights(first), weights(again))


def test_a_new_head_starts_with_small_logits_whatever_the_size_of_its_inputs(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    trainee = make_trainee(folder)
    (example,), _ = encode([from_label("q", ["a"], -1)], trainee.family, trainee.tokenizer, 128)
    small = trainee.model(collate([example], Shape(64, 16)))
    file = folder / "model.safetensors"
    tensors = load_file(file)
    (name,) = [name for name in tensors if name.endswith("norm.weight") and "layers" not in name]
    save_file(tensors | {name: 7.0 * tensors[name]}, file, metadata={"format": "pt"})
    assert torch.allclose(make_trainee(folder).model(collate([example], Shape(64, 16))), small, atol=1e-5)


def test_the_family_can_be_chosen(qwen2: Path, llama: Path) -> None:
    assert make_trainee(qwen2, family="mini").family.name == "mini"
    with pytest.raises(OptionError, match="family='nope'"):
        make_trainee(llama, family="nope")


def test_bases_that_cannot_be_used(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(LoadError, match="neither an existing folder"):
        make_trainee(tmp_path / "none")
    base = write_base(tmp_path / "base")
    (base / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is not a tokenizer"):
        make_trainee(base)
    (base / "tokenizer.json").unlink()
    with pytest.raises(LoadError, match=r"has no tokenizer\.json"):
        make_trainee(base)


# --- exactness ---

TEN = replace(FAST, steps=10, ema=0.9, accumulate=2, shape=Shape(256, 16), mixture=Mixture({}, wrong_share=0.5))


def run(base: Path, out: Path, settings: Settings = TEN, sitting: Sitting = QUIET, seed: int = 0) -> Result:
    return train(make_trainee(base, seed=seed), rule(24), out, settings, sitting, held_out=rule(20, seed=1))


def test_a_run_that_was_stopped_ends_with_the_same_weights(llama: Path, tmp_path: Path) -> None:
    whole = run(llama, tmp_path / "whole")
    paused = run(llama, tmp_path / "parts", sitting=replace(QUIET, steps=5))
    assert (paused.finished, paused.step) == (False, 5)
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    rest = run(llama, tmp_path / "parts")
    assert (rest.finished, rest.step) == (True, 10)
    assert same(weights(whole.folder), weights(rest.folder))

    def curve(folder: Path) -> list[tuple[int, float]]:
        return [(row["step"], row["loss"]) for row in read_log(folder / "log.jsonl") if "rate" in row]

    assert curve(tmp_path / "whole") == curve(tmp_path / "parts")
    assert [step for step, _ in curve(tmp_path / "parts")] == list(range(1, 11))


def test_a_run_that_died_goes_on_from_its_last_snapshot(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(llama, tmp_path / "whole")
    saving = replace(QUIET, save_steps=3)
    calls = 0
    learn: Callable[..., dict[str, float]] = loop.Run.learn

    def dies(self: loop.Run, batches: list[Batch]) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise RuntimeError("power cut")
        return learn(self, batches)

    monkeypatch.setattr(loop.Run, "learn", dies)
    with pytest.raises(RuntimeError, match="power cut"):
        run(llama, tmp_path / "parts", sitting=saving)
    last = snapshot.last(tmp_path / "parts" / "checkpoints")
    assert last is not None
    assert last.name == "step-00000006.pt"
    rest = run(llama, tmp_path / "parts", sitting=saving)
    assert same(weights(whole.folder), weights(rest.folder))
    rows = [row["step"] for row in read_log(tmp_path / "parts" / "log.jsonl") if "rate" in row]
    assert rows == list(range(1, 11))


@pytest.mark.usefixtures("default_sigint")
def test_an_interrupted_run_saves_itself_and_ends_with_the_same_weights(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while a step is computed, and while the average is in the place of the weights."""
    settings, sitting = replace(TEN, ema=0.5), replace(QUIET, evaluate_steps=4)
    whole = run(llama, tmp_path / "whole", settings, sitting)
    for number, method in enumerate(("learn", "_judge")):
        original = getattr(loop.Run, method)

        def interrupted(self: loop.Run, *arguments: Any, original: Any = original) -> Any:
            if self.step == 4:
                signal.raise_signal(signal.SIGINT)
            return original(self, *arguments)

        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(loop.Run, method, interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(llama, folder, settings, sitting)
        assert snapshot.last(folder / "checkpoints") is not None
        assert same(weights(run(llama, folder, settings, sitting).folder), weights(whole.folder))


@pytest.mark.usefixtures("default_sigint")
def test_a_second_interrupt_ends_at_once(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(self: loop.Run, batches: list[Batch]) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(loop.Run, "learn", impatient)
    with pytest.raises(KeyboardInterrupt):
        run(llama, tmp_path / "out")
    assert snapshot.last(tmp_path / "out" / "checkpoints") is None


@pytest.mark.usefixtures("default_sigint")
def test_an_ignored_interrupt_stays_ignored() -> None:
    """Whoever starts a run with SIGINT ignored (`nohup`, a script's background job) means it to go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
    assert not interrupt.asked
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_solutions_of_one_question_are_learnt_from_together(llama: Path, tmp_path: Path) -> None:
    examples = [replace(example, question=f"question {at % 6}") for at, example in enumerate(rule(60))]
    settings = replace(FAST, share=True, mixture=Mixture({"rule": 2.5}))
    whole = train(make_trainee(llama), examples, tmp_path / "whole", settings, QUIET, held_out=rule(40, seed=1))
    assert whole.quality is not None
    assert whole.quality.step_auc is not None
    assert whole.quality.step_auc > 0.9
    for _ in range(2):
        train(make_trainee(llama), examples, tmp_path / "parts", settings, replace(QUIET, steps=20))
    parts = train(make_trainee(llama), examples, tmp_path / "parts", settings, QUIET)
    assert same(weights(parts.folder), weights(whole.folder))


def test_a_finished_run_started_again_writes_the_same(llama: Path, tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        train(make_trainee(llama), rule(24), tmp_path, TEN, replace(QUIET, evaluate_steps=5), held_out=rule(8, seed=1))
        written.append((read_log(tmp_path / "log.jsonl"), weights(tmp_path)))
    (first, model), (second, again) = written
    assert first == second
    assert [row["step"] for row in first if "evaluated" in row] == [5, 10]
    assert same(model, again)


def test_the_seed_decides(llama: Path, tmp_path: Path) -> None:
    settings = replace(TEN, steps=3)
    one, two = run(llama, tmp_path / "one", settings), run(llama, tmp_path / "two", settings)
    other = run(llama, tmp_path / "other", replace(settings, seed=1))
    assert same(weights(one.folder), weights(two.folder))
    assert not same(weights(one.folder), weights(other.folder))


def test_a_run_is_not_continued_with_other_settings_or_data(llama: Path, tmp_path: Path) -> None:
    run(llama, tmp_path / "out", sitting=replace(QUIET, steps=1))
    with pytest.raises(OptionError, match="a run that differs in: learning rate"):
        run(llama, tmp_path / "out", replace(TEN, learning_rate=1.0))
    with pytest.raises(OptionError, match="a run that differs in: training data"):
        train(make_trainee(llama), rule(25), tmp_path / "out", TEN, QUIET)
    other = make_trainee(llama)
    with torch.no_grad():
        other.model.layers[0].get_submodule("mlp.up_proj").get_parameter("weight").add_(1.0)
    with pytest.raises(OptionError, match="a run that differs in: base"):
        train(other, rule(24), tmp_path / "out", TEN, QUIET)


def test_what_is_measured_on_may_change_and_the_best_is_looked_for_anew(
    llama: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sitting = replace(QUIET, evaluate_steps=1)
    train(make_trainee(llama), rule(24), tmp_path, TEN, replace(sitting, steps=2), held_out=rule(6))
    with caplog.at_level("INFO", logger="surefoot"):
        train(make_trainee(llama), rule(24), tmp_path, TEN, replace(sitting, steps=2), held_out=rule(8))
    assert "the search for the best weights starts again" in caplog.text


def test_a_solution_that_is_cut_is_not_measured(llama: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without its wrong step it would count as a right one."""
    long = from_label("How much?", ["That is right.", "x" * 200, "So it is wrong."], 2)
    result = train(
        make_trainee(llama), rule(24), tmp_path, replace(TEN, max_tokens=100, steps=1), QUIET, held_out=[*rule(6), long]
    )
    assert result.quality is not None
    assert result.quality.solutions == 6
    assert "Skipped 1 held-out examples that have a target after 100 tokens" in caplog.text


def test_snapshots_are_few_and_whole(llama: Path, tmp_path: Path) -> None:
    run(llama, tmp_path / "out", sitting=replace(QUIET, save_steps=1, evaluate_steps=2, keep=3))
    names = sorted(file.name for file in (tmp_path / "out" / "checkpoints").iterdir())
    assert names == ["best.pt", "step-00000008.pt", "step-00000009.pt", "step-00000010.pt"]
    broken = tmp_path / "out" / "checkpoints" / "step-00000011.pt"
    broken.write_bytes(b"nothing")
    with pytest.raises(LoadError, match="Delete it to resume"):
        run(llama, tmp_path / "out")


# --- the loss ---


def test_steps_behind_the_first_error_carry_no_gradient(llama: Path) -> None:
    def gradients(examples: list[Example]) -> dict[str, torch.Tensor]:
        trainee = make_trainee(llama)
        encoded, _ = encode(examples, trainee.family, trainee.tokenizer, 128)
        batch = collate(encoded, Shape(256, 16))
        margin = trainee.model(batch)
        torch.nn.functional.binary_cross_entropy_with_logits(margin, batch.targets).backward()  # type: ignore[no-untyped-call]
        return {name: p.grad for name, p in trainee.model.named_parameters() if p.grad is not None}

    short = gradients([from_label("q", ["a", "b"], 1)])
    long = gradients([from_label("q", ["a", "b", "anything", "at all"], 1)])
    other = gradients([from_label("q", ["a", "b", "something else"], 1)])
    assert same(short, long)
    assert same(short, other)


def test_soft_targets_pull_scores_to_themselves(llama: Path, tmp_path: Path) -> None:
    examples = [from_scores("q", ["a yes"], [0.7], "soft")] * 8
    result = train(make_trainee(llama), examples, tmp_path / "out", replace(FAST, steps=60), QUIET)
    assert load_local(result.folder).score("q", ["a yes"]).step_scores[0] == pytest.approx(0.7, abs=0.05)


def test_wrong_steps_can_count_more(llama: Path, tmp_path: Path) -> None:
    examples = [from_label("q", ["a"], label, "s") for label in (0, -1)] * 8
    settings = replace(FAST, steps=60, wrong_weight=4.0)
    result = train(make_trainee(llama), examples, tmp_path / "out", settings, QUIET)
    assert load_local(result.folder).score("q", ["a"]).step_scores[0] == pytest.approx(0.2, abs=0.05)


def test_the_language_loss_is_that_of_the_language_model(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama)
    example = from_label("How many?", ["It is 3 * 4 = 12.", "So 12."], -1)
    examples, _ = encode([example], trainee.family, trainee.tokenizer, 128)
    backbone: Any = trainee.model.model
    model = LlamaForCausalLM(backbone.config).eval()
    model.model.load_state_dict(backbone.state_dict())
    model.lm_head.weight = model.model.embed_tokens.weight
    ids = torch.tensor(examples[0].ids)
    labels = ids.where(torch.arange(len(ids)) >= examples[0].prefix, -100)
    expected = float(model(input_ids=ids[None], labels=labels[None]).loss)

    result = train(trainee, [example], tmp_path, replace(FAST, language_weight=1.0), QUIET)
    losses = [row["language_loss"] for row in read_log(result.folder / "log.jsonl") if "language_loss" in row]
    assert losses[0] == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < 0.5 * losses[0]


def test_accumulated_batches_are_one_big_one(llama: Path, tmp_path: Path) -> None:
    settings = replace(FAST, steps=1, decay="constant", warmup=0.0, clip=1e9, language_weight=0.5)
    big = train(make_trainee(llama), rule(8), tmp_path / "big", replace(settings, shape=Shape(4096, 64)), QUIET)
    small = replace(settings, shape=Shape(64, 64), accumulate=8)
    parts = train(make_trainee(llama), rule(8), tmp_path / "parts", small, QUIET)
    for name in ("loss", "language_loss"):
        losses = [read_log(one.folder / "log.jsonl")[0][name] for one in (big, parts)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_padding_and_checkpointing_change_nothing(llama: Path, tmp_path: Path) -> None:
    settings = replace(FAST, steps=3)
    plain = train(make_trainee(llama), rule(12), tmp_path / "plain", settings, QUIET)
    other = replace(settings, gradient_checkpointing=True, shape=Shape(1024, 16, fixed_rows=True))
    frugal = train(make_trainee(llama), rule(12), tmp_path / "frugal", other, QUIET)
    a, b = weights(plain.folder), weights(frugal.folder)
    assert all(torch.allclose(a[name], b[name], atol=1e-4) for name in a)


def test_what_is_frozen_stays(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama)
    before = {name: tensor.clone() for name, tensor in trainee.model.state_dict().items()}
    settings = replace(FAST, steps=2, freeze_embeddings=True, freeze_layers=1)
    after = weights(train(trainee, rule(12), tmp_path / "out", settings, QUIET).folder)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any("layers.0." in name for name in changed)
    assert any("layers.1." in name for name in changed)
    assert "score.2.bias" in changed
    with pytest.raises(OptionError, match="the model has 2 layers"):
        freeze(trainee.model, replace(FAST, freeze_layers=3))


def test_a_base_of_transformers_5_becomes_a_model_for_both_versions(llama: Path, tmp_path: Path) -> None:
    """Version 5 writes the base of the rotary frequencies in a dictionary, version 4 reads it at the top level."""
    shutil.copytree(llama, tmp_path / "base")
    config = json.loads((llama / "config.json").read_text())
    theta = config.pop("rope_theta")
    config["rope_parameters"] = {"rope_theta": theta, "rope_type": "default"}
    (tmp_path / "base" / "config.json").write_text(json.dumps(config | {"transformers_version": "5.0.0"}))
    exported = json.loads((export(make_trainee(tmp_path / "base"), tmp_path / "out") / "config.json").read_text())
    assert exported["rope_theta"] == exported["rope_parameters"]["rope_theta"] == theta
    assert "transformers_version" not in exported


def test_norms_biases_and_embeddings_do_not_decay(llama: Path) -> None:
    model = make_trainee(llama, family="mini-lm").model
    optimizer = make_optimizer(model, FAST)
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = {
        names[parameter]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert len(groups) == len(names)
    assert groups["model.embed_tokens.weight"] == (3e-3, 0.0)
    assert groups["model.norm.weight"] == (3e-3, 0.0)
    assert groups["model.layers.0.mlp.up_proj.weight"] == (3e-3, 0.01)
    assert groups["score.2.bias"] == (pytest.approx(1.5e-2), 0.0)
    assert groups["score.0.weight"] == (pytest.approx(1.5e-2), 0.01)
    assert groups["surprise.weight"] == (pytest.approx(1.5e-2), 0.01)


def test_a_run_can_finish_before_its_schedule(llama: Path, tmp_path: Path) -> None:
    """The weights are those of the longer run at that step, whether it was paused there or not."""
    settings = replace(FAST, steps=6, decay="linear")
    paused = train(make_trainee(llama), rule(12), tmp_path / "paused", settings, replace(QUIET, steps=3))
    assert not paused.finished
    expected = snapshot.load(tmp_path / "paused" / "checkpoints" / "step-00000003.pt")["model"]
    last = replace(QUIET, last_step=3)
    for folder in ("paused", "new"):
        result = train(make_trainee(llama), rule(12), tmp_path / folder, settings, last)
        assert (result.finished, result.step, result.steps) == (True, 3, 6)
        found = weights(result.folder)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_run_without_steps_only_selects_the_threshold(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama)
    before = {name: tensor.clone() for name, tensor in trainee.model.state_dict().items()}
    result = train(trainee, rule(12), tmp_path / "out", FAST, replace(QUIET, last_step=0), validation=rule(6))
    assert (result.finished, result.step) == (True, 0)
    found = weights(result.folder)
    head = ("score.2.weight", "score.2.bias")
    assert all(torch.equal(found[name], tensor) for name, tensor in before.items() if name not in head)


def test_the_mean_of_models(llama: Path) -> None:
    one, *others = (make_trainee(llama, seed=seed) for seed in range(3))
    states = [
        {name: tensor.numpy().copy() for name, tensor in each.model.state_dict().items()} for each in (one, *others)
    ]
    average(one, others)
    for name, tensor in one.model.state_dict().items():
        assert np.allclose(tensor.numpy(), np.mean([state[name] for state in states], 0), atol=1e-7)
    assert not np.allclose(states[0]["score.0.weight"], states[1]["score.0.weight"])


def test_models_of_other_shapes_have_no_mean(llama: Path) -> None:
    with pytest.raises(OptionError, match="Only models that were trained from the same base can be averaged"):
        average(make_trainee(llama), [make_trainee(llama, layers=1)])


@pytest.mark.parametrize(
    ("decay", "factors"),
    [
        ("cosine", [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_learning_rate_over_time(decay: str, factors: list[float]) -> None:
    settings = Settings(decay=decay, warmup=0.25)
    found = [rate_factor(step, 6, settings) for step in range(6)]
    assert found == pytest.approx(factors, abs=1e-3)
    assert rate_factor(6, 6, replace(settings, decay="linear", floor=0.1)) == pytest.approx(0.1)


# --- choosing, and the ends ---


def test_the_threshold_is_built_into_the_head(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama)
    before = load_local(export(trainee, tmp_path / "before")).score("q", ["a"]).step_scores[0]
    assert before is not None
    moved = move_threshold(trainee.model.state_dict(), before)
    after = load_local(export(trainee, tmp_path / "after", weights=moved)).score("q", ["a"]).step_scores[0]
    assert after == pytest.approx(0.5, abs=1e-5)
    with pytest.raises(OptionError, match="must be between 0 and 1"):
        move_threshold(moved, 1.0)


def test_a_scale_multiplies_the_distance_from_the_threshold(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama)
    before = load_local(export(trainee, tmp_path / "before")).score("q", ["a"]).step_scores[0]
    assert before is not None
    moved = move_threshold(trainee.model.state_dict(), 0.8, 3.0)
    after = load_local(export(trainee, tmp_path / "after", weights=moved)).score("q", ["a"]).step_scores[0]
    logit = 3.0 * (math.log(before / (1 - before)) - math.log(4))
    assert after == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
    with pytest.raises(OptionError, match="scale is 0"):
        move_threshold(moved, 0.5, 0.0)


def test_validation_chooses_the_threshold(llama: Path, tmp_path: Path) -> None:
    # Wrong steps count twenty times, so that scores are too low; the threshold found on validation puts that right.
    settings = replace(FAST, steps=4, wrong_weight=20.0)
    result = train(
        make_trainee(llama), rule(100), tmp_path / "out", settings, QUIET,
        validation=rule(60, seed=1), held_out=rule(60, seed=2),
    )  # fmt: skip
    assert result.quality is not None
    assert result.threshold < 0.5
    assert result.quality.f1 is not None
    assert result.quality.f1 >= (result.quality.best_f1 or 0) - 0.15
    kinds = {row.get("evaluated") for row in read_log(tmp_path / "out" / "log.jsonl")}
    assert {"validation", "held_out"} <= kinds


def test_last_or_best(llama: Path, tmp_path: Path) -> None:
    sitting = replace(QUIET, evaluate_steps=1)
    settings = replace(FAST, steps=6, learning_rate=0.5, decay="constant")
    best = train(make_trainee(llama), rule(40), tmp_path / "best", settings, sitting, held_out=rule(40, 1))
    last = train(
        make_trainee(llama),
        rule(40),
        tmp_path / "last",
        settings,
        replace(sitting, export="last"),
        held_out=rule(40, 1),
    )
    assert best.quality is not None
    assert last.quality is not None
    measured = [row["best_f1"] for row in read_log(tmp_path / "best" / "log.jsonl") if row.get("evaluated")]
    assert best.quality.best_f1 == pytest.approx(max(measured))
    assert last.quality.best_f1 == pytest.approx(measured[-1])


def test_encoding_shows_its_progress(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("surefoot.display.progress.LINE_EVERY", 0.0)
    train(make_trainee(llama), rule(5), tmp_path, replace(FAST, steps=1), replace(QUIET, progress=True))
    assert "5 of 5 training examples, 0 s, encoded" in capsys.readouterr().err


def test_nothing_to_train_on(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no example to train on"):
        train(make_trainee(llama), [], tmp_path / "out", FAST, QUIET)
    with pytest.raises(InputError, match="no example to train on"):
        train(make_trainee(llama), rule(3), tmp_path / "out", replace(FAST, max_tokens=5), QUIET)


def test_a_gradient_that_is_not_finite_is_said(llama: Path, tmp_path: Path) -> None:
    trainee: Trainee = make_trainee(llama)
    with torch.no_grad():
        trainee.model.score[2].bias.fill_(float("nan"))  # type: ignore[operator]
    with pytest.raises(InputError, match="not finite"):
        train(trainee, rule(10), tmp_path / "out", FAST, QUIET)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decay": "square"}, "decay='square'"),
        ({"precision": "int4"}, "precision='int4'"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"steps": 0}, "steps=0"),
        ({"warmup": 1.0}, "warmup=1.0"),
        ({"ema": -0.1}, "ema=-0.1"),
        ({"freeze_layers": -1}, "freeze_layers=-1"),
        ({"share": True, "mixture": Mixture({}, wrong_share=0.5)}, "Omit `wrong_share`"),
        ({"head_learning_rate": 0.0}, "head_learning_rate=0.0"),
        ({"language_weight": -0.5}, "language_weight=-0.5"),
    ],
)
def test_settings_that_make_no_sense(change: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Settings(**change)  # type: ignore[arg-type]


def test_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr(loop, "cpu_has_flag", lambda flag: True)
    monkeypatch.setattr(loop, "runs_on_cpu", lambda dtype: True)
    assert loop.choose_precision("auto", cpu) == torch.bfloat16
    monkeypatch.setattr(loop, "runs_on_cpu", lambda dtype: False)
    assert loop.choose_precision("auto", cpu) == loop.choose_precision("bfloat16", cpu) == torch.float32
    monkeypatch.setattr(loop, "cpu_has_flag", lambda flag: False)
    assert loop.choose_precision("auto", cpu) == torch.float32
    assert loop.choose_precision("auto", torch.device("cuda")) == torch.bfloat16


def test_the_curve(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    rows = [{"step": at, "loss": 1 / at} for at in range(1, 200)] + [
        {"step": 199, "loss": 9.0, "evaluated": "held_out"}
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 2')
    text = draw_curve(file)
    assert text.startswith("loss 0.6")
    assert text.endswith("0.005")
    assert "█" in text
    assert (tmp_path / "loss.txt").read_text() == text + "\n"
    file.write_text("")
    assert draw_curve(file) == "no steps yet"


def test_frozen_embeddings_leave_our_own_tokens_free(llama: Path, tmp_path: Path) -> None:
    trainee = make_trainee(llama)
    before = trainee.model.model.get_submodule("embed_tokens").get_parameter("weight").detach().clone()
    train(trainee, rule(20), tmp_path / "out", replace(FAST, steps=3, freeze_embeddings=True), QUIET)
    moved = (weights(tmp_path / "out")["model.embed_tokens.weight"] != before).any(1).nonzero().flatten().tolist()
    # No step of these examples holds an equation or a number, so the calculator's tokens are not seen.
    assert moved == [trainee.tokenizer.token(SOLUTION), trainee.tokenizer.token(STEP)]
