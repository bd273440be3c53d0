"""The queue before the engine: sharing, fairness, bounds, leaving, failing. No HTTP, no model but the small one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError

import pytest

import surefoot
from surefoot.core.prompt import Prompt
from surefoot.errors import ServiceError, UnreachableError
from surefoot.scoring.pipeline import PreparedSolution
from surefoot.serve.scheduler import ClosedError, QueueFullError, Scheduler, Slice, TooLargeError


class Engine:
    """An engine that can be held and that remembers its slices. The score of a prompt is its last id."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()
        self.slices: list[list[Prompt]] = []

    def __call__(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        self.slices.append(list(prompts))
        self.entered.set()
        assert self.go.wait(20)
        if any(prompt.ids[-1] == 666 for prompt in prompts):
            raise RuntimeError("this prompt breaks the engine")
        if any(prompt.ids[-1] == 503 for prompt in prompts):
            raise UnreachableError("the other machine is gone")
        if any(prompt.ids[-1] == 400 for prompt in prompts):
            raise ServiceError("the other machine does not take this prompt")
        return [[float(prompt.ids[-1])] for prompt in prompts]


def prompt(last: int, tokens: int = 10, question: int = 1, shared: int = 5) -> Prompt:
    ids = (*[question] * shared, *[last] * (tokens - shared))
    return Prompt(ids, (tokens - 1,), shared)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.go.set()


def held(engine: Engine, scheduler: Scheduler) -> None:
    """Occupies the engine, so that what follows has to wait."""
    scheduler.submit([prompt(0)])
    assert engine.entered.wait(20)


def test_what_arrives_together_is_computed_together(engine: Engine) -> None:
    seen: list[Slice] = []
    scheduler = Scheduler(engine, linger=0.2, observe=seen.append)
    engine.go.set()
    tickets = [scheduler.submit([prompt(number)]) for number in range(8)]
    assert [ticket.future.result(20) for ticket in tickets] == [[[float(number)]] for number in range(8)]
    assert len(engine.slices) == 1
    scheduler.close()
    assert (seen[0].prompts, seen[0].requests, seen[0].tokens) == (8, 8, 5 + 8 * 5)


def test_an_announced_request_is_waited_for(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, slice_seconds=20)
    engine.go.set()
    with scheduler.expecting():
        first = scheduler.submit([prompt(1)])
        time.sleep(0.05)
        assert not first.future.done()
        second = scheduler.submit([prompt(2)])
    assert [ticket.future.result(20) for ticket in (first, second)] == [[[1.0]], [[2.0]]]
    assert len(engine.slices) == 1
    # One who is announced and does not come holds nobody up for long.
    hasty = Scheduler(engine, linger=0, slice_seconds=0.05)
    with hasty.expecting():
        assert hasty.submit([prompt(3)]).future.result(20) == [[3.0]]
    scheduler.close()
    hasty.close()


def test_a_small_request_does_not_wait_for_a_large_one(engine: Engine) -> None:
    scheduler = Scheduler(
        engine, linger=0, slice_seconds=0
    )  # slices as small as they get: 512 tokens, at most twice that
    held(engine, scheduler)
    large = scheduler.submit([prompt(number, tokens=100, shared=0) for number in range(200)])
    small = scheduler.submit([prompt(777, question=2)])
    engine.go.set()
    assert small.future.result(20) == [[777.0]]
    assert large.future.result(20) == [[float(number)] for number in range(200)]
    assert any(prompt.ids[-1] == 777 for part in engine.slices[1:3] for prompt in part)
    assert len(engine.slices) > 10
    scheduler.close()


def test_two_large_requests_advance_together(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, slice_seconds=0)
    held(engine, scheduler)
    first = scheduler.submit([prompt(1, tokens=100, shared=0) for _ in range(60)])
    second = scheduler.submit([prompt(2, tokens=100, shared=0) for _ in range(60)])
    engine.go.set()
    first.future.result(20), second.future.result(20)
    scheduler.close()
    order = [prompt.ids[-1] for part in engine.slices[1:] for prompt in part]
    middle = order[: len(order) // 2]
    assert abs(middle.count(1) - middle.count(2)) <= 2


def test_one_of_few_tokens_does_not_wait_for_many_of_many(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, slice_seconds=0)
    held(engine, scheduler)
    long = [scheduler.submit([prompt(1, tokens=4000, shared=0)]) for _ in range(20)]
    small = scheduler.submit([prompt(777, tokens=60, question=2)])
    engine.go.set()
    small.future.result(20)
    for ticket in long:
        ticket.future.result(20)
    scheduler.close()
    before = next(at for at, part in enumerate(engine.slices) if part[0].ids[-1] == 777 or part[-1].ids[-1] == 777)
    assert before <= 2


def test_callers_of_long_prompts_do_not_pass_by_a_list(engine: Engine) -> None:
    """A list of 25,600 tokens and eight callers who send 4,000 at a time: after 9 such rounds the list is done."""
    scheduler = Scheduler(engine, linger=0, slice_seconds=0)
    held(engine, scheduler)
    asked = scheduler.submit([prompt(1, tokens=400, shared=0) for _ in range(64)])
    callers = [scheduler.submit([prompt(2, tokens=4000, shared=0)]) for _ in range(8)]
    rounds = 0
    engine.go.set()
    while not asked.future.done():
        callers.pop(0).future.result(20)
        callers.append(scheduler.submit([prompt(2, tokens=4000, shared=0)]))
        rounds += 1
        assert rounds < 8 * 12, "the list was passed by"
    scheduler.close()


def test_a_refusal_says_nothing_of_the_speed(engine: Engine) -> None:
    seen: list[Slice] = []
    scheduler = Scheduler(engine, linger=0, observe=seen.append)
    engine.go.set()
    rate = scheduler.rate
    (row,) = scheduler.submit([prompt(400, tokens=4000)]).future.result(20)
    assert isinstance(row, ServiceError)
    scheduler.close()
    assert scheduler.rate == rate
    assert [part.tokens for part in seen] == [0]


def test_leaving_costs_no_more_than_coming(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, queue_tokens=1 << 40)
    held(engine, scheduler)
    stay = scheduler.submit([prompt(1) for _ in range(20_000)])
    others = [scheduler.submit([prompt(2)]) for _ in range(2_000)]
    began = time.process_time()
    for ticket in others:
        ticket.future.cancel()
    assert time.process_time() - began < 1.0, "each one looked at all who wait"
    engine.go.set()
    assert len(stay.future.result(60)) == 20_000
    scheduler.close()


def test_a_question_is_kept_together_whoever_asks(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, slice_seconds=0)
    held(engine, scheduler)
    # Eight callers, four questions of 200 tokens, in turn: in the order of arrival a slice would hold all four.
    tickets = [scheduler.submit([prompt(9, tokens=250, shared=200, question=number % 4)]) for number in range(16)]
    engine.go.set()
    for ticket in tickets:
        ticket.future.result(20)
    scheduler.close()
    for part in engine.slices[1:]:
        questions = [prompt.ids[0] for prompt in part]
        assert all(questions.count(question) == 4 for question in set(questions))


def test_a_question_is_cut_where_it_is_longer_than_a_long_prompt(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0, slice_seconds=0)
    held(engine, scheduler)
    ticket = scheduler.submit([prompt(9, tokens=250, shared=50) for _ in range(60)])
    engine.go.set()
    ticket.future.result(20)
    scheduler.close()
    # 50 tokens that all share and 20 times 200 fit into 4,096.
    assert [len(part) for part in engine.slices[1:]] == [20, 20, 20]


@pytest.mark.parametrize(("tokens_a_second", "slices"), [(1_000, [10]), (1_000_000, [2, 2, 2, 2, 2])])
def test_work_is_left_for_the_time_that_answers_travel(
    engine: Engine, tokens_a_second: float, slices: list[int]
) -> None:
    scheduler = Scheduler(engine, linger=0, slice_seconds=60)
    held(engine, scheduler)
    scheduler.rate = tokens_a_second
    tickets = [scheduler.submit([prompt(9, tokens=400, shared=0)]) for _ in range(10)]
    engine.go.set()
    for ticket in tickets:
        ticket.future.result(20)
    scheduler.close()
    # Ten answers travel for 80 ms: that is 80 tokens of a slow engine, not worth a slice, and 80,000 of a fast one.
    assert [len(part) for part in engine.slices[1:]] == slices


def test_alone_or_together_through_the_queue(scorer: surefoot.Scorer) -> None:
    question = "What is 2 + 3 * 4?"
    items = [(question, [f"3 * 4 = {number}.", "So it is done."]) for number in range(6)]
    jobs = [job for job in scorer.pipeline.prepare(items) if isinstance(job, PreparedSolution)]
    scheduler = Scheduler(scorer.compute, linger=0.05)
    tickets = [scheduler.submit(job.readable) for job in jobs]
    for job, item, ticket in zip(jobs, items, tickets, strict=True):
        (row,) = ticket.future.result(60)
        assert isinstance(row, list)
        (result,) = scorer.pipeline.finish([job], [row], 0.0)
        assert result.step_scores == pytest.approx(scorer.score(*item).step_scores, abs=1e-5)
    scheduler.close()


def test_a_full_queue_says_when_to_come_back(engine: Engine) -> None:
    scheduler = Scheduler(engine, queue_tokens=100)
    held(engine, scheduler)
    waiting = scheduler.submit([prompt(1, tokens=80)])
    with pytest.raises(QueueFullError) as refused:
        scheduler.submit([prompt(2, tokens=80)])
    # 10 tokens are computed and 80 wait: this one fits when 70 of them are done, not when all are.
    assert refused.value.retry_after == pytest.approx(70 / scheduler.rate)
    with pytest.raises(TooLargeError, match="has 101 tokens"):
        scheduler.submit([prompt(2, tokens=101)])
    engine.go.set()
    assert waiting.future.result(20) == [[1.0]]
    assert scheduler.submit([prompt(3, tokens=80)]).future.result(20) == [[3.0]]
    scheduler.close()


def test_who_leaves_frees_the_place(engine: Engine) -> None:
    scheduler = Scheduler(engine, queue_tokens=100)
    held(engine, scheduler)
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
    assert all(prompt.ids[-1] not in (1, 2) for part in engine.slices for prompt in part)


def test_many_who_leave_do_not_pile_up(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    held(engine, scheduler)
    for number in range(1000):
        scheduler.submit([prompt(number)]).future.cancel()
    assert len(scheduler._heap) < 200
    assert not scheduler._groups
    engine.go.set()
    scheduler.close()


@pytest.mark.parametrize(("number", "kind"), [(666, RuntimeError), (400, ServiceError)], ids=["here", "elsewhere"])
def test_one_bad_prompt_does_not_spoil_its_slice(
    engine: Engine, caplog: pytest.LogCaptureFixture, number: int, kind: type[Exception]
) -> None:
    """Whether the engine here fails on it, or one elsewhere refuses it."""
    scheduler = Scheduler(engine, linger=0.1)
    engine.go.set()
    tickets = [scheduler.submit([prompt(1), prompt(number)]), scheduler.submit([prompt(2)])]
    good, bad = tickets[0].future.result(20)
    assert good == [1.0]
    assert isinstance(bad, kind)
    assert tickets[1].future.result(20) == [[2.0]]
    assert "failed on a prompt of 10 tokens" in caplog.text
    scheduler.close()


def test_an_engine_that_is_elsewhere_and_gone_is_asked_once(engine: Engine) -> None:
    scheduler = Scheduler(engine, linger=0.1)
    engine.go.set()
    rows = scheduler.submit([prompt(1), prompt(503)]).future.result(20)
    assert all(isinstance(row, UnreachableError) for row in rows)
    assert len(engine.slices) == 1
    scheduler.close()


def test_closing_finishes_what_was_taken(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    held(engine, scheduler)
    tickets = [scheduler.submit([prompt(number)]) for number in range(5)]
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
    assert [ticket.future.result(0) for ticket in tickets] == [[[float(number)]] for number in range(5)]
    assert not scheduler.alive


def test_nothing_to_read_is_answered_at_once(engine: Engine) -> None:
    scheduler = Scheduler(engine)
    assert scheduler.submit([]).future.result(1) == []
    assert scheduler.submit([Prompt((), (), 0)]).future.result(1) == [[]]
    engine.go.set()
    scheduler.close()
    assert not engine.slices
