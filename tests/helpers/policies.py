"""Small language models whose next token is known: checkpoints of the Qwen2 architecture that compute a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from surefoot.testing import byte_tokenizer_json, qwen_config, qwen_shapes

END = "<|im_end|>"
SPECIAL = ("<|endoftext|>", "<|im_start|>", END)
START = ""
"""In a table: what follows a token that is not in the table, such as the last one of a prompt."""
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IMPOSSIBLE = -100.0
"""The logit of a token that a table does not allow."""

Table = Mapping[str | bytes, Mapping[str | bytes, float]]
"""Probabilities of the next token, given the current one. Texts are tokens of their own, a byte is a token, too."""


def write_table_policy(
    folder: Path,
    table: Table,
    *,
    tokenizer: str | None = None,
    ends: tuple[str, ...] = (END,),
    specials: tuple[str, ...] = SPECIAL,
    **settings: Any,
) -> Path:
    """A causal language model whose next token depends on the current one only, with the probabilities in a table.

        write_table_policy(folder, {START: {"2+3=5.\\n\\n": 0.7, "2+3=6.\\n\\n": 0.3}, "2+3=5.\\n\\n": {END: 1.0}})

    Every text in the table is one token, wherever it stands, and all others are bytes. Attention and MLP add nothing,
    so the output layer sees which token is current. A token without an entry in the table goes on as START does. With
    `tokenizer`, texts must be single tokens of that vocabulary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = [*table, *(text for row in table.values() for text in row)]
    words = list(dict.fromkeys(text for text in texts if isinstance(text, str) and text and text not in specials))
    layout = json.loads(tokenizer) if tokenizer else _with_words(json.loads(byte_tokenizer_json(*specials)), words)
    ids = _ids_of(layout, texts)
    states = {text: state for state, text in enumerate(dict.fromkeys([START, *table]))}
    hidden = 8 * math.ceil(len(states) / 8)
    vocabulary = max([*layout["model"]["vocab"].values(), *(token["id"] for token in layout["added_tokens"])]) + 1
    config = qwen_config(hidden_size=hidden, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    config |= {"architectures": ["Qwen2ForCausalLM"], "torch_dtype": "float32", "vocab_size": vocabulary}
    config |= {"eos_token_id": ids[ends[0]], "bos_token_id": None, "num_key_value_heads": 1} | settings
    del config["auto_map"]
    tensors = {name: torch.zeros(shape) for name, shape in qwen_shapes(config).items() if not name.startswith("score.")}
    for name in tensors:
        if name.endswith("norm.weight"):
            tensors[name] += 1
    # The norm of a vector with one entry `sqrt(hidden)` is the vector itself.
    size = math.sqrt(hidden)
    embedding, output = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    embedding[:, states[START]] = size
    output += IMPOSSIBLE / size
    for text, row in table.items():
        if text != START:
            embedding[ids[text]] = 0
            embedding[ids[text], states[text]] = size
        for following, probability in row.items():
            output[ids[following], states[text]] = math.log(probability) / size
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids[name] for name in ends]}))
    (folder / "tokenizer.json").write_text(json.dumps(layout))
    write_chat_template(folder, eos=ends[0])
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def write_chat_template(folder: Path, *, template: str = CHATML, eos: str = END) -> Path:
    """The tokenizer settings of a chat model: its template and its end-of-turn token."""
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, "chat_template": template})
    )
    return folder


def _with_words(layout: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """A tokenizer of bytes in which each of these texts is an ordinary token."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    if not words:
        return layout
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary = dict(layout["model"]["vocab"])
    first = max(token["id"] for token in layout["added_tokens"]) + 1
    for number, word in enumerate(words):
        vocabulary[spelled.pre_tokenize_str(word)[0][0]] = first + number
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    pattern = "|".join(_escaped(word) for word in sorted(words, key=len, reverse=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), spelled])
    built = json.loads(tokenizer.to_str())
    return layout | {name: built[name] for name in ("model", "pre_tokenizer")}


def _escaped(text: str) -> str:
    """A text as a pattern of Oniguruma."""
    return "".join(character if character.isalnum() else f"\\x{{{ord(character):x}}}" for character in text)


def _ids_of(layout: dict[str, Any], texts: list[str | bytes]) -> dict[str | bytes, int]:
    """The token of each text, of each byte in the table, and of the special tokens."""
    from tokenizers import Tokenizer

    tokenizer, by_byte = Tokenizer.from_str(json.dumps(layout)), byte_ids(layout)
    ids: dict[str | bytes, int] = {token["content"]: token["id"] for token in layout["added_tokens"]}
    for text in texts:
        if isinstance(text, bytes):
            (byte,) = text
            ids[text] = by_byte[byte]
        elif text not in ids and text != START:
            found = tokenizer.encode(text, add_special_tokens=False).ids
            assert len(found) == 1, f"{text!r} is not one token"
            ids[text] = found[0]
    return ids


def byte_ids(layout: dict[str, Any]) -> dict[int, int]:
    """The token of each byte in a vocabulary with GPT-2's alphabet, if it has one.

    That alphabet writes printable bytes as themselves, and the others in their order as the letters from U+0100 on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    vocabulary = layout["model"]["vocab"]
    return {byte: vocabulary[letter] for byte, letter in letters.items() if letter in vocabulary}
