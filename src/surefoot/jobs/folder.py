"""The output folder of a job: parts for the user, and in `_surefoot/` what is needed to continue.

Invariant: `job.json` is written last, so a folder with it has a complete plan. A unit is finished if the journal names
its files and they have the recorded content.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.core.options import ReadOptions
from surefoot.data.columns import Columns
from surefoot.data.files import FileSum, named_errors, remove_temporary, write_file
from surefoot.data.folder_lock import locked as hold_folder
from surefoot.data.journal import append_line, read_journal
from surefoot.errors import JobError
from surefoot.jobs.plan import Plan, read_units, units_table
from surefoot.jobs.settings import JobSettings, Selection
from surefoot.jobs.sources import Source

if TYPE_CHECKING:
    import pyarrow

VERSION = 1
"""Of the files in `_surefoot/`. Increment it when older jobs cannot be continued."""

OWN = "_surefoot"
JOB, PLAN = f"{OWN}/job.json", f"{OWN}/plan.parquet"
JOURNAL, PROGRESS = f"{OWN}/journal.jsonl", f"{OWN}/progress.json"
FOLDERS = ("input", "scored", "errors")


@dataclass(frozen=True)
class ModelIdentity:
    """The model of a job: what must be equal for its scores to be equal."""

    name: str
    fingerprint: str
    scale: str
    calibration: str | None


@dataclass(frozen=True)
class Entry:
    """A line of the journal: a unit that was scored, and the files that hold it."""

    unit: int
    scored: FileSum
    part: FileSum | None
    errors: FileSum | None
    selection: str
    """The selection that the part was made with: see `selection_id`."""
    rows: int
    results: int
    """More than rows if rows hold several completions."""
    kept: int
    unscored: int
    bad: int
    tokens: int
    seconds: float
    problem: str | None = None
    """Why there is no part."""
    model: ModelIdentity | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Entry:
        """Rebuild an entry from JSON."""
        files = {name: data[name] and FileSum(**data[name]) for name in ("scored", "part", "errors")}
        model = data.get("model")
        return cls(**data | files | {"model": model and ModelIdentity(**model)})


@dataclass(frozen=True)
class Job:
    """A planned job."""

    out: Path
    settings: JobSettings
    plan: Plan
    planned_errors: int = 0
    """Rows that were set aside when the input was regrouped."""

    def part_path(self, unit: int) -> str:
        """Where the part of a unit belongs."""
        return f"part-{unit:06d}.{self.settings.format}"

    def scored_path(self, unit: int) -> str:
        """Where the scored rows of a unit belong: they are the part if nothing is left out."""
        return self.part_path(unit) if self.settings.direct else hidden_scored_path(unit)

    @property
    def selection_id(self) -> str:
        """Identifies how parts are made from scored rows."""
        return json.dumps([self.settings.format, *asdict(self.settings.selection).values()])


def hidden_scored_path(unit: int) -> str:
    """Where scored rows are kept if the parts contain a selection of them."""
    return f"{OWN}/scored/part-{unit:06d}.parquet"


def errors_path(unit: int) -> str:
    """Where the bad rows of a unit are set aside."""
    return f"{OWN}/errors/part-{unit:06d}.jsonl"


def prepare_folder(out: Path) -> None:
    """Create the folder, and reject one that holds anything else."""
    with named_errors(out):
        if out.exists() and not out.is_dir():
            raise JobError(f"{out} is a file. Name a folder for the output.")
        if out.is_dir() and not (out / OWN).is_dir() and any(out.iterdir()):
            raise JobError(f"{out} is not empty and holds no bulk job. Choose another folder.")
        for name in FOLDERS:
            (out / OWN / name).mkdir(parents=True, exist_ok=True)


def clear_folder(out: Path) -> None:
    """Delete the job in a folder. Files of others stay."""
    for path in [*out.glob("part-*.parquet"), *out.glob("part-*.jsonl"), *out.glob(".part-*"), out / JOB]:
        path.unlink(missing_ok=True)
    for path in (out / OWN).iterdir():
        if path.name not in ("lock", "owner.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    prepare_folder(out)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the folder for one run, and delete what killed writers left behind."""
    with hold_folder(out, OWN):
        remove_temporary(out, out / OWN, *(out / OWN / name for name in FOLDERS))
        yield


def save_job(job: Job) -> None:
    """Write the plan and then the job."""
    import pyarrow.parquet as pq

    write_file(job.out, PLAN, lambda path: pq.write_table(units_table(job.plan.units), path, compression="zstd"))
    content = {
        "version": VERSION,
        "settings": job.settings.to_dict(),
        "sources": [asdict(source) for source in job.plan.sources],
        "schema": base64.b64encode(job.plan.schema.serialize().to_pybytes()).decode(),
        "rows": job.plan.rows,
        "units": len(job.plan.units),
        "planned_errors": job.planned_errors,
    }
    write_json(job.out, JOB, content)


def write_json(out: Path, path: str, content: dict[str, Any]) -> None:
    """Write JSON for people and programs."""
    write_file(out, path, lambda temporary: temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False)))


def read_job(out: Path) -> Job | None:
    """Return the job in a folder, or None if there is none or its planning did not finish."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not (out / JOB).is_file():
        return None
    try:
        content = json.loads((out / JOB).read_text())
        if content["version"] != VERSION:
            raise JobError(
                f"{out} was written by another version of Surefoot. Finish it with that version, or start anew with "
                "fresh=True."
            )
        told = content["settings"]
        settings = JobSettings(
            **told
            | {
                "columns": Columns(**told["columns"]),
                "options": ReadOptions(**told["options"]),
                "selection": Selection(**told["selection"]),
            }
        )
        schema: pyarrow.Schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content["schema"])))
        with (out / PLAN).open("rb") as stream:
            units = tuple(read_units(pq.read_table(stream, use_threads=False)))
        plan = Plan(tuple(Source(**source) for source in content["sources"]), schema, units)
        return Job(out, settings, plan, content["planned_errors"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise JobError(f"The job in {out} cannot be read: {error}. Start anew with fresh=True.") from error


class Journal:
    """The finished units of a job, one line of JSON each. Only the process that holds the lock writes."""

    def __init__(self, out: Path, *, repair: bool = True) -> None:
        self._path = out / JOURNAL
        self.entries: dict[int, Entry] = {}
        """The last entry of each unit."""
        for data in read_journal(self._path, repair=repair):
            try:
                entry = Entry.from_dict(data)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # a damaged line: its unit is scored again
            self.entries[entry.unit] = entry

    def append(self, entry: Entry) -> None:
        """Record a unit, durably."""
        append_line(self._path, asdict(entry))
        self.entries[entry.unit] = entry

    @property
    def model(self) -> ModelIdentity | None:
        """The model of the units so far."""
        return next((entry.model for entry in self.entries.values() if entry.model is not None), None)
