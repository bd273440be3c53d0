"""Prompts of critics: special tokens and text, or one message for a chat model.

Invariant: only a `Token` becomes a special token. Questions and steps are always encoded as plain text, and so is what
the model wrote, except the tags around its thinking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.tokenization.tokenizer import PromptTokenizer


@dataclass(frozen=True)
class Token:
    """A special token, by its name in the vocabulary."""

    name: str


@dataclass(frozen=True)
class Written:
    """Text that the model wrote. The tags around its thinking keep their tokens, as the model wrote them."""

    text: str

    def pieces(self, tokenizer: PromptTokenizer) -> list[str | Token]:
        """The text, with tags that are tokens of the vocabulary as such."""
        parts = TAGS.split(self.text)
        return [Token(part) if part in tokenizer.special_tokens and at % 2 else part for at, part in enumerate(parts)]


TAGS = re.compile("(</?think>)")
Piece = str | Token | Written


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt whose structure is fixed here, whatever chat template the tokenizer files have.

    >>> prompt = TokenPrompt((Token("<|im_start|>"), "user\\n", "Is 2 + 2 = 4?", Token("<|im_end|>")))
    >>> prompt.text
    '<|im_start|>user\\nIs 2 + 2 = 4?<|im_end|>'
    """

    pieces: tuple[Piece, ...]

    def plus(self, text: str) -> TokenPrompt:
        """The same prompt with text of the model at its end."""
        return TokenPrompt((*self.pieces, Written(text)))

    @property
    def text(self) -> str:
        """What the prompt spells, for people and for tests."""
        return "".join(map(_spelled, self.pieces))

    def encode(self, tokenizer: PromptTokenizer) -> tuple[int, ...]:
        """Return the token ids. Text between two special tokens is encoded as one, as in a rendered chat."""
        ids: list[int] = []
        pieces = [
            part
            for piece in self.pieces
            for part in (piece.pieces(tokenizer) if isinstance(piece, Written) else [piece])
        ]
        for run in _runs(pieces):
            ids += [tokenizer.token(run.name)] if isinstance(run, Token) else tokenizer.encode(run)[0]
        return tuple(ids)


@dataclass(frozen=True)
class ChatMessage:
    """A message to a chat model, in the model's own chat template, and the beginning of its reply."""

    message: str
    reply: str = ""

    def plus(self, text: str) -> ChatMessage:
        """The same message with more text at the end of the reply."""
        return ChatMessage(self.message, self.reply + text)


CriticPrompt = TokenPrompt | ChatMessage


def _spelled(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    return piece.name if isinstance(piece, Token) else piece.text


def _runs(pieces: Sequence[str | Token]) -> list[str | Token]:
    """The pieces with adjacent texts joined."""
    runs: list[str | Token] = []
    for piece in pieces:
        if isinstance(piece, str) and runs and isinstance(runs[-1], str):
            runs[-1] += piece
        elif piece != "":
            runs.append(piece)
    return runs
