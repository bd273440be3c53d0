"""Recordings: replay returns what was recorded, whatever happened to the writer."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from helpers.policies import END, START, Table, write_table_policy
from surefoot.core.generation import Continuation, Generation, GenerationRequest, Generator, Sampling
from surefoot.errors import InputError, OptionError
from surefoot.generate.loading import load_generator
from surefoot.generate.local import LocalGenerator
from surefoot.generate.recorded import NOT_RECORDED, RecordingGenerator, ReplayGenerator, load_recorded
from surefoot.generate.rollouts import RolloutGenerator

ONE = Sampling(1.0)
QUESTIONS = ("What is 2 + 3?", "¿Qué?\n\n中", 'quotes " and \\ and {"json": 1}', "lone \ud800 surrogate")
ROWS = [{"question": "Q", "solution": "A.\n\nB."}, {"question": "Q", "solution": "A.\n\nC."}]


def generate(generator: Generator, *requests: GenerationRequest) -> list[Generation]:
    async def run() -> list[Generation]:
        return await asyncio.gather(*map(generator.generate, requests))

    return asyncio.run(run())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGenerator]:
    table: Table = {START: {"A.\n\n": 0.5, "B.\n\n": 0.5}, "A.\n\n": {"C": 0.5, END: 0.5}, "C": {"C": 0.5, END: 0.5}}
    made = LocalGenerator(write_table_policy(tmp_path_factory.mktemp("policies") / "letters", table))
    yield made
    asyncio.run(made.close())


REQUESTS = [
    GenerationRequest(question, prefix, n, step_end, limit, sampling, seed)
    for question in QUESTIONS[:3]
    for prefix in ("", "A.\n\n")
    for n, seed in ((1, 0), (3, 5))
    for step_end, limit, sampling in (("\n\n", 9, ONE), (None, 9, ONE), (None, 2, ONE), (None, 9, Sampling(0.5)))
]


@pytest.fixture(scope="module")
def recorded(model: LocalGenerator, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Generation]]:
    path = tmp_path_factory.mktemp("recordings") / "run.jsonl"
    return path, generate(RecordingGenerator(model, path), *REQUESTS)


def test_replay_returns_what_was_recorded_in_any_order(
    model: LocalGenerator, recorded: tuple[Path, list[Generation]]
) -> None:
    path, generations = recorded
    assert generations == generate(model, *REQUESTS)  # recording changes nothing
    pairs = list(zip(REQUESTS, generations, strict=True))
    Random(1).shuffle(pairs)
    replay = ReplayGenerator(path)
    assert generate(replay, *(request for request, _ in pairs)) == [generation for _, generation in pairs]
    assert (replay.name, replay.fingerprint, replay.continues) == ("letters", model.fingerprint, True)
    assert repr(model) == "<surefoot.LocalGenerator letters on cpu>"
    assert repr(replay) == f"<surefoot.ReplayGenerator letters: {3 * 2 * (1 + 3) * 4} continuations>"
    asyncio.run(replay.check())


def test_a_request_that_differs_in_anything_was_not_recorded(recorded: tuple[Path, list[Generation]]) -> None:
    replay = ReplayGenerator(recorded[0])
    for other in (
        GenerationRequest("Other", "", 1, "\n\n", 9, ONE, 0),
        GenerationRequest(QUESTIONS[0], "A", 1, "\n\n", 9, ONE, 0),
        GenerationRequest(QUESTIONS[0], "", 1, "\n", 9, ONE, 0),
        GenerationRequest(QUESTIONS[0], "", 1, "\n\n", 8, ONE, 0),
        GenerationRequest(QUESTIONS[0], "", 1, "\n\n", 9, Sampling(1.0, top_p=0.9), 0),
        GenerationRequest(QUESTIONS[0], "", 1, "\n\n", 9, ONE, 1),
    ):
        (generation,) = generate(replay, other)
        assert generation.continuations == (Continuation("", "error", 0, other.seed, NOT_RECORDED),)
        assert (generation.prompt_tokens, generation.calls) == (0, 0)


def test_single_continuations_of_a_recorded_request_are_known(recorded: tuple[Path, list[Generation]]) -> None:
    path, generations = recorded
    at = REQUESTS.index(GenerationRequest(QUESTIONS[0], "", 3, None, 9, ONE, 5))
    (generation,) = generate(ReplayGenerator(path), GenerationRequest(QUESTIONS[0], "", 4, None, 9, ONE, 6))
    assert generation.continuations[:2] == generations[at].continuations[1:]
    assert [each.end for each in generation.continuations[2:]] == ["error", "error"]
    assert generation.prompt_tokens == generations[at].prompt_tokens


def test_any_text_survives(tmp_path: Path) -> None:
    rows = [{"question": question, "solution": f"{question}\u2028\x00\n\n"} for question in QUESTIONS]
    requests = [GenerationRequest(question) for question in QUESTIONS]
    path = tmp_path / "run.jsonl"
    made = generate(RecordingGenerator(RolloutGenerator(rows), path), *requests)
    assert [each.continuations[0].text for each in made] == [row["solution"] for row in rows]
    assert generate(ReplayGenerator(path), *requests) == made


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_half_a_line_at_the_end_is_ignored_and_then_removed(
    recorded: tuple[Path, list[Generation]], model: LocalGenerator, tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "run.jsonl"
    whole = recorded[0].read_bytes()
    path.write_bytes(whole[:-cut])
    replay = ReplayGenerator(path)
    written = json.loads(whole.splitlines()[-1])["request"]  # whichever was complete last
    last = GenerationRequest(**written | {"sampling": Sampling(**written["sampling"])})
    complete = [at for at, request in enumerate(REQUESTS) if request != last]
    assert generate(replay, *(REQUESTS[at] for at in complete)) == [recorded[1][at] for at in complete]
    if cut > 1:
        assert generate(replay, last)[0].continuations[0].reason == NOT_RECORDED
    again = generate(RecordingGenerator(model, path), last)
    assert path.read_bytes() == whole
    assert generate(ReplayGenerator(path), last) == again


def test_a_killed_process_keeps_what_was_complete(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import asyncio, sys
        from surefoot.core.generation import GenerationRequest
        from surefoot.generate.recorded import RecordingGenerator
        from surefoot.generate.rollouts import RolloutGenerator

        async def main():
            generator = RecordingGenerator(RolloutGenerator([{"question": "Q", "solution": "A"}]), sys.argv[1])
            for seed in range(10**9):
                await generator.generate(GenerationRequest("Q", seed=seed))
                if seed == 200:
                    print("ready", flush=True)

        asyncio.run(main())
        """
    )
    path = tmp_path / "run.jsonl"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGKILL)
    for generation in generate(ReplayGenerator(path), *(GenerationRequest("Q", seed=seed) for seed in range(201))):
        assert generation.continuations[0].text == "A"


def test_a_failure_is_replaced_by_a_later_success(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows: list[dict[str, str]] = [{"question": "Other", "solution": "A"}]
    generator = RolloutGenerator(rows)
    request = GenerationRequest("Q")
    generate(RecordingGenerator(generator, path), request)
    assert generate(ReplayGenerator(path), request)[0].continuations[0].end == "error"
    success = json.loads(path.read_text().splitlines()[-1])
    success["continuations"][0] |= {"text": "A", "end": "answer", "reason": None}
    for text in ("A", "never"):
        success["continuations"][0]["text"] = text
        with path.open("a") as stream:
            stream.write(json.dumps(success) + "\n")
    assert generate(ReplayGenerator(path), request)[0].continuations[0].text == "A"


def test_a_recording_of_another_generator_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    generate(RecordingGenerator(RolloutGenerator(ROWS), path), GenerationRequest("Q"))
    before = path.read_bytes()
    other = RecordingGenerator(RolloutGenerator(ROWS[:1]), path)
    with pytest.raises(OptionError, match="records another generator"):
        asyncio.run(other.check())
    (failure,) = generate(other, GenerationRequest("Q", n=2))
    assert [(each.end, each.tokens) for each in failure.continuations] == [("error", 0)] * 2
    assert "records another generator" in str(failure.continuations[0].reason)
    assert path.read_bytes() == before


def test_a_generator_that_was_not_checked_is_recorded_or_fails_without_raising(tmp_path: Path) -> None:
    """A server's fingerprint is known after its check only."""
    gone = RecordingGenerator(load_generator("http://127.0.0.1:9", patience=0.0), tmp_path / "run.jsonl")
    (failure,) = generate(gone, GenerationRequest("Q"))
    assert "did not answer" in str(failure.continuations[0].reason)
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_with_the_tokens_that_were_spent(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    generator = RecordingGenerator(RolloutGenerator(ROWS), path)
    generate(generator, GenerationRequest("Q"))
    before = path.read_bytes()
    full = os.open("/dev/full", os.O_WRONLY)
    assert generator._file is not None
    os.dup2(full, generator._file)
    os.close(full)
    (failure,) = generate(generator, GenerationRequest("Q", seed=1))
    asyncio.run(generator.close())
    (lost,) = failure.continuations
    assert (lost.text, lost.end, lost.tokens) == ("", "error", 2)
    assert "cannot be written" in str(lost.reason)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["text", "{}\n", '{"question": "Q", "solution": "A"}\n', "[]"])
def test_other_files_are_never_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(content)
    with pytest.raises((InputError, OptionError), match="not a recording"):
        asyncio.run(RecordingGenerator(RolloutGenerator(ROWS), path).check())
    assert path.read_text() == content


def test_half_a_first_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    generator = RecordingGenerator(RolloutGenerator(ROWS), path)
    made = generate(generator, GenerationRequest("Q"))
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    assert generate(RecordingGenerator(RolloutGenerator(ROWS), path), GenerationRequest("Q")) == made
    assert path.read_bytes() == whole


def test_files_that_cannot_be_written_are_found_by_the_check(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be written"):
        asyncio.run(RecordingGenerator(RolloutGenerator(ROWS), tmp_path / "missing" / "run.jsonl").check())
    with pytest.raises(OptionError, match="not compressed"):
        RecordingGenerator(RolloutGenerator(ROWS), tmp_path / "run.jsonl.gz")


# --- load_recorded ---------------------------------------------------------------------------------------------------


def test_recordings_and_rollouts_are_told_apart_by_their_content(
    recorded: tuple[Path, list[Generation]], tmp_path: Path
) -> None:
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for path, kind in ((recorded[0], ReplayGenerator), (rollouts, RolloutGenerator)):
        packed = tmp_path / f"{path.name}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        plain, unpacked = load_recorded(path), load_recorded(str(packed))
        assert isinstance(plain, kind)
        assert isinstance(unpacked, kind)
        assert plain.fingerprint == unpacked.fingerprint
    assert load_recorded(rollouts).name == "rollouts.jsonl (counted in words)"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "neither a recording nor a file of rollouts"),
        ("plain text\n", "neither a recording nor a file of rollouts"),
        ('{"question": "Q"}\n', "neither a recording nor a file of rollouts"),
        ('{"question": "Q", "solution": "A"}\n{"question": "Q"}\n', "line 2: add `solution`"),
        ('{"question": "Q", "solution": "A"}\nhalf', "line 2 is not JSON"),
        ('{"surefoot_recording": 2}\n', "not a recording of version 1"),
        ('{"surefoot_recording": 1}\n', "lacks 'name'"),
        (
            '{"surefoot_recording": 1, "name": "m", "fingerprint": "f", "continues": true}\n{}\n',
            "line 2: this is not a",
        ),
        (
            '{"surefoot_recording": 1, "name": "m", "fingerprint": "f", "continues": true}\nx\n{}\n',
            "line 2 is not JSON",
        ),
    ],
)
def test_other_content_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        load_recorded(path)


def test_a_recording_without_requests_fails_the_check(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    asyncio.run(RecordingGenerator(RolloutGenerator(ROWS), path).check())
    with pytest.raises(InputError, match="contains no requests"):
        asyncio.run(load_recorded(path).check())
