"""Plans a job, extends it, and rejects one whose input or options have changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.data.differences import differences
from surefoot.errors import JobError, OptionError
from surefoot.jobs.folder import Job, save_job
from surefoot.jobs.grouping import regroup
from surefoot.jobs.plan import Plan, Unit, make_plan, merge_schemas, scan_source
from surefoot.jobs.selection import check_filter
from surefoot.jobs.settings import JobSettings
from surefoot.jobs.sources import Source, open_source, tail_hash
from surefoot.jobs.staging import stage
from surefoot.jobs.unit import added_schema

if TYPE_CHECKING:
    import pyarrow

FRESH = "Undo the change, or start anew with fresh=True, which deletes the scores."


def plan_job(sources: list[Source], settings: JobSettings, out: Path) -> Job:
    """Read the input, cut it into units and write the plan."""
    staged = [stage(source, number, out) for number, source in enumerate(sources)]
    plan = make_plan(staged, settings, out)
    check_schema(plan.schema, settings)
    errors = 0
    if settings.group_by is not None:
        plan, errors = regroup(plan, settings, out)
        for source in staged:
            if source.staged is not None:
                (out / source.staged).unlink()
    job = Job(out, settings, plan, errors)
    save_job(job)
    return job


def check_schema(schema: pyarrow.Schema, settings: JobSettings) -> None:
    """Reject settings that do not fit the columns of the input."""
    added = added_schema(settings).names
    if taken := [name for name in schema.names if name in added]:
        raise OptionError(f"The input has a column {taken[0]!r}, too. Choose other names with prefix=...")
    check_filter(settings, schema.names, added)
    if settings.format == "jsonl":
        import pyarrow as pa

        for field in schema:
            if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                raise OptionError(f"Column {field.name!r} is {field.type}, which JSON cannot hold. Write Parquet.")


def require_same(job: Job, sources: list[Source], settings: JobSettings) -> None:
    """Reject another input or other options than those of the job in the folder."""
    before, after = job.settings.to_dict(), settings.to_dict()
    changed = list(differences(before, after))
    if changed and all(each.startswith(("selection.", "format:")) for each in changed):
        raise JobError(
            f"The job in {job.out} was started with another selection ({'; '.join(changed)}). Apply this one to its "
            "scores with refilter=True, once they are complete."
        )
    if changed:
        raise JobError(f"The job in {job.out} was started with other options ({'; '.join(changed)}). {FRESH}")
    if changed := list(_changed_sources(_true_sources(job), sources)):
        grown = " If rows were only added, continue with extend=True." if job.settings.group_by is None else ""
        raise JobError(f"The input has changed since the job was planned: {'; '.join(changed)}.{grown} {FRESH}")


def require_only_selection(job: Job, settings: JobSettings) -> None:
    """Reject options that would need new scores. Options that are not given stay as they were."""
    given = {each.partition(":")[0] for each in differences(JobSettings().to_dict(), settings.to_dict())}
    changed = [
        each
        for each in differences(job.settings.to_dict(), settings.to_dict())
        if (name := each.partition(":")[0]) in given and not name.startswith(("selection.", "format", "group_by"))
    ]
    if changed:
        raise JobError(
            f"refilter=True changes only the selection, and the job was started with other options "
            f"({'; '.join(changed)}). Leave them out, or start anew with fresh=True."
        )


def _true_sources(job: Job) -> list[Source]:
    """The input files, without regrouped copies of them."""
    return [source for source in job.plan.sources if source.path != source.staged]


def _changed_sources(before: list[Source], after: list[Source]) -> Iterator[str]:
    old = {source.path: source for source in before}
    new = {source.path: source for source in after}
    for path in dict.fromkeys([*old, *new]):
        if path not in new:
            yield f"{path} is missing"
        elif path not in old:
            yield f"{path} is new"
        elif old[path].bytes != new[path].bytes:
            yield f"{path} had {old[path].bytes} bytes and has {new[path].bytes}"
        elif old[path].stamp != new[path].stamp:
            yield f"{path} was modified"


def extend_job(job: Job, sources: list[Source], settings: JobSettings) -> Job:
    """Add the rows of files that grew and of new files."""
    if changed := list(differences(job.settings.to_dict(), settings.to_dict())):
        raise JobError(f"The job in {job.out} was started with other options ({'; '.join(changed)}). {FRESH}")
    if job.settings.group_by is not None:
        raise JobError("A job that groups rows cannot be extended: new rows may belong to finished questions.")
    known = {source.path: source for source in job.plan.sources}
    if missing := [path for path in known if path not in {source.path for source in sources}]:
        raise JobError(f"{missing[0]} is missing. extend=True only adds rows. {FRESH}")
    merged, units = list(job.plan.sources), list(job.plan.units)
    schemas, scanned = [job.plan.schema], [job.plan.sources[0]]
    for source in sources:
        before = known.get(source.path)
        if before is not None and before.identity == source.identity:
            continue
        if before is None:
            number, begin, line = len(merged), 0, 0
            merged.append(stage(source, number, job.out))
        else:
            number, begin, line = merged.index(before), before.bytes, _lines_before_growth(before, source)
            merged[number] = source
        scan = scan_source(merged[number], settings, job.out, begin, line)
        merged[number] = replace(merged[number], rows=scan.rows, tail=scan.tail)
        for start, end, first, rows in scan.ranges:
            units.append(Unit(len(units), number, first, rows, start, end))
        schemas.append(scan.schema)
        scanned.append(source)
    _require_schema(job, merge_schemas(schemas, scanned))
    extended = replace(job, plan=Plan(tuple(merged), job.plan.schema, tuple(units)))
    save_job(extended)
    return extended


def _lines_before_growth(before: Source, after: Source) -> int:
    """Check that a file has only grown, and return the number of its old lines."""
    problem = f"{after.path} has not only grown."
    if before.kind != "jsonl" or before.compression is not None:
        raise JobError(f"{problem} Rows can be added to JSONL without compression, or as new files. {FRESH}")
    if after.bytes <= before.bytes:
        raise JobError(f"{problem} It had {before.bytes} bytes and has {after.bytes}. {FRESH}")
    size, lines, tail = before.tail.split(" ")
    if int(size) != before.bytes or tail_hash(after.path, before.bytes) != tail:
        raise JobError(f"{problem} Its old rows are not what they were. {FRESH}")
    with open_source(after.path) as stream:
        stream.seek(before.bytes - 1)
        if stream.read(1) != b"\n":
            raise JobError(f"{problem} Its last line was not complete when the job was planned. {FRESH}")
    return int(lines)


def _require_schema(job: Job, schema: pyarrow.Schema) -> None:
    if schema.equals(job.plan.schema, check_metadata=True):
        return
    before = {field.name: str(field.type) for field in job.plan.schema}
    after = {field.name: str(field.type) for field in schema}
    changed = "; ".join(differences(before, after)) or "the order of columns"
    raise JobError(f"The added rows have other columns ({changed}), and all parts have one schema. {FRESH}")
