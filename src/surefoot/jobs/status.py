"""Says how far a job is, from the files in its folder. Works while the job runs."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import JobError
from surefoot.jobs.folder import OWN, PROGRESS, Journal, read_job
from surefoot.jobs.progress import duration


@dataclass(frozen=True)
class JobStatus:
    """How far a job is."""

    out: str
    state: str
    """`planning`, `running`, `stopped` (or killed) or `finished`."""
    rows: int
    total_rows: int
    units: int
    total_units: int
    bad_rows: int
    model: str | None
    seconds_to_go: float | None
    """At the speed of the present run; None if none is running."""
    owner: str | None
    """Who is running it."""

    @property
    def finished(self) -> bool:
        """Whether every unit is scored."""
        return self.state == "finished"

    def text(self) -> str:
        """Return the status as lines for people."""
        share = self.rows / self.total_rows if self.total_rows else 1.0
        lines = [f"{self.out}: {self.state}" + (f" by {self.owner}" if self.owner else "")]
        lines.append(f"  rows   {self.rows:,} of {self.total_rows:,} ({share:.1%})")
        lines.append(f"  units  {self.units:,} of {self.total_units:,}")
        if self.bad_rows:
            lines.append(f"  bad    {self.bad_rows:,} rows cannot be read: see {Path(self.out) / OWN / 'errors'}")
        if self.model:
            lines.append(f"  model  {self.model}")
        if self.seconds_to_go is not None:
            lines.append(f"  to go  {duration(self.seconds_to_go)}")
        if self.state == "stopped":
            lines.append("  Run the same command again to continue.")
        return "\n".join(lines) + "\n"


def job_status(out: str | Path) -> JobStatus:
    """Return how far the job in a folder is. Only counts are compared; a run that continues checks every file."""
    folder = Path(out).expanduser().absolute()
    if not (folder / OWN).is_dir():
        raise JobError(f"There is no bulk job in {out}.")
    owner = _owner(folder)
    job = read_job(folder)
    if job is None:
        state = "planning" if owner else "stopped"
        return JobStatus(str(folder), state, 0, 0, 0, 0, 0, None, None, owner)
    journal = Journal(folder, repair=False)
    entries = [journal.entries[unit.number] for unit in job.plan.units if unit.number in journal.entries]
    done = [entry for entry in entries if entry.part is not None and (folder / entry.part.path).is_file()]
    complete = len(done) == len(job.plan.units)
    return JobStatus(
        out=str(folder),
        state="running" if owner else "finished" if complete else "stopped",
        rows=sum(entry.rows + entry.bad for entry in done),
        total_rows=job.plan.rows,
        units=len(done),
        total_units=len(job.plan.units),
        bad_rows=job.planned_errors + sum(entry.bad for entry in done),
        model=None if journal.model is None else journal.model.name,
        seconds_to_go=_progress(folder).get("seconds_to_go") if owner else None,
        owner=owner,
    )


def _progress(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / PROGRESS).read_text())
    except (OSError, ValueError):
        return {}
    return found if time.time() - found.get("updated", 0) < 60 else {}


def _owner(folder: Path) -> str | None:
    """The process that holds the folder, unless it is known to be dead."""
    try:
        told = json.loads((folder / OWN / "owner.json").read_text())
        if told["host"] == socket.gethostname():
            os.kill(told["pid"], 0)
        return f"process {told['pid']} on {told['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None
