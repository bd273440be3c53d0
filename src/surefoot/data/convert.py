"""Converts files of labelled steps from one format to another.

The output appears complete or not at all. Everything that the target format cannot represent is counted.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.data.files import json_line, write_file
from surefoot.data.formats.base import Format
from surefoot.data.formats.labels import require_no_corrections
from surefoot.data.formats.registry import FORMATS, WRITTEN, detect, format_named
from surefoot.data.records import Record, read_records
from surefoot.data.step_labels import Loss, Losses
from surefoot.errors import InputError, OptionError

UNRATED = Loss("alternative completions without a rating were dropped", "completions")


@dataclass(frozen=True)
class Conversion:
    """What a conversion read, wrote and lost."""

    formats: Mapping[str, str]
    """The format of each file, by the name of its split."""
    to: str
    rows_read: int
    rows_written: int
    losses: Mapping[Loss, int]
    """Empty if nothing was lost."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "from": dict(self.formats),
            "to": self.to,
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "losses": [{"what": loss.what, "unit": loss.unit, "count": count} for loss, count in self.losses.items()],
        }


def convert(
    source: str | Path, out: str | Path, *, to: str, from_: str | None = None, alternatives: bool = False
) -> Conversion:
    """Write the labelled solutions of a file, a folder or a data set on the Hub as JSONL in another format.

        convert("phase2_train.jsonl", "trl.jsonl", to="trl")

    The format of each file is detected from its first row, unless `from_` names it. With `alternatives`, every
    alternative step of PRM800K becomes a solution of its own, which ends with it. An `out` that ends in .gz is gzipped.
    """
    target, given = format_named(to), None if from_ is None else format_named(from_)
    if target.name not in WRITTEN:
        raise OptionError(f"The format {target.name} can only be read. Choose one of: {', '.join(WRITTEN)}.")
    require_no_corrections(source)
    path = _output_path(Path(source).expanduser(), Path(out).expanduser())
    formats: dict[str, Format] = {}
    losses = Losses()
    read = written = 0

    def write(temporary: Path) -> None:
        nonlocal read, written
        with gzip.open(temporary, "wb") if path.suffix == ".gz" else temporary.open("wb") as stream:
            for record in read_records(source):
                read += 1
                for row in _rows(record, _format(record, formats, given), target, alternatives, losses):
                    stream.write(json_line(row))
                    written += 1
        if not read:
            raise InputError(f"{source} contains no row.")
        if not written:
            reasons = "; ".join(f"{loss.what}: {count}" for loss, count in losses.items())
            raise InputError(f"{target.name} cannot represent any solution of {source}: {reasons}.")

    write_file(path.parent, path.name, write)
    names = {split: found.name for split, found in formats.items()}
    return Conversion(names, target.name, read, written, {loss: count for loss, count in losses.items() if count})


def _output_path(source: Path, out: Path) -> Path:
    path = out.resolve()
    if not path.parent.is_dir():
        raise OptionError(f"The folder {path.parent} does not exist. Create it first.")
    if path.is_dir():
        raise OptionError(f"{out} is a folder. Name a file to write to.")
    if source.resolve() in (path, path.parent):
        raise OptionError(f"{out} is the input or in its folder. Write the output to another place.")
    return path


def _format(record: Record, formats: dict[str, Format], given: Format | None) -> Format:
    """Return the format of the record's file, which its first record decides."""
    split = record.split or ""
    if split not in formats:
        try:
            found = given or detect(record.data)
        except InputError as error:
            raise record.wrong(str(error)) from error
        if found is None:
            keys = ", ".join(map(str, record.data)) or "none"
            raise record.wrong(
                f"the keys ({keys}) are those of no known format. The formats are: {', '.join(FORMATS)}."
            )
        formats[split] = found
    return formats[split]


def _rows(
    record: Record, found: Format, target: Format, alternatives: bool, losses: Losses
) -> Iterator[dict[str, Any]]:
    if found.is_empty(record.data):
        losses[found.empty] += 1
        return
    try:
        solution = found.read(record.data)
    except InputError as error:
        raise record.wrong(f"not a row of the format {found.name}: {error}") from error
    branches = list(solution.branches()) if alternatives else []
    main = solution.without_alternatives() if alternatives else solution
    losses[UNRATED] += len(solution.alternatives) - len(branches) if alternatives else 0
    for one in (main, *branches):
        row = target.rewrite(one, losses)
        if row is not None:
            yield row
