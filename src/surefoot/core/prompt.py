"""A prompt: the tokens that a model gets for one solution, and the positions at which its output is read.

Invariant: reads are in the order of the steps, one per step unless `ends` says otherwise. A read depends only on the
tokens up to its position, so the tokens after the last read can be cut without changing a score.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """Token ids and the positions to read."""

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    prefix: int
    """Number of leading tokens that hold the question; every solution to that question starts with them."""
    targets: tuple[int, ...] = ()
    """The token whose log-probability is read, one per read; empty if no log-probabilities are read."""
    ends: tuple[int, ...] = ()
    """Cumulative number of reads after each step; empty if every step has exactly one."""

    @property
    def steps(self) -> int:
        """Number of steps that are read."""
        return len(self.ends) if self.ends else len(self.reads)

    def cut(self, limit: int) -> Prompt:
        """Return the part of the prompt to compute: the steps read within `limit` tokens, up to the last read."""
        count = sum(read < limit for read in self.reads)
        ends = tuple(end for end in self.ends if end <= count)
        if self.ends:
            count = ends[-1] if ends else 0
        reads = self.reads[:count]
        end = reads[-1] + 1 if reads else 0
        return Prompt(self.ids[:end], reads, min(self.prefix, end), self.targets[:count], ends)
