"""The scheduler between packs: preemption, fairness, cancellation, failures of suspended batches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from itertools import pairwise
from math import log2
from typing import Any

import pytest

import surefoot
from helpers.paused_engine import PACK, Engine, occupy, prompt, wait_until
from surefoot.core.prompt import Prompt
from surefoot.engine.results import PackResults
from surefoot.errors import UnreachableError
from surefoot.serve.fair_queue import PendingRequest
from surefoot.serve.running_batch import Batch
from surefoot.serve.scheduler import Scheduler

LONG = 8192
LONG_PACKS = LONG // PACK


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.go.set()


def long(last: int, tokens: int = LONG) -> Prompt:
    """A prompt without a question, so that it shares nothing."""
    return prompt(last, tokens=tokens, shared=0)


@pytest.mark.parametrize(
    ("lengths", "packs", "waits"),
    [
        ([LONG], 1, 1),
        ([LONG], 12, 1),
        ([LONG], 14, 1),
        ([LONG - PACK + 200], 14, 2),  # a prompt that has less than half a pack left is not suspended
        ([LONG] * 4, 3, 1),
        # The virtual time has passed the tags of the last ones of a burst long before they run.
        ([LONG] * 4, 2 * LONG_PACKS + 3, 1),
        ([LONG] * 4, 3 * LONG_PACKS + 3, 1),
        ([LONG] * 6, 4 * LONG_PACKS + 3, 1),
        # The second one does not fit on top of the first, although its tag is smaller. Nobody waits for it.
        ([LONG, 6000], 2, 1),
        ([LONG, 6000], LONG_PACKS + 3, 1),
        ([LONG, 6000, 6000, 6000], LONG_PACKS + 3, 1),
        ([LONG] * 40, 200, 1),
    ],
)
def test_a_small_request_waits_for_one_pack(engine: Engine, lengths: list[int], packs: int, waits: int) -> None:
    scheduler = Scheduler(engine, linger=0)
    requests = [scheduler.submit([long(1, tokens)]) for tokens in lengths]
    engine.run(packs)
    small = scheduler.submit([prompt(7, tokens=60, question=2)])
    engine.run(waits + 1)
    assert small.future.result(20) == [[7.0]]
    assert engine.packs[packs:] == [[1]] * waits + [[7]]
    engine.go.set()
    assert all(request.future.result(20) == [[1.0]] for request in requests)
    scheduler.close()


@pytest.mark.parametrize("tokens", [60, 500])
def test_each_of_many_small_requests_waits_for_two_packs(engine: Engine, tokens: int) -> None:
    """One after the other, each sent as soon as the last is answered: the long prompt computes a pack in between."""
    scheduler = Scheduler(engine, linger=0)
    requests = [scheduler.submit([long(1)]) for _ in range(3)]
    engine.run()
    waits: list[int] = []

    def again(future: Future[Any] | None = None) -> None:
        if future is not None:
            waits.append(len(engine.packs) - sent[-1] - 1)
        if len(waits) < 40:
            sent.append(len(engine.packs))
            scheduler.submit([prompt(2, tokens=tokens, question=2)]).future.add_done_callback(again)

    sent: list[int] = []
    again()
    engine.go.set()
    assert all(request.future.result(20) == [[1.0]] for request in requests)
    scheduler.close()
    assert len(waits) == 40
    assert max(waits) <= 2


def test_a_small_request_behind_a_list_waits_for_one_pack(engine: Engine) -> None:
    """A list whose prompts are as small: the request as a whole counts, also while its prompts wait in the queue."""
    scheduler = Scheduler(engine, linger=0)
    many = scheduler.submit([prompt(number, tokens=300, shared=100) for number in range(100, 160)])
    engine.run(2)
    small = scheduler.submit([prompt(7, tokens=300, question=2)])
    engine.run(2)
    assert small.future.result(20) == [[7.0]]
    engine.go.set()
    assert many.future.result(20) == [[float(number)] for number in range(100, 160)]
    scheduler.close()


def test_a_request_is_delivered_as_soon_as_it_is_computed(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=1)
    occupy(engine, scheduler)
    requests = [scheduler.submit([prompt(number, tokens=300, question=number)]) for number in (1, 2, 3)]
    engine.run(2)
    assert requests[0].future.result(20) == [[1.0]]
    assert [len(batch) for batch in engine.batches] == [1, 3]
    assert not requests[2].future.done()
    engine.go.set()
    assert [request.future.result(20) for request in requests] == [[[1.0]], [[2.0]], [[3.0]]]
    scheduler.close()


def test_small_requests_do_not_share_a_batch_with_a_long_prompt(engine: Engine) -> None:
    """Although the budget of a batch is large, because many requests are queued."""
    scheduler = Scheduler(engine, linger=0)
    occupy(engine, scheduler)
    requests = [scheduler.submit([prompt(number, tokens=20, question=number)]) for number in range(40)]
    requests.insert(20, scheduler.submit([long(50, 2000)]))
    engine.go.set()
    for request in requests:
        request.future.result(20)
    scheduler.close()
    batches = [[each.ids[-1] for each in batch] for batch in engine.batches[1:]]
    assert [50] in batches
    assert max(len(batch) for batch in batches) > 10


def test_equal_requests_do_not_preempt_each_other(engine: Engine) -> None:
    """A burst of them, in batches of several packs: the virtual time passes the tags of the last ones."""
    scheduler = Scheduler(engine, linger=0.2, batch_seconds=1)
    requests = [scheduler.submit([prompt(number, tokens=500, question=number)]) for number in range(64)]
    engine.go.set()
    for number, request in enumerate(requests):
        assert request.future.result(20) == [[float(number)]]
    scheduler.close()
    assert engine.most_open == 1
    assert max(len(batch) for batch in engine.batches) > 8


@pytest.mark.parametrize(("clients", "tokens"), [(1, 60), (1, 500), (3, 60), (3, 500), (12, 500)])
def test_small_requests_do_not_starve_a_long_prompt(engine: Engine, clients: int, tokens: int) -> None:
    """Clients that always have a request in flight get their fair share until the long prompt is done, but no more."""
    scheduler = Scheduler(engine, linger=0)
    asked = scheduler.submit([long(1)])
    engine.run()
    done: list[float] = []

    def again(future: Future[Any] | None = None) -> None:
        if future is not None:
            done.append(future.result()[0][0])
        if not asked.future.done() and len(done) < 10_000:
            # This runs in the thread of the engine, before it decides what comes next.
            scheduler.submit([prompt(2, tokens=tokens, question=len(done))]).future.add_done_callback(again)

    for _ in range(clients):
        again()
    engine.go.set()
    assert asked.future.result(60) == [[1.0]]
    computed = len(done) * tokens
    scheduler.close()
    # Each client may get as many tokens as the long prompt; the last batch may exceed that.
    assert computed <= clients * (LONG + 2 * tokens)
    assert computed >= LONG_PACKS / 2 * tokens, "small requests were not blocked either"


def test_preempted_prompts_have_the_same_scores(scorer: surefoot.Scorer) -> None:
    """With a real model, whose buffer for keys and values is shared."""
    question, before = "What is 2 + 3 * 4?", scorer.engine.budget
    items = [("A long one.", ["Now 3 * 4 = 12."] * 400), *((f"{question} {n}", [f"It is {n}."] * 3) for n in range(8))]
    prompts = [scorer.family.render(scorer.tokenizer, *item) for item in items]
    assert len(prompts[0].ids) > 3000
    order: list[int] = []
    requests: list[PendingRequest] = []

    def packs(asked: list[Prompt]) -> PackResults:
        for result in scorer.packs(asked):
            order.append(prompts.index(asked[0]))
            if len(order) % 3 == 0 and len(requests) < len(prompts):
                requests.append(scheduler.submit([prompts[len(requests)]]))
            yield result

    scorer.engine.budget = 64
    try:
        scheduler = Scheduler(packs, linger=0)  # type: ignore[arg-type]
        requests.append(scheduler.submit([prompts[0]]))
        wait_until(lambda: len(requests) == len(prompts))
        found = [request.future.result(60) for request in requests]
        scheduler.close()
        assert sum(one != other for one, other in pairwise(order)) > 8, "the long one was preempted"
        for rows, each in zip(found, prompts, strict=True):
            (alone,) = scorer.engine.scores([each])
            assert rows[0] == pytest.approx(alone.tolist(), abs=1e-5)
    finally:
        scorer.engine.budget = before


def test_suspended_batches_are_few(engine: Engine) -> None:
    """Each has at most half of the tokens of the one that it suspends, although ever smaller requests arrive."""
    scheduler = Scheduler(engine, linger=0)
    sizes = [round(65_536 / 1.25**power) for power in range(32)]
    requests = []
    for number, size in enumerate(sizes):
        requests.append(scheduler.submit([long(number, size)]))
        engine.run()
    engine.go.set()
    assert [request.future.result(60) for request in requests] == [[[float(number)]] for number in range(len(sizes))]
    scheduler.close()
    # A batch with at least half a pack left is suspended: 65,536 tokens, then at most 32,768, down to 256 and 128.
    assert 4 <= engine.most_open <= log2(65_536 / (PACK / 2)) + 2


def test_a_cancelled_long_prompt_stops_after_the_current_pack(engine: Engine) -> None:
    seen: list[Batch] = []
    scheduler = Scheduler(engine, linger=0, observe=seen.append)
    left = scheduler.submit([long(1)])
    engine.run(2)
    assert left.future.cancel()
    waiting = scheduler.submit([long(2, 600)])
    engine.run(3)
    assert waiting.future.result(20) == [[2.0]]
    assert engine.packs == [[1], [1], [1], [2], [2]]
    assert engine.cancelled == 1
    wait_until(lambda: scheduler.tokens == 0 and not scheduler.busy)
    with pytest.raises(CancelledError):
        left.future.result()
    scheduler.close()
    assert [(batch.tokens, batch.prompts) for batch in seen] == [(3 * PACK, 1), (600, 1)]
    assert seen[1].rate == pytest.approx(600 / seen[1].seconds), "a cancelled batch says nothing about the rate"


def test_a_suspended_batch_is_cancelled_too(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0)
    left = scheduler.submit([long(1)])
    engine.run()
    medium = scheduler.submit([long(2, 3000)])
    engine.run(2)
    assert engine.open == 2
    left.future.cancel()
    engine.run()
    wait_until(lambda: engine.open == 1)
    engine.go.set()
    assert medium.future.result(20) == [[2.0]]
    scheduler.close()
    assert engine.packs.count([1]) == 2


@pytest.mark.parametrize(
    ("cancelled", "live", "restarted"),
    # The engine begins with the first live prompt. If that fits into one pack, it is complete before the batch ends.
    [(3000, 600, [2, 3]), (3000, 60, [3]), (600, 3000, [])],
)
def test_live_prompts_of_a_batch_with_cancelled_ones_are_answered(
    engine: Engine, cancelled: int, live: int, restarted: list[int]
) -> None:
    scheduler = Scheduler(engine, linger=0)
    occupy(engine, scheduler)
    left = scheduler.submit([prompt(1, tokens=cancelled)])
    stays = scheduler.submit([prompt(2, tokens=live), prompt(3, tokens=60)])
    engine.run()
    wait_until(lambda: len(engine.batches) == 2)
    assert len(engine.batches[1]) == 3
    left.future.cancel()
    engine.go.set()
    assert stays.future.result(20) == [[2.0], [3.0]]
    scheduler.close()
    assert engine.cancelled == bool(restarted)
    assert [[each.ids[-1] for each in batch] for batch in engine.batches[2:]] == [[last] for last in restarted]


def test_clients_that_cancel_do_not_keep_a_live_prompt_from_finishing(engine: Engine) -> None:
    """They send prompts of its question, which go into its batch, and cancel them after the first pack."""
    scheduler = Scheduler(engine, linger=0.2, queue_tokens=1 << 40)
    others = [scheduler.submit([prompt(number, tokens=3000)]) for number in range(10, 14)]
    stays = scheduler.submit([prompt(1, tokens=900)])
    for number in range(20, 60):
        engine.run()
        if stays.future.done():
            break
        for other in others:
            other.future.cancel()
        others = [scheduler.submit([prompt(number, tokens=3000)]) for _ in range(4)]
    assert stays.future.result(0) == [[1.0]]
    assert sum(any(each.ids[-1] == 1 for each in batch) for batch in engine.batches) <= 2
    for other in others:
        other.future.cancel()
    engine.go.set()
    scheduler.close()


def test_a_suspended_batch_that_fails_affects_nobody_else(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(engine, linger=0)
    bad = scheduler.submit([long(667, 4000)])
    engine.run()
    small = scheduler.submit([prompt(1, tokens=60)])
    engine.run(2)
    assert small.future.result(20) == [[1.0]]
    other = scheduler.submit([long(2, 4000)])
    engine.go.set()
    (row,) = bad.future.result(20)
    assert isinstance(row, RuntimeError)
    assert other.future.result(20) == [[2.0]]
    scheduler.close()
    assert engine.packs.count([667]) == 2
    assert caplog.text.count("failed on a prompt of 4000 tokens") == 1
    assert (scheduler.tokens, scheduler.busy) == (0, False)


def test_prompts_that_were_computed_before_a_failure_keep_their_rows(engine: Engine) -> None:
    """The engine fails in the third pack, because of a prompt that it can compute only alone."""
    scheduler = Scheduler(engine, linger=0.2)
    request = scheduler.submit([prompt(number, tokens=400, shared=100) for number in (1, 2, 667, 3)])
    bystander = scheduler.submit([prompt(4, tokens=300, question=7)])
    engine.go.set()
    rows = request.future.result(20)
    assert [row if isinstance(row, list) else None for row in rows] == [[1.0], [2.0], [667.0], [3.0]]
    assert bystander.future.result(20) == [[4.0]]
    scheduler.close()
    retried = [each.ids[-1] for batch in engine.batches[1:] if len(batch) == 1 for each in batch]
    assert 1 not in retried
    assert {667, 3} <= set(retried)


def test_an_unreachable_engine_fails_only_the_batch_that_it_computes(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0)
    first = scheduler.submit([long(1)])
    engine.run()
    bad = scheduler.submit([prompt(503, tokens=60), prompt(2, tokens=60)])
    engine.go.set()
    assert all(isinstance(row, UnreachableError) for row in bad.future.result(20))
    assert first.future.result(20) == [[1.0]]
    scheduler.close()


def test_an_engine_that_forgets_a_prompt_is_an_error() -> None:
    def packs(prompts: Any) -> PackResults:
        yield from ()

    scheduler = Scheduler(packs, linger=0)
    (row,) = scheduler.submit([long(1, 10)]).future.result(20)
    assert "returned no scores for 1 prompts" in str(row)
    scheduler.close()
