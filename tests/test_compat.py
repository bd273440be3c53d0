"""The drop-in replacement is used as the original is, and what it could not score never looks good."""

from __future__ import annotations

import json
import logging
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.hard_solutions import GOOD, HARD, NOT_TEXT, NOTHING, TOO_LONG
from helpers.reference import Reference
from helpers.small import LINEAR, write
from surefoot.compat import DEFAULT_SYSTEM_PROMPT, STEP_SEP_TOKEN, ProcessRewardScorer, extract_prm_steps
from surefoot.errors import OptionError
from surefoot.families import PromptTokenizer
from surefoot.families.qwen import Qwen
from surefoot.testing import byte_tokenizer_json, write_qwen_checkpoint

KEYS = {
    "step_scores",
    "num_steps",
    "mean_score",
    "min_score",
    "final_score",
    "degraded",
    "degraded_reason",
    "padded_steps",
}
AGGREGATES = ("mean_score", "min_score", "final_score")
QUESTION = "Tom has 3 bags of 4 apples. How many apples?"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.fixture(scope="module")
def folder(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small checkpoint with a chat template, as the published one has it."""
    copy = tmp_path_factory.mktemp("compat") / "qwen"
    shutil.copytree(checkpoint, copy)
    (copy / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return copy


@pytest.fixture(scope="module")
def old(folder: Path) -> ProcessRewardScorer:
    return ProcessRewardScorer(str(folder))


def item(solution: Any, question: Any = QUESTION) -> dict[str, Any]:
    return {"question": question, "solution": solution}


def reward(result: dict[str, Any]) -> float:
    """What the original's caller computes: it converts to float before it looks at `degraded`."""
    mean, lowest, final = (float(result.get(name, 0.0)) for name in AGGREGATES)
    steps = int(result.get("num_steps", 0))
    if bool(result.get("degraded", False)) or steps == 0:
        assert mean == lowest == final == 0.0, "a degraded result must not look good to callers that do not check"
        return 0.0
    scores = result.get("step_scores", []) or []
    prefix = next((at for at, score in enumerate(scores) if score <= 0.5), len(scores)) / len(scores)
    return 0.45 * final + 0.35 * mean + 0.20 * prefix


def check(result: dict[str, Any]) -> None:
    assert set(result) == KEYS
    assert all(type(result[name]) is float for name in AGGREGATES)
    assert all(type(score) is float and 0.0 <= score <= 1.0 for score in result["step_scores"])
    assert type(result["num_steps"]) is int
    assert result["padded_steps"] is False
    assert math.isfinite(reward(result))
    json.dumps(result, allow_nan=False)
    if result["degraded"]:
        assert [result[name] for name in AGGREGATES] == [0.0, 0.0, 0.0]
        assert result["degraded_reason"]
        assert len(result["step_scores"]) < max(1, result["num_steps"])
    else:
        scores = result["step_scores"]
        assert result["degraded_reason"] is None
        assert len(scores) == result["num_steps"] > 0
        assert result["mean_score"] == pytest.approx(sum(scores) / len(scores))
        assert (result["min_score"], result["final_score"]) == (min(scores), scores[-1])


def test_scores_are_those_of_a_plain_forward_pass(old: ProcessRewardScorer, checkpoint: Path) -> None:
    result = old.score_solution(f"  {QUESTION}\n", GOOD)
    check(result)
    tokenizer = PromptTokenizer.from_folder(checkpoint)
    prompt = Qwen().render(tokenizer, QUESTION, ["There are 3 bags.", "3 * 4 = 12.", "The answer is \\boxed{12}"])
    assert result["step_scores"] == pytest.approx(Reference(checkpoint).scores(prompt), abs=1e-5)
    assert result["degraded"] is False


def test_the_attributes_work_as_in_the_original(old: ProcessRewardScorer) -> None:
    """The original's computation, written against the attributes of the replacement."""
    assert old.tokenizer.encode(STEP_SEP_TOKEN, add_special_tokens=False) == [old.step_sep_id]
    body = STEP_SEP_TOKEN.join(extract_prm_steps(GOOD)) + STEP_SEP_TOKEN
    turns = [("system", DEFAULT_SYSTEM_PROMPT), ("user", QUESTION), ("assistant", body)]
    messages = [{"role": role, "content": content} for role, content in turns]
    text = old.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    encoded = old.tokenizer(text, return_tensors="pt", truncation=True, max_length=old.max_input_tokens)
    ids = encoded["input_ids"].to(old.device)
    with torch.no_grad():
        outputs = old.model(input_ids=ids, attention_mask=encoded["attention_mask"].to(old.device))
    assert outputs[0].shape == (*ids.shape, 2)
    right = outputs[0].softmax(-1)[ids == old.step_sep_id][:, 1]
    assert right.tolist() == pytest.approx(old.score_solution(QUESTION, GOOD)["step_scores"], abs=1e-5)


def test_any_family_of_probabilities() -> None:
    mini = ProcessRewardScorer("mini")
    check(mini.score_solution(QUESTION, GOOD))
    assert mini.tokenizer.convert_tokens_to_ids("<|step|>") == mini.step_sep_id
    with pytest.raises(OptionError, match="no system message"):
        mini.score_solution(QUESTION, GOOD, "Be terse.")


def test_other_scales_are_rejected(tmp_path: Path) -> None:
    """A margin may be negative, so the 0.0 of a degraded result would look good."""
    pure = write(tmp_path / "PURE-PRM-7B", "qwen2", "Qwen2ForTokenClassification", LINEAR, lm_head=False, quiet=[198])
    with pytest.raises(OptionError, match="not probabilities"):
        ProcessRewardScorer(str(pure))


def test_the_system_prompt_is_used(old: ProcessRewardScorer) -> None:
    same = old.score_solution(QUESTION, GOOD, system_prompt=DEFAULT_SYSTEM_PROMPT)
    other = old.score_solution(QUESTION, GOOD, system_prompt="Be terse.")
    assert same["step_scores"] == old.score_solution(QUESTION, GOOD)["step_scores"] != other["step_scores"]


@pytest.mark.parametrize("form", ["#### {}", "<answer>{}</answer>", "Final Answer: {}", "Answer: {}"])
def test_the_answer_is_judged(old: ProcessRewardScorer, form: str) -> None:
    right, wrong = (
        old.score_solution(QUESTION, f"Step 1: 3 * 4 = 12.\n{form.format(value)}") for value in ("12", "99999")
    )
    check(right)
    assert right["final_score"] != pytest.approx(wrong["final_score"], abs=1e-4)


# --- results without all scores ------------------------------------------------------------------------------------


def test_no_steps(old: ProcessRewardScorer) -> None:
    assert old.score_solution(QUESTION, "nothing here") == {
        "step_scores": [],
        "num_steps": 0,
        "mean_score": 0.0,
        "min_score": 0.0,
        "final_score": 0.0,
        "degraded": True,
        "degraded_reason": "no extractable steps",
        "padded_steps": False,
    }


def test_hard_solutions_neither_raise_nor_look_good(old: ProcessRewardScorer) -> None:
    assert len(HARD) > 100
    good = old.score_solution(QUESTION, GOOD)
    results = old.score_batch([item(GOOD), *map(item, HARD), item(GOOD)])
    assert results[0]["step_scores"] == pytest.approx(good["step_scores"], abs=1e-5)
    assert results[-1]["step_scores"] == pytest.approx(good["step_scores"], abs=1e-5)
    for solution, result in zip(HARD, results[1:-1], strict=True):
        check(result)
        if isinstance(solution, str):
            assert result["num_steps"] == len(extract_prm_steps(solution))
        if solution in NOTHING or any(solution is each for each in (*NOT_TEXT, TOO_LONG[0])):
            assert result["degraded"]
    assert sum(not result["degraded"] for result in results) > 60


def test_hard_solutions_get_alone_what_they_get_in_a_batch(old: ProcessRewardScorer) -> None:
    some = HARD[::4]
    for solution, together in zip(some, old.score_batch(list(map(item, some))), strict=True):
        alone = old.score_solution(QUESTION, solution)
        assert alone["step_scores"] == pytest.approx(together.pop("step_scores"), abs=1e-5)
        assert (alone["num_steps"], alone["degraded_reason"]) == (together["num_steps"], together["degraded_reason"])


@pytest.mark.parametrize(
    ("bad", "steps", "reason"),
    [
        (item(GOOD, "\ud800"), 3, "surrogate"),
        (item(GOOD, None), 3, "The question is NoneType"),
        (item(GOOD, 5), 3, "The question is int"),
        (item(GOOD, b"?"), 3, "The question is bytes"),
        (item(GOOD, ["?"]), 3, "The question is list"),
        (item("Step 1: \ud800\nStep 2: b"), 2, "surrogate"),
        (item(None), 0, "but got NoneType"),
        ({"question": QUESTION}, 0, "not a dictionary with `question` and `solution`"),
        ({}, 0, "not a dictionary"),
        (None, 0, "not a dictionary"),
        ((QUESTION, GOOD), 0, "not a dictionary"),
        (item(GOOD, "word " * 5000), 3, "The question alone takes"),
    ],
)
def test_a_bad_item_is_degraded_alone(old: ProcessRewardScorer, bad: Any, steps: int, reason: str) -> None:
    before, result, after = old.score_batch([item(GOOD), bad, item(GOOD)])
    check(result)
    assert result["degraded"] is True
    assert result["num_steps"] == steps
    assert reason in result["degraded_reason"]
    assert [before["degraded"], after["degraded"]] == [False, False]


def test_steps_over_the_limit(folder: Path, old: ProcessRewardScorer, caplog: pytest.LogCaptureFixture) -> None:
    full = old.score_solution(QUESTION, GOOD)
    cut = ProcessRewardScorer(str(folder), torch.device("cpu"), True, torch.float32, 55)
    result = cut.score_solution(QUESTION, GOOD)
    check(result)
    assert result["degraded"] is True
    assert "2 of 3 steps end past the limit of 55 tokens" in result["degraded_reason"]
    assert result["degraded_reason"] in caplog.text
    assert result["num_steps"] == 3
    assert result["step_scores"] == pytest.approx(full["step_scores"][:1], abs=1e-5)
    tiny = ProcessRewardScorer(str(folder), max_input_tokens=45).score_solution(QUESTION, GOOD)
    check(tiny)
    assert (tiny["step_scores"], tiny["num_steps"], tiny["degraded"]) == ([], 3, True)


def test_a_score_that_is_not_finite_ends_the_scores(checkpoint: Path, old: ProcessRewardScorer) -> None:
    broken = ProcessRewardScorer(str(checkpoint))
    (zebra,) = PromptTokenizer.from_folder(checkpoint).encode(" zebra")
    weight = broken._scorer.engine.backbone.embed_tokens.weight
    weight[zebra] = float("nan")
    bad, good = broken.score_batch([item(GOOD.replace("3 * 4", "a zebra")), item(GOOD)])
    check(bad)
    assert bad["degraded"] is True
    assert bad["num_steps"] == 3
    expected = old.score_solution(QUESTION, GOOD)["step_scores"]
    assert bad["step_scores"] == pytest.approx(expected[:1], abs=1e-5)
    assert good["step_scores"] == pytest.approx(expected, abs=1e-5)
    weight.fill_(float("nan"))
    none = broken.score_solution(QUESTION, GOOD)
    check(none)
    assert (none["step_scores"], none["num_steps"], none["degraded"]) == ([], 3, True)


def test_an_error_in_the_forward_pass_degrades_only_its_item(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The tokenizer gives `~` an id that the model has no embedding for: only texts that contain it fail."""
    folder = write_qwen_checkpoint(tmp_path / "small", vocab_size=300, bos_token_id=None, eos_token_id=None)
    layout = json.loads(byte_tokenizer_json("<|im_start|>", "<|im_end|>", STEP_SEP_TOKEN))
    layout["model"]["vocab"]["~"] = 500
    (folder / "tokenizer.json").write_text(json.dumps(layout))
    scorer = ProcessRewardScorer(str(folder))
    items = [item(GOOD.replace("12", str(number))) for number in range(7)]
    expected = scorer.score_batch(items)
    items.insert(3, item("Step 1: a\nStep 2: ~"))
    with caplog.at_level(logging.WARNING, "surefoot"):
        results = scorer.score_batch(items)
    bad = results.pop(3)
    check(bad)
    assert (bad["degraded"], bad["num_steps"], bad["step_scores"]) == (True, 2, [])
    assert bad["degraded_reason"].startswith("forward error: The tokenizer produced token 500")
    for result, alone in zip(results, expected, strict=True):
        check(result)
        assert result["step_scores"] == pytest.approx(alone["step_scores"], abs=1e-5)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "produced token 500" in record.getMessage()


def test_a_model_that_always_fails_degrades_everything(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = ProcessRewardScorer(str(checkpoint))
    broken._scorer.engine.backbone.norm.weight = nn.Parameter(torch.ones(3), requires_grad=False)
    results = broken.score_batch([item(GOOD), item(""), item(GOOD)])
    for result in results:
        check(result)
        assert result["degraded"] is True
    assert [result["num_steps"] for result in results] == [3, 0, 3]
    assert results[0]["degraded_reason"].startswith("forward error: ")
    assert len([record for record in caplog.records if "forward pass failed" in record.getMessage()]) == 2
