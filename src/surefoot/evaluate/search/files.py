"""Read the records of searches from files."""

from __future__ import annotations

from pathlib import Path

from surefoot.core.search_result import SearchRecord
from surefoot.data.records import read_records
from surefoot.errors import InputError


def read_search_records(source: str | Path) -> list[SearchRecord]:
    """Read a JSONL file with one record per line, or every such file in a folder.

    records = read_search_records("searches.jsonl")
    """
    found = []
    for record in read_records(source):
        try:
            found.append(SearchRecord.from_dict(record.data))
        except InputError as error:
            raise record.wrong(str(error)) from error
    return found
