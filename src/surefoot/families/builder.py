"""Builds prompts from special tokens and pieces of text.

Pieces are encoded one by one, so text can neither merge with special tokens nor spell them. Reads are placed where the
family says and never searched for in the ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from surefoot.core.prompt import Prompt
from surefoot.tokenization.tokenizer import PromptTokenizer


@dataclass
class _Part:
    """A token, or a piece of text, and what to read there."""

    token: int | None = None
    text: str = ""
    starts_text: bool = False
    logprobs: bool = False
    question: str | None = None
    read: int | None = None
    """How many tokens before the last one to read."""


class PromptBuilder:
    """Collects the parts of a prompt, then encodes them.

    builder = PromptBuilder(tokenizer)
    builder.text("Question: 1 + 1?", starts_text=True)
    builder.end_question()
    builder.text("It is 2.")
    builder.token("<|im_end|>")
    builder.read()
    prompt = builder.build()
    """

    def __init__(self, tokenizer: PromptTokenizer, bos: str | None = None) -> None:
        """Start a prompt, with the special token `bos` if there is one."""
        self.tokenizer = tokenizer
        self._parts: list[_Part] = []
        self._step_ends: list[int] = []
        if bos is not None:
            self.token(bos)

    def token(self, token: str | int, *, logprobs: bool = False) -> None:
        """Append a special token by name, or any token by id."""
        number = self.tokenizer.token(token) if isinstance(token, str) else token
        self._parts.append(_Part(token=number, logprobs=logprobs))

    def text(
        self, text: str, *, starts_text: bool = False, logprobs: bool = False, question: str | None = None
    ) -> None:
        """Append a piece of text.

        With `starts_text` it is encoded as the start of a text: some tokenizers put a space in front of it. With
        `logprobs`, the log-probability of each of its tokens is read. `question` is the leading part of `text` that
        belongs to the prefix shared by all solutions of a question, if that prefix ends inside this piece.
        """
        self._parts.append(_Part(text=text, starts_text=starts_text, logprobs=logprobs, question=question))

    def end_question(self) -> None:
        """Mark the end of the prefix that all solutions of the question share."""
        self._parts.append(_Part(question=""))

    def read(self, *, tokens_back: int = 0) -> None:
        """Read the score of a step at the last token so far, or a number of tokens before it."""
        self._parts[-1].read = tokens_back

    def end_step(self) -> None:
        """Assign the log-probabilities read since the previous step to one step."""
        self._step_ends.append(len(self._parts))

    def build(self) -> Prompt:
        """Encode the parts and return the prompt."""
        encoded = self._encoded()
        ids: list[int] = []
        reads: list[int] = []
        targets: list[int] = []
        ends: list[int] = []
        prefix: int | None = None
        steps_ending = Counter(self._step_ends)
        for number, part in enumerate(self._parts, start=1):
            piece = next(encoded)
            if part.question is not None:
                encode = self.tokenizer.encode if part.starts_text else self.tokenizer.encode_continuation
                (question_ids,) = encode(part.question)
                prefix = len(ids) + _common_prefix(question_ids, piece)
            if part.logprobs:
                reads += range(len(ids) - 1, len(ids) + len(piece) - 1)
                targets += piece
            ids += piece
            if part.read is not None:
                reads.append(len(ids) - 1 - part.read)
            ends += [len(reads)] * steps_ending[number]
        return Prompt(tuple(ids), tuple(reads), len(ids) if prefix is None else prefix, tuple(targets), tuple(ends))

    def _encoded(self) -> Iterator[list[int]]:
        """The ids of every part, with only two calls of the tokenizer."""
        starts = iter(self.tokenizer.encode(*(part.text for part in self._parts if part.starts_text)))
        continuations = iter(
            self.tokenizer.encode_continuation(*(part.text for part in self._parts if not part.starts_text))
        )
        for part in self._parts:
            piece = next(starts if part.starts_text else continuations)
            yield piece if part.token is None else [part.token]


def _common_prefix(one: list[int], other: list[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
