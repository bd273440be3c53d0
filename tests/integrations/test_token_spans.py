"""The spans of sampled tokens: they cover the text in order, and agree with the offsets of real tokenizers."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from surefoot.errors import InputError
from surefoot.integrations.token_spans import decode_with_spans, load_tokenizer
from surefoot.testing import byte_tokenizer_json, qwen_tokenizer_json

TEXTS = ["Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.", "  two  spaces ", "naïve café", "∑ 漢字 🎉🎉 end", ""]


@pytest.fixture(scope="module", params=["qwen", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer

    text = qwen_tokenizer_json() if request.param == "qwen" else byte_tokenizer_json("<|im_end|>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(text), eos_token="<|im_end|>")


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_covered_in_order(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    found, spans = decode_with_spans(tokenizer, ids)
    assert found == text
    assert len(spans) == len(ids)
    assert spans[-1] == (len(text), len(text)), "special tokens have no text"
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]


def test_ascii_offsets_are_those_of_the_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded = tokenizer(TEXTS[0], return_offsets_mapping=True, add_special_tokens=False)
    assert decode_with_spans(tokenizer, encoded["input_ids"])[1] == [tuple(span) for span in encoded["offset_mapping"]]


def test_ids_that_no_tokenizer_would_choose(tokenizer: PreTrainedTokenizerFast) -> None:
    """A policy may spell a word letter by letter."""
    ids = [tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "Step"]
    assert decode_with_spans(tokenizer, ids) == ("Step", [(0, 1), (1, 2), (2, 3), (3, 4)])


def test_a_character_cut_off_at_the_end(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer.encode("ok 🎉", add_special_tokens=False)[:-1]
    text, spans = decode_with_spans(tokenizer, ids)
    assert text == tokenizer.decode(ids)
    assert spans[-1][1] == len(text)


def test_an_object_without_decode_raises() -> None:
    with pytest.raises(InputError, match="The tokenizer is int"):
        load_tokenizer(3)
