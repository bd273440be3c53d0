"""A hash that identifies what a loaded model computes.

Models with the same fingerprint give the same scores. It covers config.json, the name, type and shape of every tensor,
blocks of bytes from every tensor, an adapter's settings, and the load options. Sampling blocks instead of reading
everything takes milliseconds for 15 GB. Training changes the sampled bytes; a manual edit of a few weights between them
goes unnoticed.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from surefoot.errors import CheckpointError

if TYPE_CHECKING:
    from surefoot.engine.checkpoint import Checkpoint

BLOCK = 256
BLOCKS = 8


def fingerprint(checkpoint: Checkpoint, **loaded: str) -> str:
    """Return 64 hexadecimal digits. `loaded` are the load options that affect scores: dtype, quantization, family."""
    parts = [json.dumps(checkpoint.config, sort_keys=True).encode(), json.dumps(loaded, sort_keys=True).encode()]
    if checkpoint.adapter is not None:
        parts.append(json.dumps(checkpoint.adapter.settings, sort_keys=True).encode())
    for file in checkpoint.files:
        parts += _sample_zip(file) if file.suffix == ".bin" else _sample(file)
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _sample(file: Path) -> list[bytes]:
    """The header of a safetensors file, and evenly spaced blocks of each of its tensors."""
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            raw = stream.read(size)
            header: dict[str, Any] = json.loads(raw)
            parts = [raw]
            for name in sorted(header.keys() - {"__metadata__"}):
                start, end = header[name]["data_offsets"]
                parts.append(_blocks(stream, 8 + size + start, end - start))
            return parts
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} is not a complete safetensors file ({error}). Download or copy it again."
        ) from error


def _sample_zip(file: Path) -> list[bytes]:
    """Names, sizes and checksums of the entries of a pickled file, which is a zip archive, and blocks of each."""
    try:
        with ZipFile(file) as archive, file.open("rb") as stream:
            parts = []
            for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
                parts.append(f"{entry.filename} {entry.file_size} {entry.CRC}".encode())
                parts.append(_blocks(stream, entry.header_offset, entry.compress_size))
            return parts
    except (OSError, BadZipFile) as error:
        raise CheckpointError(f"{file} is not a complete weight file ({error}). Download or copy it again.") from error


def _blocks(stream: BinaryIO, start: int, length: int) -> bytes:
    if length <= BLOCK * BLOCKS:
        stream.seek(start)
        return stream.read(length)
    found = []
    for number in range(BLOCKS):
        stream.seek(start + (length - BLOCK) * number // (BLOCKS - 1))
        found.append(stream.read(BLOCK))
    return b"".join(found)
