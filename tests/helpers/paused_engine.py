"""An engine to test the scheduler with: it can be paused, and records what it is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from surefoot.core.prompt import Prompt
from surefoot.engine.results import PackResult, PackResults
from surefoot.errors import ServiceError, UnreachableError
from surefoot.serve.scheduler import Scheduler

PACK = 512


class Engine:
    """An engine that can be paused before each pack, and that records its batches and packs.

    A pack has at most 512 tokens. The score of a prompt is its last id, which also says if and when it fails.
    """

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()
        self.batches: list[list[Prompt]] = []
        self.packs: list[list[int]] = []
        """The last ids of the prompts in each pack."""
        self.open = self.most_open = self.cancelled = 0
        """Calls that have computed a pack and are not done; and how many were cancelled."""
        self._permits = threading.Semaphore(0)

    def __call__(self, prompts: Sequence[Prompt]) -> PackResults:
        self.batches.append(list(prompts))
        self.entered.set()
        self._wait()
        if any(prompt.ids[-1] == 666 for prompt in prompts):
            raise RuntimeError("this prompt breaks the engine")
        if any(prompt.ids[-1] == 503 for prompt in prompts):
            raise UnreachableError("the remote engine is down")
        if any(prompt.ids[-1] == 400 for prompt in prompts):
            raise ServiceError("the remote engine rejects this prompt")
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            packs = list(self._cut(prompts))
            for number, pack in enumerate(packs):
                if number:
                    self._wait()
                if number == 2 and any(prompts[index].ids[-1] == 667 for index, _, _ in pack):
                    raise RuntimeError("this prompt breaks the engine late")
                self.packs.append([prompts[index].ids[-1] for index, _, _ in pack])
                completed = [(index, torch.tensor([float(prompts[index].ids[-1])])) for index, _, end in pack if end]
                yield PackResult(sum(tokens for _, tokens, _ in pack), tuple(completed))
        except GeneratorExit:
            self.cancelled += number + 1 < len(packs)
            raise
        finally:
            self.open -= 1

    def run(self, packs: int = 1) -> None:
        """Lets the engine compute this many packs, and waits for them."""
        until = len(self.packs) + packs
        for _ in range(packs):
            self._permits.release()
        wait_until(lambda: len(self.packs) == until)

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while not self.go.is_set() and not self._permits.acquire(timeout=0.005):
            assert time.monotonic() < deadline

    @staticmethod
    def _cut(prompts: Sequence[Prompt]) -> Iterator[list[tuple[int, int, bool]]]:
        """Packs of prompts: for each its index, its tokens in the pack, and whether it ends there."""
        pack: list[tuple[int, int, bool]] = []
        room = PACK
        questions: set[tuple[int, ...]] = set()
        for index, prompt in enumerate(prompts):
            question = prompt.ids[: prompt.prefix]
            left = len(prompt.ids) - (prompt.prefix if question in questions else 0)
            questions.add(question)
            while left:
                if room < min(left, PACK):
                    yield pack
                    pack, room = [], PACK
                tokens = min(left, PACK)
                left, room = left - tokens, room - tokens
                pack.append((index, tokens, left == 0))
        yield pack


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def prompt(last: int, tokens: int = 10, question: int = 1, shared: int = 5) -> Prompt:
    ids = (*[question] * shared, *[last] * (tokens - shared))
    return Prompt(ids, (tokens - 1,), shared)


def occupy(engine: Engine, scheduler: Scheduler) -> None:
    """Occupies the engine, so that later requests are queued."""
    scheduler.submit([prompt(0)])
    assert engine.entered.wait(20)
