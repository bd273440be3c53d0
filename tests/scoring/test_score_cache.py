"""The score cache: hits, misses, two processes, a killed one, and damaged files."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot
from surefoot.core.options import ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.engine.results import PackResult, PackResults, Packs, collect
from surefoot.errors import CacheError
from surefoot.scoring import score_cache
from surefoot.scoring.local import load_local
from surefoot.scoring.score_cache import WRITE_EVERY, ScoreCache, default_path

ITEMS = [("What is 1 + 1?", ["1 + 1 = 2."]), ("What is 2 + 2?", ["2 + 2 = 4.", "So 4."]), ("What?", [" "])]


class Model:
    """Counts what it is asked for. The score tells the model and the token."""

    def __init__(self, shift: float = 0.0) -> None:
        self.asked: list[int] = []
        self.shift = shift

    def packs(self, prompts: Sequence[Prompt]) -> PackResults:
        self.asked.append(len(prompts))
        for index, prompt in enumerate(prompts):
            yield PackResult(1, ((index, torch.tensor([prompt.ids[at] + self.shift for at in prompt.reads])),))


def wrapped(
    cache: ScoreCache, fingerprint: str, packs: Packs, **options: Any
) -> Callable[[Sequence[Prompt]], list[torch.Tensor]]:
    return lambda prompts: collect(cache.wrap(fingerprint, packs, **options)(prompts))


def prompts(*ids: int) -> list[Prompt]:
    return [Prompt((number, number + 1), (0, 1), 1) for number in ids]


def lists(rows: Sequence[torch.Tensor]) -> list[list[float]]:
    return [row.tolist() for row in rows]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "scores.sqlite"


def test_what_is_there_is_not_computed_again(place: Path) -> None:
    model = Model(0.5)
    with ScoreCache(place) as cache:
        first = wrapped(cache, "m", model.packs)(prompts(1, 2, 3, 2))
        assert model.asked == [3]
    with ScoreCache(place) as cache:
        again = wrapped(cache, "m", model.packs)(prompts(3, 4, 1))
        assert model.asked == [3, 1]
        assert (cache.hits, cache.misses, cache.size) == (2, 1, 4)
    assert lists(first) == [[1.5, 2.5], [2.5, 3.5], [3.5, 4.5], [2.5, 3.5]]
    assert lists(again) == [[3.5, 4.5], [4.5, 5.5], [1.5, 2.5]]
    assert all(row.dtype == torch.float32 for row in again)


@pytest.mark.parametrize(
    "other",
    [
        Prompt((1, 2, 3), (1,), 1),
        Prompt((1, 2), (0,), 1),
        Prompt((1, 2), (0, 1), 1),
        Prompt((2, 1), (1,), 1),
        Prompt((1,), (0,), 1),
    ],
    ids=["more ids", "another read", "more reads", "another order", "fewer ids"],
)
def test_other_content_is_another_entry(place: Path, other: Prompt) -> None:
    model = Model()
    with ScoreCache(place) as cache:
        scores = wrapped(cache, "m", model.packs)
        scores([Prompt((1, 2), (1,), 1)])
        scores([other])
        assert cache.size == 2
        scores([Prompt((1, 2), (1,), 0)])  # how much of it is the question changes no score
        assert cache.size == 2


def test_another_model_is_another_entry(place: Path) -> None:
    with ScoreCache(place) as cache:
        one = wrapped(cache, "one", Model(0.25).packs)(prompts(1))
        two = wrapped(cache, "two", Model(0.75).packs)(prompts(1))
        assert lists(one) == [[1.25, 2.25]]
        assert lists(two) == [[1.75, 2.75]]


def test_a_new_way_to_score_forgets_the_old(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    with ScoreCache(place) as cache:
        wrapped(cache, "m", model.packs)(prompts(1))
        monkeypatch.setattr(score_cache, "SCORES_VERSION", score_cache.SCORES_VERSION + 1)
        wrapped(cache, "m", model.packs)(prompts(1))
    assert model.asked == [1, 1]


def test_scores_are_written_a_few_at_a_time(place: Path) -> None:
    """The model fails in the third portion; the first two are kept."""

    class Failing(Model):
        def packs(self, prompts: Sequence[Prompt]) -> PackResults:
            if len(self.asked) == 2:
                raise RuntimeError("power cut")
            yield from super().packs(prompts)

    everything = prompts(*range(3 * WRITE_EVERY))
    with ScoreCache(place) as cache, pytest.raises(RuntimeError, match="power cut"):
        wrapped(cache, "m", Failing().packs)(everything)
    model = Model()
    with ScoreCache(place) as cache:
        assert cache.size == 2 * WRITE_EVERY
        assert len(wrapped(cache, "m", model.packs)(everything)) == 3 * WRITE_EVERY
    assert model.asked == [WRITE_EVERY]


def test_what_is_not_finite_is_given_back_and_not_kept(place: Path) -> None:
    with ScoreCache(place) as cache:
        (row,) = wrapped(cache, "m", Model(math.nan).packs)(prompts(1))
        assert all(math.isnan(value) for value in row.tolist())
        wrapped(cache, "n", Model(math.inf).packs)(prompts(1))
        assert cache.size == 0


def test_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "mine.sqlite"))
    assert default_path() == tmp_path / "mine.sqlite"
    ScoreCache().close()
    assert (tmp_path / "mine.sqlite").is_file()
    monkeypatch.delenv("SUREFOOT_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_path() == tmp_path / "xdg" / "surefoot" / "scores.sqlite"


@pytest.mark.parametrize(
    "content", [b"not a database, and long enough to be read as a header" * 9, b"SQLite format 3\0" + b"x" * 600]
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.sqlite"
    file.write_bytes(content)
    with pytest.raises(CacheError, match=r"bad.sqlite is damaged or not a score cache .*delete the file"):
        ScoreCache(file)
    assert file.read_bytes() == content


def test_damage_inside_the_file_is_named(place: Path) -> None:
    with ScoreCache(place) as cache:
        wrapped(cache, "m", Model().packs)(prompts(*range(2000)))
    raw = bytearray(place.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    place.write_bytes(raw)
    with ScoreCache(place) as cache, pytest.raises(CacheError, match="damaged"):
        wrapped(cache, "m", Model().packs)(prompts(*range(2000)))


def test_an_entry_that_is_cut_is_damage(place: Path) -> None:
    with ScoreCache(place) as cache:
        wrapped(cache, "m", Model().packs)(prompts(1))
        connection = sqlite3.connect(place)
        connection.execute("UPDATE scores SET row = x'000000'")
        connection.commit()
        connection.close()
        with pytest.raises(CacheError, match="an entry is truncated"):
            wrapped(cache, "m", Model().packs)(prompts(1))


def change_rows(place: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(place)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE scores SET row = ?", array("f", [7.5, 7.5]).tobytes()),
        ("UPDATE scores SET row = ?", array("f", [0.5, 7.5]).tobytes() + b"checksum"),
        ("UPDATE scores SET row = ? || substr(row, 9)", array("f", [0.25, 0.25]).tobytes()),
        ("UPDATE scores SET row = substr(row, 1, 8) || ?", b"checksum"),
        ("UPDATE scores SET row = ?", 7.5),
        ("UPDATE scores SET row = ?", "7.5"),
        ("UPDATE scores SET row = CAST(row AS TEXT) || ?", ""),
        ("UPDATE scores SET row = ?", b""),
        ("UPDATE scores SET row = row || ?", b"more"),
    ],
)
def test_a_changed_entry_is_damage(place: Path, statement: str, value: object) -> None:
    with ScoreCache(place) as cache:
        scores = wrapped(cache, "m", Model(-0.5).packs, scale="probability")
        scores([Prompt((1, 1), (0, 1), 1)])
        change_rows(place, statement, value)
        with pytest.raises(CacheError, match=r"damaged|cannot be used"):
            scores([Prompt((1, 1), (0, 1), 1)])


def test_an_entry_under_another_key_is_damage(place: Path) -> None:
    """The checksum covers the key, so the scores of one prompt cannot become those of another."""
    with ScoreCache(place) as cache:
        scores = wrapped(cache, "m", Model().packs)
        scores(prompts(1, 2))
        connection = sqlite3.connect(place)
        (one, _), (_, other) = connection.execute("SELECT key, row FROM scores").fetchall()
        connection.close()
        change_rows(place, "UPDATE scores SET row = ? WHERE key = ?", other, one)
        with pytest.raises(CacheError, match="does not match its checksum"):
            scores(prompts(1, 2))


@pytest.mark.parametrize(
    ("scale", "score", "stored"),
    [
        ("probability", 1.0, True),
        ("probability", 0.0, True),
        ("probability", 1.0001, False),
        ("probability", -0.0001, False),
        ("margin", -1.0, True),
        ("margin", -1.0001, False),
        ("log_ratio", -1000.0, True),
        (None, 1000.0, True),
    ],
)
def test_scores_outside_their_scale_are_given_back_and_not_kept(
    place: Path, scale: Scale | None, score: float, stored: bool
) -> None:
    with ScoreCache(place) as cache:
        scores = wrapped(cache, "m", Model(score).packs, scale=scale)
        (row,) = scores([Prompt((0,), (0,), 0)])
        assert row.tolist() == pytest.approx([score])
        assert cache.size == stored


def test_a_stored_score_outside_its_scale_is_damage(place: Path) -> None:
    """Even with the right checksum: here the same entry is read as another scale."""
    with ScoreCache(place) as cache:
        wrapped(cache, "m", Model(7.5).packs)([Prompt((0,), (0,), 0)])
        with pytest.raises(CacheError, match="damaged"):
            wrapped(cache, "m", Model(7.5).packs, scale="probability")([Prompt((0,), (0,), 0)])


def test_flipped_bits_never_change_a_score(tmp_path: Path) -> None:
    """Anywhere in the file: either it is reported, or the score is computed again, or the bit was not used."""
    source = tmp_path / "source.sqlite"
    asked = [Prompt((number, number % 3), (0, 1), 1) for number in range(60)]

    def compute(prompts: Sequence[Prompt]) -> PackResults:
        for index, prompt in enumerate(prompts):
            yield PackResult(2, ((index, torch.tensor([prompt.ids[at] / 60 for at in prompt.reads])),))

    with ScoreCache(source) as cache:
        wrapped(cache, "m", compute, scale="probability")(asked)
    expected, raw, generator = lists(collect(compute(asked))), source.read_bytes(), random.Random(17)
    outcomes = {"reported": 0, "computed again": 0, "not used": 0}
    for number in range(400):
        damaged = bytearray(raw)
        for _ in range(generator.choice([1, 1, 1, 8])):
            damaged[generator.randrange(len(raw))] ^= 1 << generator.randrange(8)
        file = tmp_path / f"{number}.sqlite"
        file.write_bytes(damaged)
        try:
            with ScoreCache(file) as cache:
                found = lists(wrapped(cache, "m", compute, scale="probability")(asked))
                assert found == expected, number
                assert cache.size >= 0
                outcomes["computed again" if cache.misses else "not used"] += 1
        except CacheError as error:
            outcomes["reported" if str(file) in str(error) else "reported without the file's name"] += 1
        file.unlink()
    assert min(outcomes.values()) > 20, outcomes


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "theirs.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE scores (mine TEXT)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(CacheError, match="a database of another program"):
        ScoreCache(file)
    assert file.read_bytes() == before


def test_places_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="is a folder"):
        ScoreCache(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be created"):
        ScoreCache(tmp_path / "file" / "scores.sqlite")


# --- with a real model ---------------------------------------------------------------------------------------------


def test_the_same_results_from_the_cache(scorer: surefoot.Scorer, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = scorer.score_many(ITEMS)
    with ScoreCache(place) as cache:
        first = scorer.with_cache(cache).score_many(ITEMS)
        assert (cache.hits, cache.misses) == (0, 3)

        def no(*_: object, **__: object) -> PackResults:
            raise AssertionError("computed again")

        monkeypatch.setattr(scorer.engine, "packs", no)
        again = scorer.with_cache(cache).score_many(ITEMS)
        streamed = list(scorer.with_cache(cache).score_stream(ITEMS))
    assert [row.step_scores for row in again] == [row.step_scores for row in first]
    assert [row.step_scores for row in streamed] == [row.step_scores for row in first]
    assert [row.reason for row in again] == [row.reason for row in plain]
    for one, two in zip(plain, first, strict=True):
        assert one.step_scores == pytest.approx(two.step_scores, abs=1e-5)


def test_another_dtype_or_system_message_is_computed(checkpoint: Path, scorer: surefoot.Scorer, place: Path) -> None:
    with ScoreCache(place) as cache:
        scorer.with_cache(cache).score_many(ITEMS[:1])
        load_local(checkpoint, dtype="bfloat16", cache=cache).score_many(ITEMS[:1])
        scorer.with_cache(cache).score_many(ITEMS[:1], ReadOptions(system="Be brief."))
        assert (cache.hits, cache.misses) == (0, 3)


# --- several processes ---------------------------------------------------------------------------------------------

CHILD = """
    import sys, time
    from surefoot.core.prompt import Prompt
    from surefoot.engine.results import PackResult, collect
    from surefoot.scoring.score_cache import ScoreCache
    import torch

    place, start, stop, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])

    def packs(prompts):
        time.sleep(pause)
        print(len(prompts), flush=True)
        for index, prompt in enumerate(prompts):
            yield PackResult(1, ((index, torch.tensor([float(prompt.ids[0])])),))

    with ScoreCache(place) as cache:
        rows = collect(cache.wrap("m", packs)([Prompt((number,), (0,), 0) for number in range(start, stop)]))
    assert [row.tolist() for row in rows] == [[float(number)] for number in range(start, stop)]
"""


def child(place: Path, start: int, stop: int, pause: float = 0.0) -> subprocess.Popen[str]:
    program = textwrap.dedent(CHILD)
    command = [sys.executable, "-c", program, str(place), str(start), str(stop), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_share_a_store(place: Path) -> None:
    """Both open a store that is not there yet, and write overlapping parts at the same time."""
    running = [child(place, start, start + 640, 0.01) for start in (0, 320)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    with ScoreCache(place) as cache:
        assert cache.size == 960


def test_a_killed_run_goes_on_where_it_was(place: Path) -> None:
    process = child(place, 0, 1000 * WRITE_EVERY, 0.05)
    assert process.stdout is not None
    for _ in range(4):
        process.stdout.readline()  # the fourth portion is computed: at least three are written
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    with ScoreCache(place) as cache:
        written = cache.size
        assert written >= 3 * WRITE_EVERY
        assert written % WRITE_EVERY == 0
        model = Model()
        wanted = [Prompt((number,), (0,), 0) for number in range(6 * WRITE_EVERY)]
        rows = wrapped(cache, "m", model.packs)(wanted)
        assert lists(rows) == [[float(number)] for number in range(6 * WRITE_EVERY)]
        assert sum(model.asked) == max(0, 6 * WRITE_EVERY - written)


SLOW_CHILD = """
    import sys, time
    from surefoot.core.prompt import Prompt
    from surefoot.engine.results import PackResult, collect
    from surefoot.scoring import score_cache
    import torch

    score_cache.COMMIT_SECONDS = 0.1

    def packs(prompts):
        # One call that never ends, as of a large model.
        for index, prompt in enumerate(prompts):
            time.sleep(0.15)
            yield PackResult(1, ((index, torch.tensor([float(prompt.ids[0])])),))
            print(index, flush=True)
        time.sleep(600)

    with score_cache.ScoreCache(sys.argv[1]) as cache:
        collect(cache.wrap("m", packs)([Prompt((number,), (0,), 0) for number in range(8)]))
"""


def test_a_killed_run_loses_only_seconds(place: Path) -> None:
    """Scores are committed while the call that computes them is running."""
    command = [sys.executable, "-c", textwrap.dedent(SLOW_CHILD), str(place)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(8):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    model = Model()
    with ScoreCache(place) as cache:
        rows = wrapped(cache, "m", model.packs)([Prompt((number,), (0,), 0) for number in range(10)])
    assert lists(rows) == [[float(number)] for number in range(10)]
    assert model.asked == [2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_opens_the_file_anew(place: Path) -> None:
    """A connection of SQLite must not be used on both sides of a fork."""
    with ScoreCache(place) as cache:
        wrapped(cache, "m", Model(0.5).packs)(prompts(1))
        with cache._lock:  # held by a thread that does not exist in the child
            process = multiprocessing.get_context("fork").Process(target=use_in_child, args=(cache,))
            process.start()
        process.join(60)
        assert process.exitcode == 0
        model = Model(0.5)
        assert lists(wrapped(cache, "m", model.packs)(prompts(1, 2))) == [[1.5, 2.5], [2.5, 3.5]]
        assert model.asked == []


def use_in_child(cache: ScoreCache) -> None:
    before = cache._connection
    model = Model(0.5)
    assert lists(wrapped(cache, "m", model.packs)(prompts(1, 2))) == [[1.5, 2.5], [2.5, 3.5]]
    assert model.asked == [1]
    assert cache._connection is not before


def test_a_writer_waits_for_another(place: Path) -> None:
    with ScoreCache(place) as cache:
        other = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        import threading

        threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
        started = time.monotonic()
        wrapped(cache, "m", Model().packs)(prompts(1))
        assert time.monotonic() - started > 0.2
        assert cache.size == 1
        other.close()
