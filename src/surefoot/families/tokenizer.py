"""Turning text into token ids such that text stays text.

The rule: `encode` can give only ids of the base vocabulary. The added tokens (chat turns, step markers, end of text)
are taken out of the tokenizer that reads text, so no text can spell one; they are reached by name, through `token`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from surefoot.errors import CheckpointError


class PromptTokenizer:
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
        going_on = {name: _without_opening(text_side.get(name)) for name in ("normalizer", "pre_tokenizer")}
        same = all(text_side.get(name) == part for name, part in going_on.items())
        self._more = self._text if same else Tokenizer.from_str(json.dumps(text_side | going_on))
        self.size = max([self._text.get_vocab_size(), *(id + 1 for id in self.structure)])
        """How many ids there are: the vocabulary and the structure tokens."""

    @classmethod
    def from_folder(cls, *folders: Path) -> PromptTokenizer:
        """The tokenizer of a checkpoint, from the first folder that has one: `tokenizer.json`, or the older files that
        transformers can convert."""
        folder = next((folder for folder in folders if (folder / "tokenizer.json").is_file()), None)
        try:
            if folder is not None:
                return parse_tokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
            from transformers import AutoTokenizer

            folder = folders[-1]
            return parse_tokenizer(
                AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer.to_str()
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

    def word(self, text: str) -> int:
        """The id of the one ordinary token that spells `text` in the middle of a text."""
        (ids,) = self.encode_more(text)
        if len(ids) != 1:
            raise CheckpointError(
                f"The vocabulary has no one token for {text!r} but takes {len(ids)}, so this is not the tokenizer of a "
                "model of this family. Check the family and its options."
            )
        return ids[0]

    def encode(self, *texts: str) -> list[list[int]]:
        """The ids of each text, encoded on its own."""
        return self._encode(self._text, texts)

    def encode_more(self, *texts: str) -> list[list[int]]:
        """The same for texts that go on where another ended: without the space that some vocabularies put first."""
        return self._encode(self._more, texts)

    def _encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        encoded = [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
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


@lru_cache(maxsize=4)
def parse_tokenizer(text: str) -> PromptTokenizer:
    """Building one takes a second; models of one vocabulary share it."""
    return PromptTokenizer(json.loads(text))


def _without_opening(part: Any) -> Any:
    """A normalizer or pre-tokenizer of tokenizer.json that puts nothing in front of a text."""
    if not isinstance(part, dict):
        return part
    changed = dict(part)
    for name in ("normalizers", "pretokenizers"):
        if name in changed:
            inner = [_without_opening(each) for each in changed[name]]
            changed[name] = [each for each in inner if each is not None]
    if changed.get("type") == "Prepend":
        return None
    if changed.get("type") == "Metaspace":
        changed["prepend_scheme"] = "never"
    if changed.get("type") == "ByteLevel":
        changed["add_prefix_space"] = False
    return changed
