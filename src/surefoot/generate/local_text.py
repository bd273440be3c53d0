"""Turn generated token ids into text, one token at a time.

Invariant: the text only grows, holds whole characters only, and equals what the tokens spell in the middle of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surefoot.core.generation import end_at

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What decoders return for the bytes of an incomplete character."""

Decode = Callable[[Sequence[int]], str]


class TextStream:
    """The text of one sequence.

        stream = TextStream(tokenizer.decode, anchor, ["\\n\\n"])
        stream.add(id)
        stream.text, stream.step

    `anchor` is an ordinary token that is decoded in front: some tokenizers strip the space before the first token.
    """

    def __init__(self, decode: Decode, anchor: int, step_ends: Sequence[str] = ()) -> None:
        self.text = ""
        self._decode, self._step_ends = decode, step_ends
        self._ids = [anchor]
        """The tokens of the latest complete text, and those after it."""
        self._complete = 1
        """How many of them are complete."""
        self._searched = 0

    def add(self, id: int) -> None:
        """Append a token."""
        self._ids.append(id)
        before, whole = self._decode(self._ids[: self._complete]), self._decode(self._ids)
        if len(whole) > len(before) and not whole.endswith(INCOMPLETE):
            self.text += whole[len(before) :]
            self._ids = self._ids[self._complete :]
            self._complete = len(self._ids)

    def finish(self) -> None:
        """Append the whole characters in front of an incomplete one. Nothing may be added afterwards."""
        before, whole = self._decode(self._ids[: self._complete]), self._decode(self._ids)
        self.text += whole[len(before) :].rstrip(INCOMPLETE)
        self._complete = len(self._ids)

    def step(self) -> str | None:
        """The text up to and including the first end of a step; None if there is none yet."""
        if not self._step_ends:
            return None
        start = max(0, self._searched - max(map(len, self._step_ends)) + 1)
        self._searched = len(self.text)
        found = end_at(self.text[start:], self._step_ends)
        return None if found is None else self.text[:start] + found
