"""Record what a generator returns, and replay it without the model.

A recording is JSONL: a line that identifies the generator, then one line per request. Invariant: replay returns exactly
what was recorded for the same question, prefix, settings and seed, in whatever order requests arrive; nothing else.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from surefoot.core.generation import Continuation, EndState, Generation, GenerationRequest, Generator, Sampling, failed
from surefoot.data.records import Entry, file_entries
from surefoot.display.counting import counted
from surefoot.errors import InputError, OptionError, SurefootError
from surefoot.generate.rollouts import RolloutGenerator, parse_rollout

FORMAT = "surefoot_recording"
"""The first line has this name, with the version of the format."""
VERSION = 1
NOT_RECORDED = "This request was not recorded: question, prefix, settings and seed must all be the same."


@dataclass(frozen=True)
class _Header:
    """Identifies the recorded generator."""

    name: str
    fingerprint: str
    continues: bool

    @classmethod
    def of(cls, generator: Generator) -> _Header:
        return cls(generator.name, generator.fingerprint, generator.continues)

    def line(self) -> str:
        return _line({FORMAT: VERSION, **asdict(self)})


class RecordingGenerator:
    """Passes requests on to a generator and appends each with its result to a file.

        generator = RecordingGenerator(LocalGenerator("my-model"), "run.jsonl")

    Lines are written at once, so a killed process loses at most the requests that were running. An existing recording
    of the same generator is continued. One process may write to a file at a time.
    """

    def __init__(self, generator: Generator, path: str | Path) -> None:
        self._generator, self._path = generator, Path(path).expanduser()
        if self._path.suffix == ".gz":
            raise OptionError(
                f"{path}: recordings are not compressed while they are written. Compress them afterwards."
            )
        self._lock = threading.Lock()
        self._file: int | None = None

    @property
    def name(self) -> str:
        """The generator's name."""
        return self._generator.name

    @property
    def fingerprint(self) -> str:
        """The generator's fingerprint."""
        return self._generator.fingerprint

    @property
    def continues(self) -> bool:
        """Whether the generator continues partial solutions."""
        return self._generator.continues

    async def check(self) -> None:
        """Check the generator, and that the file can be written."""
        await self._generator.check()
        self._append("")

    async def generate(self, request: GenerationRequest) -> Generation:
        """Generate and record. What cannot be recorded is an error, also if it was generated and cost tokens."""
        try:
            if self._file is None:
                await self.check()
        except SurefootError as error:
            return failed(request, str(error))
        generation = await self._generator.generate(request)
        try:
            self._append(_line({"request": asdict(request), **asdict(generation)}))
        except SurefootError as error:
            lost = (replace(each, text="", end="error", reason=str(error)) for each in generation.continuations)
            return replace(generation, continuations=tuple(lost))
        return generation

    async def close(self) -> None:
        """Close the file and the generator."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
        await self._generator.close()

    def _append(self, line: str) -> None:
        try:
            with self._lock:
                if self._file is None:
                    self._file = _open_recording(self._path, _Header.of(self._generator))
                _write(self._file, line)
        except OSError as error:
            raise OptionError(f"The recording {self._path} cannot be written: {error}.") from error


class ReplayGenerator:
    """Returns what a `RecordingGenerator` recorded, under the name and fingerprint of the recorded generator.

        generator = ReplayGenerator("run.jsonl")

    A request that was not recorded fails. If a request was recorded several times, the first result without an error
    counts. The cost is that of the recorded requests from which the continuations come.
    """

    def __init__(self, path: str | Path) -> None:
        file = Path(path).expanduser()
        entries = _whole_entries(file)
        self._header = _read_header(next(entries, None), file)
        self._found: dict[GenerationRequest, tuple[Continuation, int]] = {}
        self._costs: list[tuple[int, int]] = []
        for entry in entries:
            try:
                request, generation = _read_generation(entry.data)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InputError(f"{file}, {entry.place}: this is not a recorded request ({error!r}).") from error
            for each in generation.continuations:
                key = _key(request, each.seed)
                if key not in self._found or self._found[key][0].end == "error":
                    self._found[key] = each, len(self._costs)
            self._costs.append((generation.prompt_tokens, generation.calls))

    def __repr__(self) -> str:
        return f"<surefoot.ReplayGenerator {self.name}: {counted(len(self._found), 'continuation')}>"

    @property
    def name(self) -> str:
        """The name of the recorded generator."""
        return self._header.name

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the recorded generator."""
        return self._header.fingerprint

    @property
    def continues(self) -> bool:
        """Whether the recorded generator continued partial solutions."""
        return self._header.continues

    async def check(self) -> None:
        """Raise `InputError` if nothing was recorded."""
        if not self._found:
            raise InputError(f"The recording of {self.name} contains no requests. Record it again.")

    async def generate(self, request: GenerationRequest) -> Generation:
        """Return the recorded continuations."""
        continuations, records = [], set()
        for index in range(request.n):
            seed = request.seed_of(index)
            found = self._found.get(_key(request, seed))
            continuations.append(Continuation("", "error", 0, seed, NOT_RECORDED) if found is None else found[0])
            records |= set() if found is None else {found[1]}
        costs = [self._costs[record] for record in records]
        return Generation(tuple(continuations), sum(tokens for tokens, _ in costs), sum(calls for _, calls in costs))

    async def close(self) -> None:
        """Do nothing: the file was read at the beginning."""


def load_recorded(path: str | Path) -> Generator:
    """Open a JSONL file, which may be gzipped: a recording, or rows with a question and a solution each.

    >>> load_recorded("run.jsonl").name  # doctest: +SKIP
    'Qwen2.5-Math-1.5B-Instruct'
    """
    file = Path(path).expanduser()
    first = next(iter(file_entries(file)), None)
    if first is not None and isinstance(first.data, Mapping):
        if FORMAT in first.data:
            return ReplayGenerator(file)
        if "question" in first.data and ("solution" in first.data or "steps" in first.data):
            return RolloutGenerator(_rows(file), name=file.name)
    raise InputError(
        f"{file} is neither a recording nor a file of rollouts. RecordingGenerator writes recordings. Each line of a "
        "file of rollouts is an object with `question`, and `solution` or `steps`."
    )


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    for entry in file_entries(file):
        if entry.error is not None:
            raise InputError(f"{file}, {entry.place} {entry.error}")
        if not isinstance(entry.data, Mapping):
            raise InputError(f"{file}, {entry.place}: expected an object.")
        parse_rollout(entry.data, f"{file}, {entry.place}")
        yield entry.data


def _whole_entries(file: Path) -> Iterator[Entry]:
    """The entries without the last one if it is only half written."""
    broken: Entry | None = None
    for entry in file_entries(file):
        if broken is not None:
            raise InputError(f"{file}, {broken.place} {broken.error}")
        if entry.error is None:
            yield entry
        else:
            broken = entry


def _open_recording(path: Path, header: _Header) -> int:
    """Open a recording to append to it. What a killed process left of a line is removed."""
    with path.open("ab+") as stream:
        stream.seek(0)
        beginning = stream.read(len(header.line().encode()))
    if header.line().encode().startswith(beginning):  # new, or with half a header, or with the same header
        if not beginning.endswith(b"\n"):
            path.write_bytes(header.line().encode())
        _remove_half_line(path)
        return os.open(path, os.O_WRONLY | os.O_APPEND)
    before = _read_header(next(file_entries(path), None), path)
    raise OptionError(
        f"{path} records another generator ({before.name!r}, not {header.name!r}, or the same with other settings). "
        "Choose another file."
    )


def _remove_half_line(path: Path) -> None:
    with path.open("rb+") as stream:
        end = stream.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            stream.seek(start)
            at = stream.read(end - start).rfind(b"\n")
            if at >= 0:
                stream.truncate(start + at + 1)
                return
            end = start


def _write(file: int, line: str) -> None:
    data = line.encode()
    while data:
        data = data[os.write(file, data) :]


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data) + "\n"  # ASCII: lone surrogates in a text are kept


def _read_header(entry: Entry | None, file: Path) -> _Header:
    data = None if entry is None else entry.data
    if not isinstance(data, Mapping) or data.get(FORMAT) != VERSION:
        raise InputError(
            f"{file} is not a recording of version {VERSION}: its first line must be an object with {FORMAT!r}."
        )
    try:
        return _Header(str(data["name"]), str(data["fingerprint"]), bool(data["continues"]))
    except KeyError as error:
        raise InputError(f"{file}: the first line of the recording lacks {error}.") from error


def _read_generation(data: Mapping[str, Any]) -> tuple[GenerationRequest, Generation]:
    wanted = data["request"]
    request = GenerationRequest(**wanted | {"sampling": Sampling(**wanted["sampling"])})
    continuations = tuple(
        Continuation(**each | {"label_logprobs": tuple(each.get("label_logprobs", ()))})
        for each in data["continuations"]
    )
    for each in continuations:
        if not isinstance(each.text, str) or each.end not in get_args(EndState):
            raise ValueError(f"a continuation ends with {each.end!r}")
    return request, Generation(continuations, int(data["prompt_tokens"]), int(data["calls"]))


def _key(request: GenerationRequest, seed: int) -> GenerationRequest:
    """The request for one continuation."""
    return replace(request, n=1, seed=seed)
