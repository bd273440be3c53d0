"""The scheduler: batching, fairness, limits, cancellation, failures. No HTTP, and no model but a small checkpoint."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

import surefoot
from helpers.paused_engine import Engine, occupy, prompt
from surefoot.core.prompt import Prompt
from surefoot.errors import ServiceError, UnreachableError
from surefoot.scoring.pipeline import PreparedSolution
from surefoot.serve.running_batch import Batch
from surefoot.serve.scheduler import ClosedError, QueueFullError, Scheduler, TooLargeError


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.go.set()


def test_concurrent_requests_share_a_batch(engine: Engine) -> None:
    seen: list[Batch] = []
    scheduler = Scheduler(engine, linger=0.2, observe=seen.append)
    engine.go.set()
    requests = [scheduler.submit([prompt(number)]) for number in range(8)]
    assert [request.future.result(20) for request in requests] == [[[float(number)]] for number in range(8)]
    assert len(engine.batches) == 1
    scheduler.close()
    assert (seen[0].prompts, seen[0].requests, seen[0].tokens) == (8, 8, 5 + 8 * 5)


def test_an_announced_request_is_waited_for(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=20)
    engine.go.set()
    with scheduler.expecting():
        first = scheduler.submit([prompt(1)])
        time.sleep(0.05)
        assert not first.future.done()
        second = scheduler.submit([prompt(2)])
    assert [request.future.result(20) for request in (first, second)] == [[[1.0]], [[2.0]]]
    assert len(engine.batches) == 1
    # An announced request that never arrives delays the others only briefly.
    hasty = Scheduler(engine, linger=0, batch_seconds=0.05)
    with hasty.expecting():
        assert hasty.submit([prompt(3)]).future.result(20) == [[3.0]]
    scheduler.close()
    hasty.close()


def test_a_small_request_is_not_blocked_by_a_large_one(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=0)  # the smallest batches: 512 tokens, at most twice that
    occupy(engine, scheduler)
    large = scheduler.submit([prompt(number, tokens=100, shared=0) for number in range(200)])
    small = scheduler.submit([prompt(777, question=2)])
    engine.go.set()
    assert small.future.result(20) == [[777.0]]
    assert large.future.result(20) == [[float(number)] for number in range(200)]
    assert any(prompt.ids[-1] == 777 for part in engine.batches[1:3] for prompt in part)
    assert len(engine.batches) > 10
    scheduler.close()


def test_two_large_requests_advance_together(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=0)
    occupy(engine, scheduler)
    first = scheduler.submit([prompt(1, tokens=100, shared=0) for _ in range(60)])
    second = scheduler.submit([prompt(2, tokens=100, shared=0) for _ in range(60)])
    engine.go.set()
    first.future.result(20), second.future.result(20)
    scheduler.close()
    order = [prompt.ids[-1] for part in engine.batches[1:] for prompt in part]
    middle = order[: len(order) // 2]
    assert abs(middle.count(1) - middle.count(2)) <= 2


def test_a_short_prompt_is_not_blocked_by_long_prompts(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=0)
    occupy(engine, scheduler)
    long = [scheduler.submit([prompt(1, tokens=4000, shared=0)]) for _ in range(20)]
    small = scheduler.submit([prompt(777, tokens=60, question=2)])
    engine.go.set()
    small.future.result(20)
    for request in long:
        request.future.result(20)
    scheduler.close()
    before = next(at for at, part in enumerate(engine.batches) if part[0].ids[-1] == 777 or part[-1].ids[-1] == 777)
    assert before <= 2


def test_long_prompts_do_not_starve_a_list(engine: Engine) -> None:
    """A list of 25,600 tokens and eight clients that send 4,000 at a time: after 9 such rounds the list is done."""
    scheduler = Scheduler(engine, linger=0, batch_seconds=0)
    occupy(engine, scheduler)
    asked = scheduler.submit([prompt(1, tokens=400, shared=0) for _ in range(64)])
    clients = [scheduler.submit([prompt(2, tokens=4000, shared=0)]) for _ in range(8)]
    rounds = 0
    engine.go.set()
    while not asked.future.done():
        clients.pop(0).future.result(20)
        clients.append(scheduler.submit([prompt(2, tokens=4000, shared=0)]))
        rounds += 1
        assert rounds < 8 * 12, "the list was starved"
    scheduler.close()


def test_a_rejected_prompt_does_not_change_the_rate(engine: Engine) -> None:
    seen: list[Batch] = []
    scheduler = Scheduler(engine, linger=0, observe=seen.append)
    engine.go.set()
    (row,) = scheduler.submit([prompt(400, tokens=4000)]).future.result(20)
    assert isinstance(row, ServiceError)
    scheduler.close()
    assert scheduler.rate is None
    assert [(part.tokens, part.rate) for part in seen] == [(0, None)]


def test_the_first_rate_is_the_first_measurement(engine: Engine) -> None:
    """It is not mixed with an assumption. A batch of few tokens says nothing about the rate."""
    seen: list[Batch] = []
    scheduler = Scheduler(engine, linger=0, observe=seen.append)
    engine.go.set()
    scheduler.submit([prompt(1, tokens=20)]).future.result(20)
    scheduler.submit([prompt(1, tokens=4000)]).future.result(20)
    scheduler.close()
    assert [part.rate is None for part in seen] == [True, False]
    assert seen[1].rate == pytest.approx(4000 / seen[1].seconds)


def test_cancelling_is_as_cheap_as_submitting(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, queue_tokens=1 << 40)
    occupy(engine, scheduler)
    stay = scheduler.submit([prompt(1) for _ in range(20_000)])
    others = [scheduler.submit([prompt(2)]) for _ in range(2_000)]
    began = time.process_time()
    for request in others:
        request.future.cancel()
    assert time.process_time() - began < 1.0, "each cancellation scanned the queue"
    engine.go.set()
    assert len(stay.future.result(60)) == 20_000
    scheduler.close()


def test_solutions_of_one_question_share_a_batch_across_requests(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=0)
    occupy(engine, scheduler)
    # 16 requests, four questions of 200 tokens, in turn: in order of arrival a batch would contain all four questions.
    requests = [scheduler.submit([prompt(9, tokens=250, shared=200, question=number % 4)]) for number in range(16)]
    engine.go.set()
    for request in requests:
        request.future.result(20)
    scheduler.close()
    for part in engine.batches[1:]:
        questions = [prompt.ids[0] for prompt in part]
        assert all(questions.count(question) == 4 for question in set(questions))


def test_the_solutions_of_one_question_are_split_above_the_limit(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=0)
    occupy(engine, scheduler)
    request = scheduler.submit([prompt(9, tokens=250, shared=50) for _ in range(60)])
    engine.go.set()
    request.future.result(20)
    scheduler.close()
    # 50 shared tokens and 20 times 200 fit into 4,096.
    assert [len(part) for part in engine.batches[1:]] == [20, 20, 20]


@pytest.mark.parametrize(("tokens_per_second", "batches"), [(1_000, [10]), (1_000_000, [2, 2, 2, 2, 2])])
def test_work_is_reserved_for_the_round_trip_of_replies(
    engine: Engine, tokens_per_second: float, batches: list[int]
) -> None:
    scheduler = Scheduler(engine, linger=0, batch_seconds=60)
    occupy(engine, scheduler)
    scheduler.rate = tokens_per_second
    requests = [scheduler.submit([prompt(9, tokens=400, shared=0)]) for _ in range(10)]
    engine.go.set()
    for request in requests:
        request.future.result(20)
    scheduler.close()
    # Ten replies take 80 ms: that is 80 tokens of a slow engine, not worth a batch, and 80,000 of a fast one.
    assert [len(part) for part in engine.batches[1:]] == batches


def test_scores_do_not_depend_on_the_batch(scorer: surefoot.Scorer) -> None:
    question = "What is 2 + 3 * 4?"
    items = [(question, [f"3 * 4 = {number}.", "So it is done."]) for number in range(6)]
    jobs = [job for job in scorer.pipeline.prepare(items) if isinstance(job, PreparedSolution)]
    scheduler = Scheduler(scorer.packs, linger=0.05)
    requests = [scheduler.submit(job.readable) for job in jobs]
    for job, item, request in zip(jobs, items, requests, strict=True):
        (row,) = request.future.result(60)
        assert isinstance(row, list)
        (result,) = scorer.pipeline.finish([job], [row], 0.0)
        assert result.step_scores == pytest.approx(scorer.score(*item).step_scores, abs=1e-5)
    scheduler.close()


@pytest.mark.parametrize("rate", [None, 35.0])
def test_a_full_queue_says_when_to_retry(engine: Engine, rate: float | None) -> None:
    scheduler = Scheduler(engine, queue_tokens=100)
    scheduler.rate = rate
    occupy(engine, scheduler)
    waiting = scheduler.submit([prompt(1, tokens=80)])
    with pytest.raises(QueueFullError) as rejected:
        scheduler.submit([prompt(2, tokens=80)])
    # 10 tokens are being computed and 80 are queued: this request fits when 70 of them are done, not all.
    assert rejected.value.retry_after == (None if rate is None else 2.0)
    with pytest.raises(TooLargeError, match="has 101 tokens"):
        scheduler.submit([prompt(2, tokens=101)])
    engine.go.set()
    assert waiting.future.result(20) == [[1.0]]
    assert scheduler.submit([prompt(3, tokens=80)]).future.result(20) == [[3.0]]
    scheduler.close()


def test_a_cancelled_request_is_dequeued(engine: Engine) -> None:
    scheduler = Scheduler(engine, queue_tokens=100)
    occupy(engine, scheduler)
    before = scheduler.tokens
    left = scheduler.submit([prompt(1, tokens=40), prompt(2, tokens=30)])
    assert scheduler.tokens == before + 40 + 25
    assert left.future.cancel()
    assert scheduler.tokens == before
    stays = scheduler.submit([prompt(3, tokens=80)])
    engine.go.set()
    assert stays.future.result(20) == [[3.0]]
    with pytest.raises(CancelledError):
        left.future.result()
    scheduler.close()
    assert all(prompt.ids[-1] not in (1, 2) for part in engine.batches for prompt in part)


def test_cancelled_requests_do_not_accumulate(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    occupy(engine, scheduler)
    cancelled = []
    for number in range(1000):
        request = scheduler.submit([prompt(number)])
        assert request.future.cancel()
        cancelled.append(weakref.ref(request))
    del request
    gc.collect()
    assert sum(each() is not None for each in cancelled) < 200
    engine.go.set()
    scheduler.close()


@pytest.mark.parametrize(("number", "kind"), [(666, RuntimeError), (400, ServiceError)], ids=["local", "remote"])
def test_a_failing_prompt_does_not_affect_its_batch(
    engine: Engine, caplog: pytest.LogCaptureFixture, number: int, kind: type[Exception]
) -> None:
    """The local engine fails on it, or a remote engine rejects it."""
    scheduler = Scheduler(engine, linger=0.1)
    engine.go.set()
    requests = [scheduler.submit([prompt(1), prompt(number)]), scheduler.submit([prompt(2)])]
    good, bad = requests[0].future.result(20)
    assert good == [1.0]
    assert isinstance(bad, kind)
    assert requests[1].future.result(20) == [[2.0]]
    assert "failed on a prompt of 10 tokens" in caplog.text
    scheduler.close()


def test_an_unreachable_engine_is_tried_once(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0.1)
    engine.go.set()
    rows = scheduler.submit([prompt(1), prompt(503)]).future.result(20)
    assert all(isinstance(row, UnreachableError) for row in rows)
    assert len(engine.batches) == 1
    scheduler.close()


def test_closing_finishes_accepted_requests(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    occupy(engine, scheduler)
    requests = [scheduler.submit([prompt(number)]) for number in range(5)]
    closer = threading.Thread(target=scheduler.close)
    closer.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            scheduler.submit([prompt(9)])
        except ClosedError:
            break
        time.sleep(0.01)
    with pytest.raises(ClosedError):
        scheduler.submit([prompt(9)])
    engine.go.set()
    closer.join(20)
    assert [request.future.result(0) for request in requests] == [[[float(number)]] for number in range(5)]
    assert not scheduler.alive


def test_prompts_without_markers_are_answered_at_once(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    assert scheduler.submit([]).future.result(1) == []
    assert scheduler.submit([Prompt((), (), 0)]).future.result(1) == [[]]
    engine.go.set()
    scheduler.close()
    assert not engine.batches
