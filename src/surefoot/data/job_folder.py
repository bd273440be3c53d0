"""The output folder of a resumable run: held by one process, and started with one set of options.

Invariant: `_surefoot/job.json` says what the lines in `_surefoot/journal.jsonl` were made with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.data.differences import differences
from surefoot.data.files import named_errors, remove_temporary, write_file
from surefoot.data.folder_lock import locked
from surefoot.errors import JobError

OWN = "_surefoot"
JOB, JOURNAL = f"{OWN}/job.json", f"{OWN}/journal.jsonl"


@contextmanager
def held_folder(out: Path, kind: str, identity: Mapping[str, Any], *, output: str, fresh: bool) -> Iterator[None]:
    """Hold the folder for one run. One that holds something else, or was started differently, raises `JobError`.

    `kind` is what the folder holds, for messages; `output` is the file that a run writes at its end. `fresh` deletes
    what earlier runs left.
    """
    with named_errors(out):
        if out.exists() and not out.is_dir():
            raise JobError(f"{out} is a file. Name a folder for the output.")
        if out.is_dir() and not (out / OWN).is_dir() and any(out.iterdir()):
            raise JobError(f"{out} is not empty and holds no {kind}. Choose another folder.")
        (out / OWN).mkdir(parents=True, exist_ok=True)
    with locked(out, OWN):
        remove_temporary(out, out / OWN)
        if fresh:
            for name in (JOB, JOURNAL, output):
                (out / name).unlink(missing_ok=True)
        _require_same(out, kind, {"kind": kind, **identity})
        yield


def _require_same(out: Path, kind: str, identity: Mapping[str, Any]) -> None:
    """Reject a folder that was started with something else, and describe the difference."""
    try:
        before = json.loads((out / JOB).read_text(encoding="utf-8"))
    except FileNotFoundError:
        text = json.dumps(identity, indent=1, ensure_ascii=False)
        write_file(out, JOB, lambda path: path.write_text(text, encoding="utf-8"))
        return
    except (OSError, ValueError) as error:
        raise JobError(f"The {kind} in {out} cannot be read: {error}. Start anew with fresh=True.") from error
    if changed := list(differences(before, json.loads(json.dumps(identity)))):
        raise JobError(
            f"The {kind} in {out} was started differently ({'; '.join(changed)}). Undo the change, or start anew with "
            "fresh=True, which deletes the results."
        )
