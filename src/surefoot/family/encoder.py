"""Turning text into token ids such that text stays text.

The rule: `encode` can give only ids of the base vocabulary. The added tokens (chat turns, step markers, end of text)
are taken out of the tokenizer that reads text, so no text can spell one; they are reached by name, through `token`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from surefoot.errors import CheckpointError


class TextEncoder:
    """A tokenizer in two halves: plain text on one side, named structure tokens on the other."""

    def __init__(self, layout: dict[str, Any]) -> None:
        """Takes the content of a tokenizer.json."""
        self._named: dict[str, int] = {token["content"]: token["id"] for token in layout["added_tokens"]}
        self.structure = frozenset(self._named.values())
        """The ids of all structure tokens."""
        # The longest first, so that a name which starts like another is found whole.
        names = sorted(self._named, key=len, reverse=True)
        self._spelled = re.compile("(" + "|".join(map(re.escape, names)) + ")" if names else "($.)")
        text_side = layout | {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self._text = Tokenizer.from_str(json.dumps(text_side))
        self.size = max([self._text.get_vocab_size(), *(id + 1 for id in self.structure)])
        """How many ids there are: the vocabulary and the structure tokens."""

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
            if not self.structure.isdisjoint(ids):
                raise CheckpointError(
                    f"This vocabulary spells a structure token with plain text (in {text[:80]!r}), so its scores "
                    "cannot be trusted. Please report the model."
                )
        return encoded

    def encode_structure(self, text: str) -> list[int]:
        """The ids of a text whose structure tokens are meant: a whole prompt, rendered elsewhere."""
        pieces = self._spelled.split(text)
        plain = iter(self.encode(*pieces[::2]))
        return [id for at, piece in enumerate(pieces) for id in ([self._named[piece]] if at % 2 else next(plain))]

    def lookalikes(self, text: str) -> list[str]:
        """The structure tokens whose spelling stands in the text, where it is only text."""
        return [name for name in self._named if name in text]
