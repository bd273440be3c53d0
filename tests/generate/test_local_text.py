"""Incremental text: the same as decoding at once, for every kind of vocabulary, and never half a character."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.policies import byte_ids
from helpers.vocabulary import llama_tokenizer_json, mistral_pieces, mistral_tokenizer_json
from surefoot.generate.local_text import INCOMPLETE, TextStream
from surefoot.testing import byte_tokenizer_json, qwen_tokenizer_json
from surefoot.tokenization.tokenizer import PromptTokenizer, parse_tokenizer

VOCABULARIES: dict[str, Callable[[], str]] = {
    "bytes": byte_tokenizer_json,
    "qwen": qwen_tokenizer_json,
    "llama": llama_tokenizer_json,
    "mistral": mistral_tokenizer_json,
}
TEXTS = ["First, 2 + 3 = 5.\n\nThen", "Größe: 中文。\n\n結果 🧮🇪🇺 👩‍👩‍👧 é", " x\n \n  y", "\\boxed{\\frac{1}{2}}"]


def stream_of(tokenizer: PromptTokenizer, step_end: str | None = None) -> TextStream:
    anchor = tokenizer.encode_continuation(".")[0][-1]
    return TextStream(tokenizer.decode, anchor, [] if step_end is None else [step_end])


@pytest.fixture(params=VOCABULARIES)
def tokenizer(request: pytest.FixtureRequest) -> PromptTokenizer:
    return parse_tokenizer(VOCABULARIES[request.param]())


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokens_of_a_text_spell_it_again(tokenizer: PromptTokenizer, text: str) -> None:
    stream, seen = stream_of(tokenizer), ""
    for id in tokenizer.encode_continuation(text)[0]:
        stream.add(id)
        assert stream.text.startswith(seen)
        seen = stream.text
        assert text.startswith(seen)
    assert stream.text == text
    stream.finish()
    assert stream.text == text


@settings(max_examples=200, deadline=None)
@given(data=st.lists(st.sampled_from([0x41, 0x0A, 0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xF0, 0x9F, 0x80, 0xFF]), max_size=16))
def test_any_bytes_are_decoded_as_python_decodes_them_at_once(data: list[int]) -> None:
    tokenizer, ids = parse_tokenizer(byte_tokenizer_json()), byte_ids(json.loads(byte_tokenizer_json()))
    stream = stream_of(tokenizer)
    for byte in data:
        stream.add(ids[byte])
    stream.finish()
    assert stream.text == bytes(data).decode(errors="replace").rstrip(INCOMPLETE)


@pytest.mark.parametrize("name", ["bytes", "qwen", "llama", "mistral"])
def test_an_incomplete_character_is_never_shown(name: str) -> None:
    tokenizer = parse_tokenizer(VOCABULARIES[name]())
    ids = tokenizer.encode_continuation("a\U000108a2")[0]  # a Nabataean letter that no vocabulary has as a token
    assert len(ids) > 2
    for length in range(len(ids) + 1):
        stream = stream_of(tokenizer)
        for id in ids[:length]:
            stream.add(id)
            assert INCOMPLETE not in stream.text
        stream.finish()
        assert stream.text == ("" if length == 0 else "a\U000108a2" if length == len(ids) else "a")


def test_bytes_that_are_not_a_character_are_marked_once_more_text_follows() -> None:
    tokenizer = parse_tokenizer(byte_tokenizer_json())
    head = tokenizer.encode("中")[0][0]
    stream = stream_of(tokenizer)
    for id in (head, *tokenizer.encode("ab")[0]):
        stream.add(id)
    assert stream.text == b"\xe4ab".decode(errors="replace")


def test_leading_spaces_are_those_of_sentencepiece() -> None:
    pieces, tokenizer = mistral_pieces(), parse_tokenizer(mistral_tokenizer_json())
    ids = pieces.encode("The answer is 5.")  # its first piece is `▁The`
    stream = stream_of(tokenizer)
    for id in ids:
        stream.add(id)
    dot = pieces.piece_to_id(".")
    assert stream.text == pieces.decode([dot, *ids])[1:] == " The answer is 5."


@pytest.mark.parametrize(
    ("text", "step_end", "expected"),
    [
        ("One.\n\nTwo", "\n\n", "One.\n\n"),
        ("One.\n\n\nTwo", "\n\n", "One.\n\n"),
        ("One.\n Two\n", "\n\n", None),
        ("一。二」三", "。", "一。"),
        ("一」二", "。", None),
        ("aab", "ab", "aab"),
    ],
)
def test_the_end_of_a_step_is_found_wherever_tokens_end(
    tokenizer: PromptTokenizer, text: str, step_end: str, expected: str | None
) -> None:
    stream = stream_of(tokenizer, step_end)
    found = None
    for id in tokenizer.encode_continuation(text)[0]:
        stream.add(id)
        found = stream.step()
        if found is not None:
            break
    assert found == expected
