"""Search: candidates that grow cost only what is new, and score as from scratch."""

from __future__ import annotations

import random

import pytest

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from surefoot.errors import InputError
from surefoot.scoring.local import load_local
from surefoot.scoring.session import Session

QUESTION = "Tom has 3 bags of 4 apples and eats 2. How many are left?"


def check(scorer: surefoot.Scorer, session: Session, candidates: list[list[str]]) -> None:
    for steps, found in zip(candidates, session.score(candidates), strict=True):
        assert found.step_scores == pytest.approx(scorer.score(QUESTION, steps).step_scores, abs=1e-5)
        assert found.status == ("scored" if steps else "unscored")


def test_one_more_step_costs_its_own_tokens(scorer: surefoot.Scorer) -> None:
    session = scorer.session(CARD_QUESTION)
    for count, computed in zip(range(1, 5), (198, 334, 387, 452), strict=True):
        (result,) = session.score([CARD_STEPS[:count]])
        assert session.computed_tokens == computed
        assert result.step_scores == pytest.approx(
            scorer.score(CARD_QUESTION, CARD_STEPS[:count]).step_scores, abs=1e-5
        )
    session.score([CARD_STEPS, CARD_STEPS[:2]])
    assert session.computed_tokens == 452, "what was scored before costs nothing"


def test_a_beam_search(scorer: surefoot.Scorer) -> None:
    rng = random.Random(0)
    words = ["add", "12", "to", "3", "apples", "=", "15", "so", "then"]
    session = scorer.session(QUESTION)
    beams: list[list[str]] = [[]]
    for _ in range(5):
        candidates = [[*beam, " ".join(rng.choices(words, k=rng.randint(1, 12)))] for beam in beams for _ in range(4)]
        check(scorer, session, candidates)
        beams = rng.sample(candidates, 2)


@pytest.mark.parametrize("kept_tokens", [1, 60, 150])
def test_a_small_memory_forgets_and_stays_right(scorer: surefoot.Scorer, kept_tokens: int) -> None:
    session = scorer.session(QUESTION, max_bytes=kept_tokens * scorer.engine.token_bytes)
    rng = random.Random(1)
    pool = [[f"step {a}", f"then {b}", "done"][: rng.randint(1, 3)] for a in range(6) for b in range(4)]
    for _ in range(15):
        candidates = rng.sample(pool, 3)
        check(scorer, session, candidates)
        longest = max(scorer.score(QUESTION, steps).tokens for steps in candidates)
        assert session.caches[0].slots_used <= max(kept_tokens, longest)


def test_an_unfinished_thought_is_scored_on_request(scorer: surefoot.Scorer) -> None:
    thought = "<think>\n3 * 4 = 12.\n12 - 2"
    (skipped,) = scorer.session(QUESTION).score([thought])
    assert (skipped.steps, skipped.skipped) == ((), ((0, len(thought)),))
    (scored,) = scorer.session(QUESTION, surefoot.ReadOptions(thinking="all")).score([thought])
    assert [step.text for step in scored.steps] == ["3 * 4 = 12.", "12 - 2"]


def test_memory_is_reused(scorer: surefoot.Scorer) -> None:
    session = scorer.session(QUESTION, max_bytes=200 * scorer.engine.token_bytes)
    for number in range(60):
        session.score([[f"try number {number}"]])
    assert session.caches[0].slots_allocated == 200


def test_the_branch_used_longest_ago_goes_first(scorer: surefoot.Scorer) -> None:
    tokens = scorer.score(QUESTION, ["3 * 4 = 12"]).tokens
    session = scorer.session(QUESTION, max_bytes=(tokens + 15) * scorer.engine.token_bytes)
    session.score([["3 * 4 = 12"]])
    session.score([["3 + 4 = 7 is wrong"]])
    session.score([["3 * 4 = 12"]])
    before = session.computed_tokens
    session.score([["A step of ten tokens or so, which needs room."]])
    after_new = session.computed_tokens
    session.score([["3 * 4 = 12"]])
    assert session.computed_tokens == after_new > before, "used last, so it is still there"
    session.score([["3 + 4 = 7 is wrong"]])
    assert session.computed_tokens > after_new, "used longest ago, so it had to go"


def test_running_out_of_memory_in_a_session(checkpoint: object) -> None:
    import torch

    scorer = load_local(str(checkpoint))
    expected = scorer.score(QUESTION, ["3 * 4 = 12", "12 - 2 = 10"]).step_scores

    def full(module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor]) -> None:
        if kwargs["inputs_embeds"].shape[1] > 40:
            raise torch.OutOfMemoryError("CUDA out of memory")

    scorer.engine.backbone.register_forward_pre_hook(full, with_kwargs=True)
    (found,) = scorer.session(QUESTION).score([["3 * 4 = 12", "12 - 2 = 10"]])
    assert found.step_scores == pytest.approx(expected, abs=1e-5)
    assert scorer.engine.budget < 512


def test_two_sessions_and_other_calls_do_not_meet(scorer: surefoot.Scorer) -> None:
    first, second = scorer.session(QUESTION), scorer.session(CARD_QUESTION)
    first.score([["3 * 4 = 12"]])
    second.score([CARD_STEPS[:1]])
    scorer.score("Another question", "Another solution")
    check(scorer, first, [["3 * 4 = 12", "12 - 2 = 10"], []])


def test_text_over_length_and_warnings_as_ever(scorer: surefoot.Scorer) -> None:
    session = scorer.session(QUESTION)
    text, long, empty = session.score(["Step 1: 12 <extra_0>\nFinal Answer: 12", ["word " * 5000], ""])
    assert [step.text for step in text.steps] == ["12 <extra_0>", "The answer is \\boxed{12}"]
    assert text.warnings
    assert long.steps[0].status == "over_length"
    assert empty.reason == "The solution has no steps."
    with pytest.raises(InputError, match="takes a list of candidates"):
        session.score("Step 1: 12")
    with pytest.raises(InputError, match="The question is int"):
        scorer.session(3)  # type: ignore[arg-type]
