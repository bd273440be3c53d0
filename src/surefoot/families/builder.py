"""A prompt in the making: structure tokens and pieces of text, one after the other.

The rule: the pieces are encoded one by one, so no text can merge with structure or spell it. Reads are put where the
family says, never searched for in the ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from surefoot.core.prompt import Prompt
from surefoot.families.tokenizer import PromptTokenizer


@dataclass
class _Part:
    """A token, or a text with the way it is encoded, and what is read there."""

    token: int | None = None
    text: str = ""
    opens: bool = False
    read: bool = False
    asked: bool = False
    question: str | None = None


class PromptBuilder:
    """Collects parts, then makes the prompt of them."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        self.tokenizer = tokenizer
        self._parts: list[_Part] = []
        self._step_ends: list[int] = []

    def token(self, token: str | int, *, asked: bool = False) -> None:
        """A structure token by name, or any token by id."""
        number = self.tokenizer.token(token) if isinstance(token, str) else token
        self._parts.append(_Part(token=number, asked=asked))

    def text(self, text: str, *, opens: bool = False, asked: bool = False, question: str | None = None) -> None:
        """A piece of text. It goes on from what stands before it, unless it `opens` a text of its own.

        Of an `asked` piece the log-probability of every token is read. `question` is what the piece begins with, if
        that is the end of the part which all solutions of a question share.
        """
        self._parts.append(_Part(text=text, opens=opens, asked=asked, question=question))

    def question_ends(self) -> None:
        """All solutions of the question share what stands here so far."""
        self._parts.append(_Part(question=""))

    def read(self) -> None:
        """The score of a step is read at the last token so far."""
        self._parts[-1].read = True

    def step_ends(self) -> None:
        """The asked tokens since the last step belong to one step."""
        self._step_ends.append(len(self._parts))

    def prompt(self) -> Prompt:
        """The whole, encoded."""
        encoded = self._encoded()
        ids: list[int] = []
        reads: list[int] = []
        targets: list[int] = []
        ends: list[int] = []
        prefix: int | None = None
        ending = Counter(self._step_ends)
        for number, part in enumerate(self._parts, start=1):
            piece = next(encoded)
            if part.question is not None:
                (asked,) = (
                    self.tokenizer.encode(part.question) if part.opens else self.tokenizer.encode_more(part.question)
                )
                prefix = len(ids) + _common(asked, piece)
            if part.asked:
                reads += range(len(ids) - 1, len(ids) + len(piece) - 1)
                targets += piece
            ids += piece
            if part.read:
                reads.append(len(ids) - 1)
            ends += [len(reads)] * ending[number]
        return Prompt(tuple(ids), tuple(reads), len(ids) if prefix is None else prefix, tuple(targets), tuple(ends))

    def _encoded(self) -> Iterator[list[int]]:
        """The ids of every part, with two calls of the tokenizer."""
        opening = iter(self.tokenizer.encode(*(part.text for part in self._parts if part.opens)))
        more = iter(self.tokenizer.encode_more(*(part.text for part in self._parts if not part.opens)))
        for part in self._parts:
            piece = next(opening if part.opens else more)
            yield piece if part.token is None else [part.token]


def _common(one: list[int], other: list[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
