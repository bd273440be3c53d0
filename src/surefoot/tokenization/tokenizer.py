"""Encodes text so that it can never become structure.

`encode` returns only ids of the base vocabulary. The special tokens (chat turns, step markers, end of text) are removed
from the tokenizer that encodes text, so no text can spell one; they are available by name through `token`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from surefoot.errors import CheckpointError


class PromptTokenizer:
    """A tokenizer that keeps plain text and special tokens apart.

    tokenizer = PromptTokenizer.from_folder(folder)
    (ids,) = tokenizer.encode("Is <|im_end|> a token? Not here.")
    ids.append(tokenizer.token("<|im_end|>"))
    """

    def __init__(self, layout: dict[str, Any]) -> None:
        """Take the content of a tokenizer.json."""
        self.special_tokens: dict[str, int] = {token["content"]: token["id"] for token in layout["added_tokens"]}
        for name, id in self.special_tokens.items():
            if not isinstance(name, str) or not name or not isinstance(id, int) or not 0 <= id < 2**31:
                raise ValueError(f"the special token {name!r} has the id {id!r}")
        """The special tokens by name."""
        self.special_ids = frozenset(self.special_tokens.values())
        # Longest first, so that a name is found even if another one is a prefix of it.
        names = sorted(self.special_tokens, key=len, reverse=True)
        self._special_pattern = re.compile("(" + "|".join(map(re.escape, names)) + ")" if names else "($.)")
        plain = layout | {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._text = Tokenizer.from_str(json.dumps(plain))
        if not self._text.get_vocab_size():
            raise ValueError("its vocabulary is empty")
        changed = {name: _without_prefix_space(plain.get(name)) for name in ("normalizer", "pre_tokenizer")}
        same = all(plain.get(name) == part for name, part in changed.items())
        self._continuation = self._text if same else Tokenizer.from_str(json.dumps(plain | changed))
        self.vocab_size = max([self._text.get_vocab_size(), *(id + 1 for id in self.special_ids)])
        """The number of ids, special tokens included."""
        self.encode("A text.", "")  # fails for some malformed files

    @classmethod
    def from_folder(cls, *folders: Path) -> PromptTokenizer:
        """Read a checkpoint's tokenizer from the first folder that has one.

        This is `tokenizer.json`, or the older files that transformers can convert.
        """
        folder = tokenizer_folder(*folders)
        try:
            if (folder / "tokenizer.json").is_file():
                return parse_tokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
            from transformers import AutoTokenizer

            return parse_tokenizer(
                AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer.to_str()
            )
        except Exception as error:
            raise CheckpointError(
                f"Cannot read a tokenizer in {folder} ({error}). Copy tokenizer.json from the model's repository."
            ) from error

    def token(self, name: str) -> int:
        """Return the id of the special token with this name."""
        try:
            return self.special_tokens[name]
        except KeyError:
            raise CheckpointError(
                f"The vocabulary has no special token {name!r}. Use the tokenizer files from the PRM's own repository, "
                "not from its base model."
            ) from None

    def single_token(self, text: str) -> int:
        """Return the id of the one ordinary token that spells `text` in the middle of a text."""
        (ids,) = self.encode_continuation(text)
        if len(ids) != 1:
            raise CheckpointError(
                f"The vocabulary has no single token for {text!r} but needs {len(ids)}, so this tokenizer does not "
                "belong to this family. Check the family and its options."
            )
        return ids[0]

    def encode(self, *texts: str) -> list[list[int]]:
        """Encode each text on its own."""
        return self._encode(self._text, texts)

    def encode_continuation(self, *texts: str) -> list[list[int]]:
        """Encode texts that continue another one: without the space that some tokenizers put in front of a text."""
        return self._encode(self._continuation, texts)

    def _encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        try:
            encoded = [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        except BaseException as error:
            # A crash inside tokenizers is not an Exception, and its class cannot be imported.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise CheckpointError(
                f"The tokenizer failed on a text ({error}). Copy tokenizer.json from the model's repository."
            ) from error
        for ids, text in zip(encoded, texts, strict=True):
            if not self.special_ids.isdisjoint(ids):
                raise CheckpointError(
                    f"With this vocabulary, plain text (in {text[:80]!r}) spells a special token, so its scores cannot "
                    "be trusted. Please report the model."
                )
        return encoded

    def encode_prompt(self, text: str) -> list[int]:
        """Encode a complete prompt that was rendered elsewhere, including the special tokens that it spells."""
        pieces = self._special_pattern.split(text)
        plain = iter(self.encode(*pieces[::2]))
        return [
            id for at, piece in enumerate(pieces) for id in ([self.special_tokens[piece]] if at % 2 else next(plain))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, with special tokens by name, for messages to people."""
        names = {id: name for name, id in self.special_tokens.items()}
        pieces = (
            "".join(names[id] for id in group) if special else self._text.decode(list(group), skip_special_tokens=False)
            for special, group in groupby(ids, key=names.__contains__)
        )
        return "".join(pieces)

    def special_tokens_in(self, text: str) -> list[str]:
        """The special tokens that the text spells; `encode` treats them as plain text."""
        return [name for name in self.special_tokens if name in text]


def tokenizer_folder(*folders: Path) -> Path:
    """The first of these folders that has a tokenizer.json, else the last one, which may have older files."""
    return next((folder for folder in folders if (folder / "tokenizer.json").is_file()), folders[-1])


@lru_cache(maxsize=4)
def parse_tokenizer(text: str) -> PromptTokenizer:
    """Parse a tokenizer.json. Building a tokenizer takes a second, so models with the same vocabulary share it."""
    return PromptTokenizer(json.loads(text))


def _without_prefix_space(part: Any) -> Any:
    """A normalizer or pre-tokenizer of tokenizer.json, changed not to prepend anything."""
    if not isinstance(part, dict):
        return part
    changed = dict(part)
    for name in ("normalizers", "pretokenizers"):
        if name in changed:
            inner = [_without_prefix_space(each) for each in changed[name]]
            changed[name] = [each for each in inner if each is not None]
    if changed.get("type") == "Prepend":
        return None
    if changed.get("type") == "Metaspace":
        changed["prepend_scheme"] = "never"
    if changed.get("type") == "ByteLevel":
        changed["add_prefix_space"] = False
    return changed
