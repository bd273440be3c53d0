"""Measure the fingerprint of a model of 7B: hashing all weights, with and without a stored hash.

    python bench/fingerprint.py                   # writes 15 GB of random bytes as four shards, and removes them
    python bench/fingerprint.py --gigabytes 2
    python bench/fingerprint.py my-prm            # the checkpoint in this folder

Reports seconds and GB/s for files on the disk, for files in the page cache (if all fit into it), and seconds for a
fingerprint whose hashes are stored. Use an idle machine: all cores hash.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARDS = 4
CHUNK = 64 << 20


def write_checkpoint(folder: Path, size: int) -> None:
    """Write shards with one tensor of random bytes each, and what else belongs to a checkpoint."""
    names = [f"model-{number:05d}-of-{SHARDS:05d}.safetensors" for number in range(1, SHARDS + 1)]
    for number, name in enumerate(names):
        items = size // SHARDS // 2
        layout = {f"tensor.{number}": {"dtype": "BF16", "shape": [items], "data_offsets": [0, 2 * items]}}
        header = json.dumps(layout).encode()
        with (folder / name).open("wb") as stream:
            stream.write(len(header).to_bytes(8, "little") + header)
            left = 2 * items
            while left:
                left -= stream.write(os.urandom(min(left, CHUNK)))
    weight_map = {f"tensor.{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")


@contextmanager
def checkpoint_folder(given: Path | None, size: int) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(dir=".", prefix="fingerprint-") as name:
        write_checkpoint(Path(name), size)
        os.sync()
        yield Path(name)


def drop_from_memory(files: list[Path]) -> None:
    """Ask the kernel to drop the files from the page cache, so that the next read comes from the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--gigabytes", type=float, default=15.0)
    options = parser.parse_args()

    from surefoot.engine import file_hash
    from surefoot.engine.checkpoint import open_checkpoint
    from surefoot.engine.fingerprint import fingerprint

    with (
        checkpoint_folder(options.folder, int(options.gigabytes * 1e9)) as folder,
        tempfile.TemporaryDirectory() as cache,
    ):
        os.environ["XDG_CACHE_HOME"] = cache
        file_hash.SETTLED_SECONDS = -1.0  # store hashes of files that have just been written, too
        opened = open_checkpoint(folder)
        size = sum(file.stat().st_size for file in opened.files)
        drop_from_memory(opened.files)
        print(f"{size / 1e9:.1f} GB in {len(opened.files)} files; {os.cpu_count()} cores, {platform.machine()}")
        found = set()
        for what in ("from the disk", "from the page cache", "stored"):
            if what == "from the page cache":
                for file in Path(cache).rglob("*.json"):
                    file.unlink()
            started = time.perf_counter()
            found.add(fingerprint(opened))
            seconds = time.perf_counter() - started
            speed = "" if what == "stored" else f"  {size / 1e9 / seconds:5.2f} GB/s"
            print(f"{what:>20}: {seconds:8.4f} s{speed}")
        assert len(found) == 1


if __name__ == "__main__":
    main()
