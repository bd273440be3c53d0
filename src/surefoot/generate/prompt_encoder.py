"""Encode chat prompts with a tokenizer in this process.

Text between two special tokens of the template is encoded as one, as transformers does: ordinary questions get exactly
the ids of `apply_chat_template`. Invariant: special tokens come from the template only. A question, a system message or
a prefix that spells one is encoded as plain text; only tags around thinking keep their tokens in a prefix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.data.hub import MODEL_ID, find_folder, local_folder
from surefoot.errors import LoadError, OptionError
from surefoot.generate.chat_prompt import ChatPrompt
from surefoot.generate.lookalikes import THINKING
from surefoot.generate.rendering import Slot, TemplateParts, fill_slots, local_parts, plain_markers, refuse_markers
from surefoot.tokenization.settings import read_tokenizer_settings
from surefoot.tokenization.tokenizer import PromptTokenizer

TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "chat_template*", "*.model", "merges.txt", "vocab.*")


@dataclass(frozen=True)
class TokenizerQuirks:
    """What tokenizer.json says about special tokens and the start of a text, and `PromptTokenizer` leaves out."""

    strip_left: frozenset[str] = frozenset()
    """Special tokens that swallow the white space before them."""
    strip_right: frozenset[str] = frozenset()
    first_only: bool = False
    """Whether only the first text of a prompt gets the space that some tokenizers put in front."""
    thinking: frozenset[str] = frozenset()
    """The tags around thinking, where the vocabulary has them as tokens that are not special."""

    @classmethod
    def read(cls, folder: Path) -> TokenizerQuirks:
        """Read tokenizer.json, which `PromptTokenizer` has read before."""
        file = folder / "tokenizer.json"
        layout: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        added = layout.get("added_tokens") or []
        return cls(
            frozenset(token["content"] for token in added if token.get("lstrip")),
            frozenset(token["content"] for token in added if token.get("rstrip")),
            '"prepend_scheme": "first"' in json.dumps(layout.get("pre_tokenizer")),
            frozenset(token["content"] for token in added if not token.get("special") and token["content"] in THINKING),
        )


class PromptEncoder:
    """Turns questions and prefixes into token ids.

    encoder = PromptEncoder.from_folder(folder, ChatPrompt())
    ids = encoder.prompt_ids("What is 2 + 3?") + encoder.prefix_ids("First, add.\\n\\n")
    """

    def __init__(
        self,
        tokenizer: PromptTokenizer,
        parts: TemplateParts,
        prompt: ChatPrompt,
        quirks: TokenizerQuirks = TokenizerQuirks(),  # noqa: B008  # it is immutable
    ) -> None:
        self.tokenizer = tokenizer
        self.parts = parts
        self._prompt = prompt
        self._quirks = quirks
        self._special = _pattern(tokenizer.special_tokens)
        self._pieces = tuple(self._split())
        self._thinking = _pattern(quirks.thinking)
        self._markers = plain_markers(self._pieces)

    @classmethod
    def from_folder(cls, folder: Path, prompt: ChatPrompt) -> PromptEncoder:
        """Read a tokenizer and its chat template from a folder."""
        tokenizer = PromptTokenizer.from_folder(folder)
        return cls(
            tokenizer, local_parts(read_tokenizer_settings(folder), prompt), prompt, TokenizerQuirks.read(folder)
        )

    @property
    def template_tokens(self) -> dict[str, int]:
        """The special tokens that the template writes."""
        used = {piece for piece in self._pieces if isinstance(piece, int)}
        return {name: id for name, id in self.tokenizer.special_tokens.items() if id in used}

    def prompt_ids(self, question: str) -> list[int]:
        """Return the prompt up to the place where the answer begins."""
        texts = {message["role"]: message["content"] for message in self._prompt.messages(question)}
        refuse_markers(self._markers, *texts.values())
        ids: list[int] = []
        for run in fill_slots(self._pieces, texts):
            ids += self._run_ids(run, at_start=not ids) if isinstance(run, str) else [run]
        return ids

    def prefix_ids(self, prefix: str) -> list[int]:
        """Return the beginning of an answer, exactly: it is encoded on its own, as the model wrote it.

        Tags around thinking become their tokens, because that is what the model wrote. Nothing else does.
        """
        refuse_markers(self._markers, prefix)
        return self.encode_answer(prefix)

    def encode_answer(self, text: str) -> list[int]:
        """Return the tokens of a text that the model wrote, also if it spells turns."""
        pieces = self._thinking.split(text)
        plain = iter(self.tokenizer.encode_continuation(*pieces[::2]))
        return [
            id
            for at, piece in enumerate(pieces)
            for id in ([self.tokenizer.special_tokens[piece]] if at % 2 else next(plain))
        ]

    def _run_ids(self, run: str, *, at_start: bool) -> list[int]:
        inside = self._quirks.first_only and not at_start
        return (self.tokenizer.encode_continuation if inside else self.tokenizer.encode)(run)[0]

    def _split(self) -> Iterator[int | str | Slot]:
        """The template as special tokens, texts between them, and slots."""
        for part in self.parts.parts:
            if isinstance(part, Slot):
                yield part
                continue
            split = self._special.split(part)
            for at, piece in enumerate(split):
                if at % 2:
                    yield self.tokenizer.special_tokens[piece]
                    continue
                text = piece.lstrip() if at and split[at - 1] in self._quirks.strip_right else piece
                followed = split[at + 1] if at + 1 < len(split) else ""
                if text := text.rstrip() if followed in self._quirks.strip_left else text:
                    yield text


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """A pattern that splits a text at these names. The longest first, because one may begin with another."""
    ordered = sorted(names, key=lambda name: (-len(name), name))
    return re.compile("(" + "|".join(map(re.escape, ordered)) + ")" if ordered else "($.)")


def find_tokenizer_folder(tokenizer: str | Path) -> Path:
    """Return the folder of a tokenizer. Those of a hub id are downloaded, without the weights."""
    if local_folder(tokenizer) is None and not MODEL_ID.fullmatch(str(tokenizer)):
        raise OptionError(f"tokenizer={str(tokenizer)[:200]!r} is neither a folder nor a hub id.")
    try:
        return find_folder(tokenizer, TOKENIZER_FILES, example="'Qwen/Qwen2.5-1.5B-Instruct'.")
    except LoadError as error:
        raise LoadError(f"tokenizer={error}") from error
