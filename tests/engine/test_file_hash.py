"""The hash of a weight file: of all its bytes, and never that of another content."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from surefoot.engine import file_hash
from surefoot.engine.file_hash import BLOCK, hash_file
from surefoot.errors import CheckpointError

CONTENT = random.Random(0).randbytes(100_000)
OTHER = CONTENT[:50_000] + bytes([CONTENT[50_000] ^ 1]) + CONTENT[50_001:]


class Counter:
    """Counts how often a file is really hashed."""

    def __init__(self) -> None:
        self.count = 0
        self.hash_content = file_hash._hash_content

    def __call__(self, descriptor: int, size: int) -> str:
        self.count += 1
        return self.hash_content(descriptor, size)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter:
    """Hashes of files of any size and age are stored, in a folder of this test."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(file_hash, "SMALLEST_STORED", 0)
    monkeypatch.setattr(file_hash, "SETTLED_SECONDS", -3600.0)
    counter = Counter()
    monkeypatch.setattr(file_hash, "_hash_content", counter)
    return counter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "model.safetensors"
    found.write_bytes(CONTENT)
    return found


def expected(content: bytes) -> str:
    """SHA-256 of the size and of the SHA-256 of each block."""
    blocks = [sha256(content[start : start + BLOCK]).digest() for start in range(0, len(content), BLOCK)]
    return sha256(len(content).to_bytes(8, "little") + b"".join(blocks)).hexdigest()


def entry(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "cache" / "surefoot" / "weight-hashes").iterdir()
    return found


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_all_bytes_are_hashed(tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(min(size, 1 << 20)) * -(-size // (1 << 20))
    (tmp_path / "file").write_bytes(content[:size])
    assert hash_file(tmp_path / "file") == expected(content[:size])


def test_an_unchanged_file_is_hashed_once(hashed: Counter, file: Path, tmp_path: Path) -> None:
    assert [hash_file(file) for _ in range(3)] == [expected(CONTENT)] * 3
    assert hashed.count == 1
    # As in the hub's cache, where the names of a snapshot are links to blobs.
    link = tmp_path / "link.safetensors"
    link.symlink_to(file)
    assert hash_file(link) == expected(CONTENT)
    assert hashed.count == 1


def rewrite(file: Path) -> None:
    before = file.stat()
    file.write_bytes(OTHER)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(file: Path) -> None:
    before = file.stat()
    other = file.with_suffix(".new")
    other.write_bytes(OTHER)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


def write_in_place(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(50_000)
        stream.write(OTHER[50_000:50_001])


def write_mapped(file: Path) -> None:
    mapped = np.memmap(file, np.uint8, "r+")
    mapped[50_000] ^= 1
    mapped.flush()


def retarget(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_bytes(OTHER)
    file.unlink()
    file.symlink_to(other)


@pytest.mark.parametrize("change", [rewrite, replace, write_in_place, write_mapped, retarget])
def test_a_changed_file_is_hashed_again(hashed: Counter, file: Path, change: Callable[[Path], None]) -> None:
    """Its size is the same, and for most of these changes its time of modification is, too."""
    assert hash_file(file) == expected(CONTENT)
    change(file)
    assert hash_file(file) == expected(OTHER)
    assert hash_file(file) == expected(OTHER)
    assert hashed.count == 2


@pytest.mark.parametrize("constant", ["SETTLED_SECONDS", "SMALLEST_STORED"])
def test_hashes_of_fresh_and_small_files_are_not_stored(
    hashed: Counter, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constant: str
) -> None:
    """Two changes within one tick of the file system's clock leave the same time."""
    monkeypatch.setattr(file_hash, constant, 200_000)
    assert [hash_file(file), hash_file(file)] == [expected(CONTENT)] * 2
    assert hashed.count == 2
    assert not (tmp_path / "cache").exists()


def test_a_file_that_changes_while_it_is_hashed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hash_and_change(descriptor: int, size: int) -> str:
        file.write_bytes(OTHER + b"more")
        return "0" * 64

    monkeypatch.setattr(file_hash, "_hash_content", hash_and_change)
    with pytest.raises(CheckpointError, match=r"model\.safetensors changed while it was read"):
        hash_file(file)


def test_damaged_entries_are_ignored(hashed: Counter, file: Path, tmp_path: Path) -> None:
    hash_file(file)
    stored = entry(tmp_path)
    whole = stored.read_bytes()
    fields = json.loads(whole)
    generator = random.Random(0)
    damaged = [b"", b"{}", b"[]", b"null", b"7", b"\xff\xfe", b"[" * 100_000, whole[:-10], whole[10:]]
    damaged += [json.dumps(fields | change).encode() for change in ({"digest": "0" * 64}, {"digest": 7}, {"check": ""})]
    for _ in range(50):
        flipped = bytearray(whole)
        flipped[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        damaged.append(bytes(flipped))
    for number, content in enumerate(damaged, start=2):
        stored.write_bytes(content)
        assert hash_file(file) == expected(CONTENT), content
        assert hashed.count == number, content
        assert stored.read_bytes() == whole


def test_an_entry_of_another_file_is_ignored(hashed: Counter, file: Path, tmp_path: Path) -> None:
    hash_file(file)
    stored = entry(tmp_path)
    other = tmp_path / "other.safetensors"
    other.write_bytes(OTHER)
    hash_file(other)
    names = list(stored.parent.iterdir())
    contents = [name.read_bytes() for name in names]
    for name, content in zip(names, reversed(contents), strict=True):
        name.write_bytes(content)
    assert hash_file(file) == expected(CONTENT)
    assert hash_file(other) == expected(OTHER)


def test_a_cache_that_cannot_be_written_is_not_used(hashed: Counter, file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    assert hash_file(file) == expected(CONTENT)
    (tmp_path / "cache").unlink()
    hash_file(file)
    stored = entry(tmp_path)
    stored.unlink()
    stored.mkdir()
    assert hash_file(file) == expected(CONTENT)
    assert list(stored.parent.iterdir()) == [stored], "a temporary file was left"


WRITER = """
import sys
from pathlib import Path
from surefoot.engine import file_hash

file_hash.SMALLEST_STORED = 0
file_hash.SETTLED_SECONDS = -3600.0
file = Path(sys.argv[1])
for _ in range(200):
    status = file.stat()
    identity = file_hash._identity(file.resolve(), status)
    known = file_hash._find(identity)
    assert known in (None, sys.argv[2]), known
    file_hash._store(identity, sys.argv[2])
print(file_hash.hash_file(file))
"""


def test_several_processes_write_one_entry(hashed: Counter, file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(file), expected(CONTENT)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert out.strip() == expected(CONTENT)
    assert hash_file(file) == expected(CONTENT)
    assert hashed.count == 0
    assert entry(tmp_path).suffix == ".json"


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Cannot read"):
        hash_file(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="not a regular file"):
        hash_file(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(CheckpointError, match="not a regular file"):
            hash_file(tmp_path / "pipe")
