"""Small requests next to long prompts, as a part of load.py: how long they wait, in packs.

A pack is one forward pass, the unit in which the engine switches between requests. It is measured in the same run, with
one long prompt alone. The limit is three packs plus the time that the small request takes alone.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import dataclass

import httpx

from serve import check
from surefoot.scoring.scorer import Scorer

PACK_TOKENS = 512
MAX_PACKS = 3.0
SMALL = ("Tom has 3 bags of 4 apples and 2 more apples. How many apples?", ["3 * 4 = 12.", "12 + 2 = 14."])
ALONE = 15
"""Small requests that are sent alone."""

Item = tuple[str, list[str]]


@dataclass(frozen=True)
class LongRun:
    """Seconds of one run."""

    pack: float
    alone: float
    """A small request alone: the median."""
    small: list[float]
    """Each small request next to the long ones."""
    answered: int
    """Long prompts that were answered in the meantime."""
    idle_after: float
    """From the disconnection of the clients with long prompts until the engine was idle."""

    @property
    def p50(self) -> float:
        return statistics.median(self.small)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.small, n=100, method="inclusive")[98]

    def packs(self, seconds: float) -> float:
        """How many packs a small request waited that took this long."""
        return (seconds - self.alone) / self.pack


def long_item(scorer: Scorer, tokens: int, number: int) -> Item:
    """A solution whose prompt has at most this many tokens, and hardly fewer. It shares only the beginning."""
    step = f"We add {number} and 30, which gives {number + 30}, and then we go on to the next number."
    question = f"Client {number}: what comes next?"

    def size(steps: int) -> int:
        return len(scorer.family.render(scorer.tokenizer, question, [step] * steps).ids)

    one = size(2) - size(1)
    return question, [step] * ((tokens - size(1)) // one + 1)


async def run_long(url: str, scorer: Scorer, *, clients: int, tokens: int, seconds: float) -> LongRun:
    """Sends small requests alone, then next to clients that send long prompts all the time."""
    items = [long_item(scorer, tokens, number) for number in range(clients + 1)]
    (expected,) = [result.step_scores for result in scorer.score_many([SMALL])]
    rng = random.Random(0)
    answered = 0
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False) as http:

        async def ask(item: Item) -> tuple[float, list[float | None]]:
            started = time.perf_counter()
            reply = await http.post("/v1/score", json={"items": [{"question": item[0], "steps": item[1]}]})
            reply.raise_for_status()
            return time.perf_counter() - started, [step["score"] for step in reply.json()["results"][0]["steps"]]

        async def small() -> float:
            taken, found = await ask(SMALL)
            check(found, expected)
            await asyncio.sleep(rng.random() * 0.1)  # a client that takes a moment
            return taken

        async def send_long(item: Item) -> None:
            nonlocal answered
            while True:
                _, found = await ask(item)
                assert None not in found
                answered += 1

        alone = statistics.median([await small() for _ in range(ALONE)])
        length = len(scorer.family.render(scorer.tokenizer, *items[-1]).ids)
        pack = (await ask(items[-1]))[0] / -(-length // PACK_TOKENS)
        senders = [asyncio.create_task(send_long(item)) for item in items[:-1]]
        await asyncio.sleep(4 * pack)  # all long prompts are queued
        waits = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            waits.append(await small())
        for sender in senders:
            sender.cancel()
        left = time.perf_counter()
        await asyncio.gather(*senders, return_exceptions=True)
        while not await _is_idle(http):
            await asyncio.sleep(0.1)  # more often would slow down the engine
        return LongRun(pack, alone, waits, answered, time.perf_counter() - left)


async def _is_idle(http: httpx.AsyncClient) -> bool:
    lines = (await http.get("/metrics")).text.splitlines()
    return all(float(line.split()[-1]) == 0 for line in lines if line.startswith("surefoot_queue_tokens{"))


def long_report(runs: list[LongRun]) -> dict[str, object]:
    """The medians of several runs, and the smallest and largest value."""

    def spread(values: list[float], digits: int = 3) -> str:
        return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"

    return {
        "small requests": sum(len(run.small) for run in runs),
        "long prompts answered": sum(run.answered for run in runs),
        "one pack, seconds": spread([run.pack for run in runs]),
        "small request alone, seconds": spread([run.alone for run in runs]),
        "p50 next to long prompts, seconds": spread([run.p50 for run in runs]),
        "p99 next to long prompts, seconds": spread([run.p99 for run in runs]),
        "p50 in packs": spread([run.packs(run.p50) for run in runs], 2),
        "p99 in packs": spread([run.packs(run.p99) for run in runs], 2),
        "idle after clients disconnect, packs": spread([run.idle_after / run.pack for run in runs], 2),
    }


def exceeds_limit(runs: list[LongRun]) -> bool:
    """Whether small requests wait for more than three packs: the 99th percentile, in the median run."""
    return statistics.median(run.packs(run.p99) for run in runs) > MAX_PACKS
