"""A prompt: what a model is given for one solution, and where its answer is read.

The rule: reads stand in the order of the steps, one a step unless `ends` says otherwise. A read sees only the tokens up
to itself, so whatever follows the last read can be cut without changing a score.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """Token ids and the positions to read."""

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    prefix: int
    """How many leading tokens hold the question; every solution of that question starts with them."""
    targets: tuple[int, ...] = ()
    """For each read the token whose log-probability is asked for; empty where a read asks for no token."""
    ends: tuple[int, ...] = ()
    """For each step, how many reads it and the steps before it have together; empty where each step has one."""

    @property
    def steps(self) -> int:
        """How many steps are read."""
        return len(self.ends) if self.ends else len(self.reads)

    def cut(self, limit: int) -> Prompt:
        """The prompt as far as it has to be computed: the steps read within `limit` tokens, no token after the last."""
        count = sum(read < limit for read in self.reads)
        ends = tuple(end for end in self.ends if end <= count)
        if self.ends:
            count = ends[-1] if ends else 0
        reads = self.reads[:count]
        end = reads[-1] + 1 if reads else 0
        return Prompt(self.ids[:end], reads, min(self.prefix, end), self.targets[:count], ends)
