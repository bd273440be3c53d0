"""Critics on servers: a real llama.cpp, and a scripted one that sends every malformed reply we could think of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.llamacpp import llamacpp_server, words_tokenizer_json, write_gguf
from helpers.policies import END, START, Table, write_table_policy
from helpers.scripted_server import Answer, Asked, scripted

QUESTION = "A loaf costs $4. How much are 5 loaves?"
STEPS = ["Each loaf costs $4.", "5 * 4 = 20."]


def chat(content: Any, finish: str = "stop", **message: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": content} | message, "finish_reason": finish}
    return Answer({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})


def judge(answer: Answer, **options: Any) -> surefoot.SolutionScore:
    def script(asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            return Answer({"data": [{"id": "judge", "owned_by": "system"}]})
        return answer

    with scripted(script) as server:
        given: dict[str, Any] = {"critic": "processbench", "patience": 0.0, "timeout": 5.0} | options
        return surefoot.load(server.url, **given).score(QUESTION, STEPS)


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ("\\boxed{1}", [1.0, 0.0]),
        ("\\boxed{0}", [0.0, None]),
        ("\\boxed{-1}", [1.0, 1.0]),
        ("Maybe \\boxed{0}. No: \\boxed{ 1 }", [1.0, 0.0]),
        ("<think>\\boxed{0}</think>All good: \\boxed{-1}", [1.0, 1.0]),
        ("\\boxed{\\text{-1}}", [1.0, 1.0]),
    ],
)
def test_the_last_index_after_the_thinking_counts(reply: str, scores: list[float | None]) -> None:
    assert judge(chat(reply)).step_scores == scores


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (chat(""), "no_verdict"),
        (chat("All steps are right."), "no_verdict"),
        (chat("\\boxed{}"), "no_verdict"),
        (chat("\\boxed{1"), "no_verdict"),
        (chat("\\boxed{two}"), "no_verdict"),
        (chat("\\boxed{2}"), "no_verdict"),
        (chat("\\boxed{-2}"), "no_verdict"),
        (chat("\\boxed{1.5}"), "no_verdict"),
        (chat("\\boxed{0, 1}"), "no_verdict"),
        (chat("\\boxed{99999999999999999999}"), "no_verdict"),
        (chat("<think>The first is wrong: \\boxed{0}</think>"), "no_verdict"),
        (chat("<think>The first is wrong: \\boxed{0}"), "no_verdict"),
        (chat("\\boxed{0}", "length"), "cut_off"),
        (chat("\\boxed{0}", "content_filter"), "generator_error"),
        (chat(None, refusal="I cannot."), "generator_error"),
        (chat(None), "no_verdict"),
        (chat(7), "generator_error"),
        (Answer({"choices": []}), "generator_error"),
        (Answer({}), "generator_error"),
        (Answer([]), "generator_error"),
        (Answer(text="<html>Bad gateway</html>"), "generator_error"),
        (Answer(text="{"), "generator_error"),
        (Answer({"error": {"message": "overloaded"}}, 503), "generator_error"),
        (Answer({"error": {"message": "bad"}}, 400), "generator_error"),
        (Answer(drop=True), "generator_error"),
    ],
)
def test_a_malformed_reply_is_no_number(answer: Answer, status: str) -> None:
    result = judge(answer)
    assert result.step_scores == [None, None]
    assert {step.status for step in result.steps} == {status}
    assert result.reason


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ("It holds.\nVerdict: Yes", [1.0, 1.0]),
        ("It fails.\nVerdict: **No**", [0.0, 0.0]),
        ("Verdict: No, wait.\n\nVerdict: Yes", [1.0, 1.0]),
        ("Yes", [None, None]),
        ("Verdict: Yesterday", [None, None]),
        ("<think>Verdict: Yes</think> I do not know.", [None, None]),
    ],
)
def test_without_probabilities_the_last_verdict_in_the_text_counts(reply: str, scores: list[float | None]) -> None:
    assert judge(chat(reply), critic="yes-no").step_scores == scores


def test_a_critic_that_needs_token_ids_says_so_before_anything_is_generated() -> None:
    with pytest.raises(surefoot.errors.OptionError, match="needs the model's tokenizer"):
        judge(chat("never"), critic="genprm")


TABLE: Table = {
    START: {"Good": 1.0},
    "Good": {".\n\n": 1.0},
    ".\n\n": {"Verdict": 1.0},
    "Verdict": {":": 1.0},
    ":": {" Yes": 0.55, " No": 0.35, "Good": 0.1},
    " Yes": {END: 1.0},
    " No": {END: 1.0},
}


def test_a_real_llamacpp_server_gives_the_scores_of_the_model_in_process(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    words = ("Good", ".\n\n", "Verdict", ":", " Yes", " No")
    folder = write_table_policy(tmp_path / "judge", TABLE, tokenizer=words_tokenizer_json(*words))
    expected = surefoot.load(folder, critic="yes-no").score(QUESTION, STEPS)
    assert expected.step_scores == pytest.approx([0.55 / 0.9] * 2, abs=1e-5)
    with llamacpp_server(write_gguf(folder, tmp_path / "judge.gguf"), context=1024) as url:
        there = surefoot.load(url, critic="yes-no").score(QUESTION, STEPS)
        here = surefoot.load(folder, critic="yes-no", generator=url).score(QUESTION, STEPS)
    for result in (there, here):
        assert result.step_scores == pytest.approx(expected.step_scores, abs=1e-4)
        assert result.steps[0].label_mass == pytest.approx(0.9, abs=1e-4)
