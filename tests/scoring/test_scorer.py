"""Scoring: equal to a plain reference, and honest about what could not be scored."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from helpers.reference import Reference
from surefoot.core.options import ReadOptions
from surefoot.errors import InputError, OptionError, SurefootError
from surefoot.families.qwen import Qwen
from surefoot.scoring.local import load_local

QUESTION = "Tom has 3 bags of 4 apples and eats 2. How many are left?"
SOLUTION = "Let us see.\nStep 1: 3 * 4 = 12 apples.\nStep 2: 12 - 2 = 10.\nFinal Answer: 10\nHope that helps!"


def random_items(count: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    rng = random.Random(seed)
    words = ["we", "add", "apples", "and", "12", "*", "3", "=", "36", "half", "is", "18", "\\frac{1}{2}", "x^2"]
    return [
        (
            " ".join(rng.choices(words, k=rng.randint(1, 40))),
            [" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(rng.randint(1, 7))],
        )
        for _ in range(count)
    ]


def test_scores_equal_a_plain_reference(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    reference = Reference(checkpoint)
    items = [(CARD_QUESTION, list(CARD_STEPS)), *random_items(30)]
    for (question, steps), result in zip(items, scorer.score_many(items), strict=True):
        expected = reference.scores(scorer.family.render(scorer.tokenizer, question, steps))
        assert result.step_scores == pytest.approx(expected, abs=1e-5)
        assert len(expected) == len(steps)
    spread = [score for result in scorer.score_many(items) for score in result.step_scores if score is not None]
    assert min(spread) < 0.05 < 0.5 < max(spread), "scores that hardly differ would prove little"


def test_a_whole_result(scorer: surefoot.Scorer) -> None:
    result = scorer.score(QUESTION, SOLUTION)
    assert [step.text for step in result.steps] == ["3 * 4 = 12 apples.", "12 - 2 = 10.", "The answer is \\boxed{10}"]
    assert [step.kind for step in result.steps] == ["body", "body", "answer"]
    assert SOLUTION[result.steps[1].start : result.steps[1].end] == "12 - 2 = 10."
    assert SOLUTION[result.steps[2].start : result.steps[2].end] == "Final Answer: 10"
    assert [SOLUTION[span.start : span.end] for span in result.outside] == ["Let us see.", "Hope that helps!"]
    assert result.unscored_chars == len("Let us see.") + len("Hope that helps!")
    assert result.answer == "10"
    assert result.split == "steps"
    assert result.status == "scored"
    assert result.reason is None
    assert result.warnings == ()
    scores = [step.score for step in result.steps]
    assert all(score is not None and 0 < score < 1 for score in scores)
    assert result.step_scores == scores
    assert result.mean == pytest.approx(sum(s for s in scores if s is not None) / 3)
    assert result.final == scores[-1]
    assert result.seconds > 0
    assert result.tokens > 40


def test_text_and_its_steps_give_the_same_scores(scorer: surefoot.Scorer) -> None:
    text = scorer.score(QUESTION, SOLUTION)
    steps = scorer.score(QUESTION, [step.text for step in text.steps])
    assert steps.step_scores == text.step_scores
    bare = scorer.score(QUESTION, SOLUTION, ReadOptions(closing=False))
    assert bare.step_scores == pytest.approx(text.step_scores[:2], abs=1e-5)


@pytest.mark.parametrize("thought", ["<think>\nIs it 9?\n</think>\n", "Is it 9?</think>", "<think></think>\n\n"])
def test_thinking_is_skipped_by_default(scorer: surefoot.Scorer, thought: str) -> None:
    plain, found = scorer.score(QUESTION, SOLUTION), scorer.score(QUESTION, thought + SOLUTION)
    assert found.step_scores == plain.step_scores
    assert [(step.start - len(thought), step.text) for step in found.steps] == [
        (step.start, step.text) for step in plain.steps
    ]
    assert found.skipped == ((0, len(thought.rstrip())),)
    assert found.warnings == ()


@pytest.mark.parametrize("text", ["<think>\nIs it 9?\nIt is 10.", "<think>\nIs it 9?\n</think>\n<answer>10</answer>"])
def test_a_warning_says_that_all_reasoning_was_skipped(scorer: surefoot.Scorer, text: str) -> None:
    found = scorer.score(QUESTION, text)
    assert not any(step.kind == "body" for step in found.steps)
    assert found.warnings == ("No reasoning is left to score: it is all in the part that the option `thinking` skips.",)
    assert scorer.score(QUESTION, text, ReadOptions(thinking="all")).warnings == ()
    assert scorer.score(QUESTION, text, ReadOptions(thinking="only")).steps


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(OptionError, match=r"^thinking='none' is unknown\. Choose one of: skip, only, all\.$"):
        ReadOptions(thinking="none")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"^thinking is 'none'; choose one of skip, only, all\.$"):
        surefoot.split("a", thinking="none")


def test_a_system_message_of_ones_own(scorer: surefoot.Scorer) -> None:
    own = scorer.score(QUESTION, SOLUTION, ReadOptions(system="Be kind."))
    assert own.step_scores != scorer.score(QUESTION, SOLUTION).step_scores


@pytest.mark.parametrize("limit", [10, 60, 200, 334, 387, 451, 452])
def test_over_long_solutions_keep_what_fits(checkpoint: Path, scorer: surefoot.Scorer, limit: int) -> None:
    whole = scorer.score(CARD_QUESTION, CARD_STEPS)
    result = load_local(checkpoint, max_tokens=limit).score(CARD_QUESTION, CARD_STEPS)
    fits = sum(read < limit for read in (197, 333, 386, 451))
    assert [step.status for step in result.steps] == ["scored"] * fits + ["over_length"] * (4 - fits)
    assert result.step_scores[:fits] == pytest.approx(whole.step_scores[:fits], abs=1e-5)
    assert result.step_scores[fits:] == [None] * (4 - fits)
    assert result.status == ("scored" if fits == 4 else "partial" if fits else "unscored")
    assert (result.mean is None) == (fits < 4)
    if limit < 147:
        assert result.reason == f"The question alone takes 147 tokens; the limit is {limit}."
    elif fits < 4:
        assert result.reason == f"{4 - fits} of 4 steps end past the limit of {limit} tokens."
    else:
        assert result.reason is None


def test_the_limit_is_the_models_context(scorer: surefoot.Scorer) -> None:
    assert scorer.max_tokens == 4096
    result = scorer.score("q", ["word " * 3000, "word " * 3000])
    assert [step.status for step in result.steps] == ["scored", "over_length"]


@pytest.mark.parametrize("solution", ["", "   \n ", [], ["", " "]])
def test_an_empty_solution_has_no_scores_and_a_reason(scorer: surefoot.Scorer, solution: str | list[str]) -> None:
    result = scorer.score(QUESTION, solution)
    assert result.steps == ()
    assert result.status == "unscored"
    assert result.reason == "The solution has no steps."
    assert result.mean is result.min is result.final is result.product is None
    assert result.first_error() is None


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((3, "x"), "Item 1: The question is int"),
        (("q", None), "Item 1: .*NoneType"),
        (("q", ["a", 5]), "Item 1: .*int"),
        (("q", b"text"), "Item 1: .*bytes"),
        ("q and a", "Item 1: Expected a pair"),
        (("half \ud800", "x"), "Item 1: The question contains half of a surrogate pair"),
        (("q", ["half \udfff"]), "Item 1: The solution contains half of a surrogate pair"),
        (("q", "a", "b"), "Item 1: Expected a pair"),
    ],
)
def test_items_that_are_no_text_are_named(scorer: surefoot.Scorer, item: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scorer.score_many([(QUESTION, SOLUTION), item])  # type: ignore[list-item]


def test_an_unknown_split_rule(scorer: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match="auto"):
        ReadOptions(split="verses")  # type: ignore[arg-type]


def test_nothing_to_score_is_no_error(scorer: surefoot.Scorer) -> None:
    assert scorer.score_many([]) == []


def altered_head(checkpoint: Path, folder: Path, **tensors: torch.Tensor) -> Path:
    shutil.copytree(checkpoint, folder)
    content = load_file(folder / "model.safetensors")
    content |= {f"score.{name[1:].replace('_', '.')}": value for name, value in tensors.items()}
    save_file(content, folder / "model.safetensors")
    return folder


def test_a_score_that_is_no_number_is_not_given(checkpoint: Path, tmp_path: Path) -> None:
    folder = altered_head(checkpoint, tmp_path / "nan", _2_bias=torch.tensor([0.0, math.nan]))
    result = load_local(folder).score(QUESTION, SOLUTION)
    assert {step.status for step in result.steps} == {"not_finite"}
    assert result.step_scores == [None, None, None]
    assert result.reason == "The model gave a score that is not a finite number."


@pytest.mark.parametrize("gap", [18.0, 30.0, 200.0])
def test_saturated_scores_stay_with_their_steps(checkpoint: Path, tmp_path: Path, gap: float) -> None:
    """In half precision a probability becomes exactly 0 or 1; code that looks for `!= 0` then misplaces the scores."""
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(64, generator=generator)
    steep = torch.stack([direction, -direction])
    scores: list[list[float | None]] = []
    for scale in (1.0, gap):
        folder = altered_head(checkpoint, tmp_path / f"steep{scale}", _2_weight=steep * scale, _2_bias=torch.zeros(2))
        result = load_local(folder).score_many(random_items(20, seed=3))
        scores.append([score for one in result for score in one.step_scores])
    mild, hard = scores
    assert len(mild) == len(hard) == sum(len(steps) for _, steps in random_items(20, seed=3))
    assert 0.0 in [round(score, 6) for score in hard if score is not None]
    for soft, saturated in zip(mild, hard, strict=True):
        assert soft is not None
        assert saturated is not None
        assert (soft > 0.5) == (saturated > 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_head_computes_in_float32(dtype: torch.dtype) -> None:
    """Logits 30 apart: float16 would round the loser to 0, float32 tells 1e-13 from 1e-14."""
    head = {
        "score.0.weight": torch.eye(2),
        "score.0.bias": torch.zeros(2),
        "score.2.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        "score.2.bias": torch.zeros(2),
    }
    hidden = torch.tensor([[30.0, 0.0], [0.0, 30.0], [32.0, 0.0]], dtype=dtype).float()
    read = Qwen().read(head, hidden)
    assert read.tolist() == pytest.approx([1 / (1 + math.exp(30)), 1.0, 1 / (1 + math.exp(32))], rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_saturation_in_half_precision(checkpoint: Path, tmp_path: Path, dtype: str) -> None:
    """Through the whole engine: logits hundreds apart, one score a step, each on the side of its float32 score."""
    direction = torch.randn(64, generator=torch.Generator().manual_seed(1))
    steep = torch.stack([direction, -direction]) * 60
    folder = altered_head(checkpoint, tmp_path / "steep", _2_weight=steep, _2_bias=torch.zeros(2))
    items = random_items(20, seed=3)
    full, half = (load_local(folder, dtype=name).score_many(items) for name in ("float32", dtype))
    pairs = [
        (one, other)
        for before, after in zip(full, half, strict=True)
        for one, other in zip(before.step_scores, after.step_scores, strict=True)
    ]
    assert all(one is not None and other is not None for one, other in pairs)
    sure = [(one, other) for one, other in pairs if one is not None and abs(one - 0.5) > 0.499]
    assert len(sure) > len(pairs) / 2
    assert sum((one > 0.5) == (other > 0.5) for one, other in sure if other is not None) >= 0.95 * len(sure)


def test_running_out_of_memory_halves_the_batch(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    scorer = load_local(checkpoint)
    items = random_items(40)
    expected = [result.step_scores for result in scorer.score_many(items)]
    room = 100

    def full(module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor]) -> None:
        if kwargs["inputs_embeds"].shape[:2].numel() > room:
            raise torch.OutOfMemoryError("CUDA out of memory")

    hook = scorer.engine.backbone.register_forward_pre_hook(full, with_kwargs=True)
    found = [result.step_scores for result in scorer.score_many(items)]
    assert scorer.engine.budget <= room, "the scorer remembers what fits"
    assert "Out of memory" in caplog.text
    for before, after in zip(expected, found, strict=True):
        assert after == pytest.approx(before, abs=1e-5)
    room = 0
    with pytest.raises(SurefootError, match="Not even a pack of .* tokens fits into memory .*Lower `max_tokens`"):
        scorer.score_many(items)
    hook.remove()


def test_importing_surefoot_is_cheap() -> None:
    """No torch, no transformers, and under 0.3 s of CPU time, which other processes do not add to."""
    code = (
        "import sys, time; start = time.process_time(); import surefoot;"
        "print(time.process_time() - start, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    best = math.inf
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        seconds, *imported = done.stdout.split()
        assert imported == ["False", "False"]
        best = min(best, float(seconds))
    assert best < 0.3


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        _ = surefoot.lode


def test_a_system_message_is_text_too() -> None:
    with pytest.raises(OptionError, match="system contains half of a surrogate pair"):
        ReadOptions(system="\ud800")
