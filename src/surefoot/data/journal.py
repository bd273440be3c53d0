"""A file with one line of JSON per finished piece of work, which survives a crash.

Only the process that holds the lock of the folder writes. A killed writer leaves half a line, which is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surefoot.data.files import json_line, named_errors


def read_journal(path: Path, *, repair: bool = True) -> Iterator[Any]:
    """Yield the content of every whole line. Damaged lines are skipped: what they recorded is done again."""
    if not path.is_file():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    for line in whole.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
    if repair and len(whole) < len(content):
        os.truncate(path, len(whole))


def append_line(path: Path, content: Any) -> None:
    """Append a line of JSON, durably and as a whole."""
    with named_errors(path), path.open("ab") as stream:
        start = stream.tell()
        try:
            stream.write(json_line(content))
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            os.truncate(path, start)
            raise
