"""Probabilities of label tokens: the model's own, whichever backend computes them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.llamacpp import llamacpp_server, words_tokenizer_json, write_gguf
from helpers.policies import END, START, Table, write_table_policy
from helpers.scripted_server import Answer, Asked, Script, scripted
from surefoot.core.generation import Continuation, GenerationRequest
from surefoot.generate.labels import MISSING
from surefoot.generate.loading import load_generator
from surefoot.generate.local import LocalGenerator

PROBABILITIES: dict[str | bytes, float] = {" Yes": 0.6, " No": 0.3, "Add": 0.1}
TABLE: Table = {START: {"Add": 1.0}, "Add": {"?": 1.0}, "?": PROBABILITIES, " Yes": {END: 1.0}, " No": {END: 1.0}}
WORDS = ("Add", "?", " Yes", " No")
LABELS = (" Yes", " No")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table_policy(
        tmp_path_factory.mktemp("labels") / "table", TABLE, tokenizer=words_tokenizer_json(*WORDS)
    )


def read(generator: Any, *requests: GenerationRequest) -> list[Continuation]:
    async def run() -> list[Continuation]:
        try:
            found = await asyncio.gather(*map(generator.generate, requests))
            return [generation.continuations[0] for generation in found]
        finally:
            await generator.close()

    return asyncio.run(run())


def expect(logprobs: tuple[float, ...]) -> None:
    assert [math.exp(each) for each in logprobs] == pytest.approx([PROBABILITIES[label] for label in LABELS], abs=1e-5)


def test_a_model_in_this_process_reads_the_probabilities_of_its_table(folder: Path) -> None:
    generator = LocalGenerator(folder, system="")
    asked = GenerationRequest("Is it?", "Add?", labels=LABELS)
    other = GenerationRequest("A longer question, in the same batch?", "Add?", labels=LABELS)
    text = GenerationRequest("Is it?", max_tokens=2)
    first, second, written = read(generator, asked, other, text)
    expect(first.label_logprobs)
    expect(second.label_logprobs)
    assert (first.text, first.tokens, first.end) == ("", 0, "answer")
    assert (written.text, written.label_logprobs) == ("Add?", ())


def test_token_ids_replace_the_question(folder: Path) -> None:
    generator = LocalGenerator(folder, system="")
    (ids,) = generator.tokenizer.encode("Add?")
    (found,) = read(generator, GenerationRequest("", prompt_ids=tuple(ids), labels=LABELS))
    expect(found.label_logprobs)


def test_several_stop_strings_end_a_continuation_at_the_first(folder: Path) -> None:
    generator = LocalGenerator(folder, system="")
    (found,) = read(generator, GenerationRequest("Is it?", step_end=("No", "?", "never"), max_tokens=9))
    assert (found.text, found.end) == ("Add?", "step")


@pytest.mark.parametrize("labels", [(" Yes No", " No"), (" Yes", " Yes"), ("", " No")])
def test_labels_that_are_not_different_single_tokens_are_an_error(labels: tuple[str, ...], folder: Path) -> None:
    (found,) = read(LocalGenerator(folder, system=""), GenerationRequest("Is it?", labels=labels))
    assert found.end == "error"
    assert "not different single tokens" in str(found.reason)


@pytest.fixture(scope="module")
def llamacpp(folder: Path) -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    with llamacpp_server(write_gguf(folder, folder.parent / "table.gguf")) as url:
        yield url


@pytest.mark.parametrize("local", [True, False], ids=["tokenizer here", "tokenizer there"])
def test_a_real_llamacpp_server_reads_the_same(local: bool, llamacpp: str, folder: Path) -> None:
    generator = load_generator(llamacpp, system="", tokenizer=folder if local else None)
    (found,) = read(generator, GenerationRequest("Is it?", "Add?", labels=LABELS))
    assert found.reason is None
    expect(found.label_logprobs)


def server_of(dialect: str, answer: Answer | Script, endpoint: str) -> Script:
    def script(asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            return Answer({"data": [{"id": "judge", "owned_by": dialect, "max_model_len": 500}]})
        if asked.path == endpoint:
            return answer(asked) if callable(answer) else answer
        return Answer({"error": {"message": "Not Found"}}, 404)

    return script


def ids_of(folder: Path) -> dict[str, int]:
    tokenizer = LocalGenerator(folder, system="").tokenizer
    return {word: tokenizer.single_token(word) for word in WORDS}


def ask_server(script: Script, folder: Path) -> tuple[Continuation, list[Asked]]:
    with scripted(script) as server:
        generator = load_generator(server.url, system="", tokenizer=folder, patience=0)
        (found,) = read(generator, GenerationRequest("Is it?", "Add?", labels=LABELS))
        return found, server.asked


def test_vllm_is_asked_for_the_true_probability_of_each_label(folder: Path) -> None:
    ids = ids_of(folder)

    def answer(asked: Asked) -> Answer:
        assert asked.body["apply_softmax"] is False
        name = next(word for word, id in ids.items() if id == asked.body["label_token_ids"][0])
        usage = {"prompt_tokens": len(asked.body["query"]) + 1, "completion_tokens": 1}
        return Answer({"data": [{"index": 0, "object": "score", "score": PROBABILITIES[name]}], "usage": usage})

    found, asked = ask_server(server_of("vllm", answer, "/generative_scoring"), folder)
    expect(found.label_logprobs)
    sent = [each.body for each in asked if each.path == "/generative_scoring"]
    assert all(body["query"] + body["items"][0] == sent[0]["query"] + [ids["?"]] for body in sent)


def listed(folder: Path, *names: str) -> dict[str, float]:
    return {f"token_id:{ids_of(folder)[name]}": math.log(PROBABILITIES[name]) for name in names}


def test_an_older_vllm_lists_the_most_probable_tokens(folder: Path) -> None:
    top = Answer({"choices": [{"logprobs": {"top_logprobs": [listed(folder, " Yes", " No", "Add")]}}]})
    found, _ = ask_server(server_of("vllm", top, "/v1/completions"), folder)
    expect(found.label_logprobs)


def test_a_label_that_is_not_listed_is_not_replaced(folder: Path) -> None:
    top = Answer({"choices": [{"logprobs": {"top_logprobs": [listed(folder, " Yes", "Add")]}}]})
    found, _ = ask_server(server_of("vllm", top, "/v1/completions"), folder)
    assert (found.end, found.label_logprobs) == ("error", ())
    assert found.reason == MISSING.format(count=2)


def test_sglang_reports_given_tokens(folder: Path) -> None:
    ids = ids_of(folder)
    entries = [[math.log(PROBABILITIES[label]), ids[label], None] for label in LABELS]
    answer = Answer({"text": "", "meta_info": {"output_token_ids_logprobs": [entries]}})
    found, asked = ask_server(server_of("sglang", answer, "/generate"), folder)
    expect(found.label_logprobs)
    assert asked[-1].body["token_ids_logprob"] == [ids[label] for label in LABELS]


@pytest.mark.parametrize(
    "answer",
    [
        Answer({}),
        Answer([]),
        Answer({"meta_info": {}}),
        Answer({"meta_info": {"output_token_ids_logprobs": []}}),
        Answer({"meta_info": {"output_token_ids_logprobs": [[["x", 1, None]]]}}),
        Answer({"meta_info": {"output_token_ids_logprobs": [[[math.nan, 1, None]]]}}),
        Answer({"error": "no"}, 500),
        Answer(text="<html>"),
        Answer(drop=True),
    ],
)
def test_a_reply_that_cannot_be_read_is_an_error(answer: Answer, folder: Path) -> None:
    found, _ = ask_server(server_of("sglang", answer, "/generate"), folder)
    assert (found.end, found.label_logprobs) == ("error", ())
    assert found.reason


def test_openai_reports_no_labels(folder: Path) -> None:
    found, _ = ask_server(server_of("system", Answer({}), "/never"), folder)
    assert found.end == "error"
    assert "does not report the probabilities" in str(found.reason)


def test_a_server_that_drops_the_end_of_a_prompt_gives_no_probability(folder: Path) -> None:
    cut = Answer({"data": [{"index": 0, "score": 0.9}], "usage": {"prompt_tokens": 3}})
    found, _ = ask_server(server_of("vllm", cut, "/generative_scoring"), folder)
    assert found.end == "error"
    assert "did not read all" in str(found.reason)


def test_a_prompt_that_fills_the_context_is_not_sent(folder: Path) -> None:
    with scripted(server_of("vllm", Answer({}), "/never")) as server:
        generator = load_generator(server.url, system="", tokenizer=folder, patience=0)
        (found,) = read(generator, GenerationRequest("Is it? " * 300, "Add?", labels=LABELS))
        assert "takes 500" in str(found.reason)
        assert not server.to("/generative_scoring")
