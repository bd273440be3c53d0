"""The SHA-256 tree hash of a large file, remembered while the file stays unchanged.

Blocks are memory-mapped and hashed in parallel threads. The hash of a large file is stored in the user's cache folder
together with the file's path, device, inode, size and times of modification, and is used only if all of them still
match. Such an entry is a file of its own, replaced atomically: processes can write it at the same time. An entry that
is damaged, or that cannot be read or written, is ignored and the file is hashed.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from surefoot.core.cache_folder import cache_folder, store_entry
from surefoot.errors import CheckpointError

logger = logging.getLogger("surefoot")

BLOCK = 16 << 20
"""Bytes per leaf of the hash tree. Changing it changes every hash."""
THREADS = 16
"""The most threads that hash one file. More do not help: then memory limits the speed."""
SMALLEST_STORED = 256 << 20
"""Hashes of smaller files are not stored: hashing them takes a fraction of a second."""
SETTLED_SECONDS = 60.0
"""Hashes of files that changed more recently are not stored. Another change could leave the same times: clocks of file
systems are coarse, and writes to a mapped page update the time only when the page is written back."""
FORMAT = 1


def hash_file(file: Path) -> str:
    """Return a hash of the whole content, as 64 hexadecimal digits.

    >>> hash_file(Path("model.safetensors"))[:12]
    """
    try:
        path = file.resolve(strict=True)
        if not path.is_file():  # opening a pipe would wait for its other end
            raise CheckpointError(f"{file} is not a regular file.")
        with path.open("rb") as stream:
            before = os.fstat(stream.fileno())
            identity = _identity(path, before)
            if before.st_size >= SMALLEST_STORED and (known := _find(identity)) is not None:
                return known
            started = time.time()
            digest = _hash_content(stream.fileno(), before.st_size)
            if _identity(path, os.fstat(stream.fileno())) != identity:
                raise CheckpointError(f"{file} changed while it was read. Wait until it is complete, then load again.")
    except (OSError, ValueError) as error:  # ValueError: the file became shorter, so a block cannot be mapped
        raise CheckpointError(f"Cannot read {file} ({error}). Download or copy it again.") from error
    if before.st_size >= SMALLEST_STORED and max(before.st_mtime, before.st_ctime) < started - SETTLED_SECONDS:
        _store(identity, digest)
    return digest


def _hash_content(descriptor: int, size: int) -> str:
    def leaf(start: int) -> bytes:
        length = min(BLOCK, size - start)
        with mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=start) as block:
            return sha256(block).digest()  # without the interpreter lock

    root = sha256(size.to_bytes(8, "little"))
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for digest in pool.map(leaf, range(0, size, BLOCK)):
            root.update(digest)
    return root.hexdigest()


def _identity(path: Path, status: os.stat_result) -> dict[str, Any]:
    """What must be the same for a stored hash to apply. The time of the last status change cannot be set by a user."""
    return {
        "format": FORMAT,
        "path": os.fsencode(path).hex(),
        "device": status.st_dev,
        "inode": status.st_ino,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
    }


def _find(identity: dict[str, Any]) -> str | None:
    try:
        entry = json.loads(_entry(identity).read_text(encoding="utf-8"))
        digest = entry["digest"]
        if entry["identity"] == identity and entry["check"] == _check(identity, digest):
            return str(digest)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    return None


def _store(identity: dict[str, Any], digest: str) -> None:
    entry = _entry(identity)
    content = json.dumps({"identity": identity, "digest": digest, "check": _check(identity, digest)})
    try:
        store_entry(entry, content)
    except OSError as error:
        logger.debug("The hash of a weight file was not stored: %s", error)


def _entry(identity: dict[str, Any]) -> Path:
    """One entry per path, so that the hash of a changed file replaces the old one."""
    return cache_folder() / "weight-hashes" / f"{sha256(identity['path'].encode()).hexdigest()}.json"


def _check(identity: dict[str, Any], digest: str) -> str:
    return sha256(json.dumps([identity, digest], sort_keys=True).encode()).hexdigest()
