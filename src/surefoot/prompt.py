"""A prompt: what a model is given for one solution, and where its answer is read.

The rule: one read position per step, in the order of the steps. A read sees only the tokens up to itself, so whatever
follows the last read can be cut without changing a score.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """Token ids and the positions to read, one per step."""

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    prefix: int
    """How many leading tokens hold the question; every solution of that question starts with them."""

    def cut(self, limit: int) -> Prompt:
        """The prompt as far as it has to be computed: the reads within `limit` tokens, and no token after the last."""
        reads = tuple(read for read in self.reads if read < limit)
        end = reads[-1] + 1 if reads else 0
        return Prompt(self.ids[:end], reads, min(self.prefix, end))
