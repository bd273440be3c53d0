"""Critics on servers: a real llama.cpp, and a scripted one that sends every malformed reply we could think of."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.critic_models import DYVE, write_r1
from helpers.llamacpp import llamacpp_server, words_tokenizer_json, write_gguf
from helpers.policies import END, START, Table, write_table_policy
from helpers.scripted_server import Answer, Asked, scripted
from surefoot.cli.main import main

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


def by_question(asked: Asked) -> Answer:
    """A judge that finds an error in paragraph 1 of every solution about loaves, and none in others."""
    if asked.path == "/v1/models":
        return Answer({"data": [{"id": "judge", "owned_by": "system"}]})
    return chat("\\boxed{1}" if "loaves" in asked.body["messages"][0]["content"] else "\\boxed{-1}")


def test_compare_puts_a_model_and_a_chat_model_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "scores.sqlite"))
    rows = [(QUESTION, 1), (f"{QUESTION} Hurry.", 0), ("What is 1 + 1?", -1)]
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(
            json.dumps({"id": str(at), "problem": problem, "steps": STEPS, "label": label}) + "\n"
            for at, (problem, label) in enumerate(rows)
        )
    )
    with scripted(by_question) as server:
        options = ["--data", str(data), "--quiet", "--draws", "0", "--json"]
        assert (
            main(["compare", "mini", f"processbench@{server.url}", *options, "--critic-option", "max_tokens=77"]) == 0
        )
        found = json.loads(capsys.readouterr().out)
        assert main(["compare", "mini", server.url, "--critic", "processbench", *options]) == 2
        error = capsys.readouterr().err
        asked = server.to("/v1/chat/completions")
    mini, judge = found["scorers"]
    assert (mini["name"], judge["name"]) == ("mini", "judge")
    # One of two errors is found, and the correct solution is accepted: 2 * 0.5 * 1 / 1.5.
    assert judge["result"]["f1"] == pytest.approx(2 / 3)
    assert [each.body["max_tokens"] for each in asked] == [77] * 3
    assert "processbench@http://" in error


def test_critics_are_named_in_a_list() -> None:
    with scripted(by_question) as server:
        both = surefoot.load(["mini", f"processbench@{server.url}"], critic_options={"max_tokens": 77}, missing="skip")
        result = both.score(QUESTION, STEPS)
        copy = pickle.loads(pickle.dumps(both))
        assert copy.fingerprint == both.fingerprint
        assert [each.body["max_tokens"] for each in server.to("/v1/chat/completions")] == [77]
    assert [step.members[1].score for step in result.steps] == [1.0, 0.0]
    assert [step.members[1].model for step in result.steps] == ["judge", "judge"]


@pytest.mark.parametrize("named", [True, False], ids=["as the model", "as the generator"])
def test_the_key_of_a_critic_comes_from_the_variable_of_its_server(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generation servers read OPENAI_API_KEY, and so does a process that unpickles a critic on one."""

    def script(asked: Asked) -> Answer:
        return by_question(asked) if asked.key == "Bearer sesame-42" else Answer({"error": {"message": "no"}}, 401)

    for variable in ("OPENAI_API_KEY", "SUREFOOT_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with scripted(script) as server:
        where: dict[str, Any] = {} if named else {"generator": server.url}
        model: str | Path = server.url if named else write_table_policy(tmp_path / "model", TABLE)
        given = surefoot.load(model, critic="processbench", api_key="sesame-42", **where)
        with pytest.raises(surefoot.errors.OptionError, match="Set the variable OPENAI_API_KEY"):
            pickle.dumps(given)
        monkeypatch.setenv("OPENAI_API_KEY", "sesame-42")
        content = pickle.dumps(given)
        assert b"sesame" not in content
        del given
        assert pickle.loads(content).score(QUESTION, STEPS).step_scores == [1.0, 0.0]


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        ("processbench@{url}", {"critic": "yes-no"}, "names the critic 'processbench', and critic='yes-no' another"),
        ("procesbench@{url}", {}, "critic='procesbench' is unknown. Choose one of: .*processbench"),
        ("mini", {"critic": "processbench"}, "mini is a PRM: .*such as processbench@http"),
        (["mini", "{url}"], {"critic": "processbench"}, "Name the critic with its member"),
        ("dyve@{url}", {"tokenizer": "{folder}"}, "sends prompts as token ids, and this server takes none"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_generated(
    model: str | list[str], options: dict[str, str], problem: str, tmp_path: Path
) -> None:
    folder = write_r1(tmp_path / "model", DYVE)
    with scripted(by_question) as server:

        def filled(text: str) -> str:
            return text.replace("{url}", server.url).replace("{folder}", str(folder))

        given = filled(model) if isinstance(model, str) else [filled(each) for each in model]
        with pytest.raises(surefoot.errors.OptionError, match=problem):
            surefoot.load(given, **{name: filled(value) for name, value in options.items()})  # type: ignore[arg-type]
        assert server.to("/v1/chat/completions") == []


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
