"""Turning text into token ids such that text stays text.

The rule: `encode` can give only ids of the base vocabulary. The added tokens (chat turns, step markers, end of text)
are taken out of the tokenizer that reads text, so no text can spell one; they are reached by name, through `token`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from surefoot.errors import CheckpointError


class TextEncoder:
    """A tokenizer in two halves: plain text on one side, named structure tokens on the other."""

    def __init__(self, layout: dict[str, Any]) -> None:
        """Takes the content of a tokenizer.json."""
        self._named: dict[str, int] = {token["content"]: token["id"] for token in layout["added_tokens"]}
        self._structure = frozenset(self._named.values())
        text_side = layout | {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._text = Tokenizer.from_str(json.dumps(text_side))

    @classmethod
    def from_folder(cls, folder: Path) -> TextEncoder:
        """The tokenizer of a checkpoint: `tokenizer.json`, or the older files that transformers can convert."""
        file = folder / "tokenizer.json"
        try:
            if file.is_file():
                return cls(json.loads(file.read_text(encoding="utf-8")))
            from transformers import AutoTokenizer

            return cls(
                json.loads(AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer.to_str())
            )
        except Exception as error:
            raise CheckpointError(
                f"No tokenizer could be read in {folder} ({error}). Copy tokenizer.json from the model's repository."
            ) from error

    def token(self, name: str) -> int:
        """The id of the structure token spelled `name`."""
        try:
            return self._named[name]
        except KeyError:
            raise CheckpointError(
                f"The vocabulary has no token {name!r}. Take the tokenizer files from the PRM's own repository, "
                "not from its base model."
            ) from None

    def encode(self, *texts: str) -> list[list[int]]:
        """The ids of each text, encoded on its own."""
        encoded = [encoding.ids for encoding in self._text.encode_batch(list(texts), add_special_tokens=False)]
        for ids, text in zip(encoded, texts, strict=True):
            if not self._structure.isdisjoint(ids):
                raise CheckpointError(
                    f"This vocabulary spells a structure token with plain text (in {text[:80]!r}), so its scores "
                    "cannot be trusted. Please report the model."
                )
        return encoded

    def lookalikes(self, text: str) -> list[str]:
        """The structure tokens whose spelling stands in the text, where it is only text."""
        return [name for name in self._named if name in text]
