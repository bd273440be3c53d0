"""Write the result of a benchmark as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from surefoot.data.output import check_place
from surefoot.errors import OptionError
from surefoot.evaluate.header import BenchmarkResult
from surefoot.evaluate.provenance import provenance
from surefoot.evaluate.registry import benchmark_of
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.page import page


def report(result: BenchmarkResult, path: str | Path, *, made: Mapping[str, str] | None = None) -> None:
    """Write a report on the result of `processbench`, `prmbench` or `best_of_n`.

        evaluate.report(result, "report.html", made=evaluate.provenance(data="rows.jsonl"))

    `made` is what the report says about how it was made (default: date and versions).
    Needs `pip install "surefoot[report]"`.
    """
    prepare_report(path)
    text = report_html(result, made=provenance() if made is None else made)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"The report cannot be written to {path}: {error}") from error


def report_html(result: BenchmarkResult, *, made: Mapping[str, str] | None = None) -> str:
    """Return the report as text. Without `made`, equal results give equal texts."""
    return page(replace(benchmark_of(result).report(result), made=made or {}))


def prepare_report(path: str | Path) -> None:
    """Raise before an evaluation if its report could not be written afterwards."""
    figures.require()
    check_place("report", path)
