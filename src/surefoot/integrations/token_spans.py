"""Find the text of sampled token ids, and the characters of each token in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surefoot.errors import InputError

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What tokenizers decode the first bytes of an incomplete character to."""


def decode_with_spans(tokenizer: Any, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of the ids and the half-open character span of each.

        text, spans = decode_with_spans(tokenizer, response_ids)      # a tokenizer of transformers

    The text is not encoded again, because a policy may sample ids that no tokenizer would choose. A character whose
    bytes are several tokens belongs to the last of them; tokens without text, such as special ones, have empty spans.
    """
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    # The text of a token depends on the tokens before it. As context, decode those since the previous whole character.
    context, decoded, length = 0, 0, 0
    for at in range(len(ids)):
        before, after = _decode(tokenizer, ids[context:decoded]), _decode(tokenizer, ids[context : at + 1])
        if after.endswith(INCOMPLETE) and at + 1 < len(ids):
            spans.append((length, length))
            continue
        parts.append(after[len(before) :])
        spans.append((length, length + len(parts[-1])))
        length += len(parts[-1])
        if parts[-1]:
            context, decoded = decoded, at + 1
        else:
            decoded = at + 1
    return "".join(parts), spans


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def load_tokenizer(tokenizer: Any) -> Any:
    """Return a tokenizer, which may be given as a hub id or a folder."""
    if not isinstance(tokenizer, str):
        if not hasattr(tokenizer, "decode"):
            raise InputError(f"The tokenizer is {type(tokenizer).__name__}. Pass a tokenizer, a hub id or a folder.")
        return tokenizer
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
