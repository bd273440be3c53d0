"""A generator whose rollouts follow a script, so that labels can be computed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from surefoot.core.generation import Continuation, EndState, Generation, GenerationRequest

GOLD = "120"
STEPS = ["First.", "Second.", "Third.", "Fourth."]
RIGHT = "The answer is \\boxed{120}."
WRONG = "The answer is \\boxed{121}."
ENDINGS: dict[str, tuple[str, EndState]] = {
    "R": (RIGHT, "answer"),
    "W": (WRONG, "answer"),
    "N": ("I do not know.", "answer"),
    "U": ("The answer is \\boxed{2 hours}.", "answer"),  # 120 minutes, or is it? `same_answer` says None
    "C": ("Let me think about", "cut_off"),
    "E": ("", "error"),
}


def solution(last: str = RIGHT, steps: int = 4) -> str:
    """A solution of `steps` steps and a last one that states the answer."""
    return "\n\n".join([*STEPS[:steps], last])


@dataclass
class Script:
    """Continues a prefix after n steps as the n-th text says, one letter per rollout, from the start again at its end.

    R is right, W wrong, N states no answer, U cannot be compared, C is cut off, E fails.
    """

    plan: Mapping[int, str]
    name: str = "script"
    fingerprint: str = "script-1"
    continues: bool = True
    requests: list[GenerationRequest] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)

    async def check(self) -> None:
        """Accept everything."""

    async def close(self) -> None:
        """Release nothing."""

    async def generate(self, request: GenerationRequest) -> Generation:
        assert request.step_end is None
        self.requests.append(request)
        depth = request.prefix.count("\n\n")
        letters, found = self.plan[depth], []
        for index in range(request.n):
            key = f"{request.question}|{request.prefix}"
            text, end = ENDINGS[letters[self.used[key] % len(letters)]]
            self.used[key] += 1
            text = text if end == "error" else "\n\n".join([*STEPS[depth:], text])
            tokens = len(text.split())
            if tokens > request.max_tokens:
                text, end, tokens = " ".join(text.split()[: request.max_tokens]), "cut_off", request.max_tokens
            reason = "the script says so" if end == "error" else None
            found.append(Continuation(text, end, tokens, request.seed_of(index), reason))
        return Generation(tuple(found), len(request.prefix.split()) + 1, 1)

    @property
    def rollouts(self) -> dict[int, int]:
        """How many continuations were requested after n steps."""
        counts = Counter[int]()
        for request in self.requests:
            counts[request.prefix.count("\n\n")] += request.n
        return dict(counts)
