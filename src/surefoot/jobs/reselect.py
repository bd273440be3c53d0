"""Finds what earlier runs have finished, and makes parts from scored rows without a model."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from surefoot.jobs.folder import Entry, Job, Journal, hidden_scored_path
from surefoot.jobs.unit import write_part

THREADS = 4
"""Threads that hash files."""


def finished_units(job: Job, journal: Journal) -> dict[int, Entry]:
    """Return the entries of units whose scored rows and errors are intact, by number.

    All files are read, because a damaged one would otherwise be noticed by the users of the output. An entry without
    an intact part has `part=None`.
    """
    entries = [journal.entries[unit.number] for unit in job.plan.units if unit.number in journal.entries]
    with ThreadPoolExecutor(THREADS) as threads:
        checked = threads.map(lambda entry: _checked(job, entry), entries)
        return {entry.unit: entry for entry in checked if entry is not None}


def _checked(job: Job, entry: Entry) -> Entry | None:
    if entry.errors is not None and not entry.errors.matches(job.out):
        return None
    if entry.scored.matches(job.out):
        if entry.part is None or entry.part == entry.scored or entry.part.matches(job.out):
            return entry
        return replace(entry, part=None)
    # A run that ended while it moved the scored rows aside: see `reselect`.
    moved = replace(entry.scored, path=hidden_scored_path(entry.unit))
    return replace(entry, scored=moved, part=None) if moved.matches(job.out) else None


def reselect(job: Job, entry: Entry) -> Entry:
    """Write the part of a scored unit again, with the selection of the job."""
    hidden = hidden_scored_path(entry.unit)
    if entry.scored.path != hidden and not job.settings.direct:
        os.replace(job.out / entry.scored.path, job.out / hidden)
        entry = replace(entry, scored=replace(entry.scored, path=hidden))
    return write_part(job, entry)


def remove_other_parts(job: Job) -> None:
    """Delete parts in another format, which an earlier selection has left."""
    expected = {job.part_path(unit.number) for unit in job.plan.units}
    for path in [*job.out.glob("part-*.parquet"), *job.out.glob("part-*.jsonl")]:
        if path.name not in expected:
            path.unlink()
