"""The report: one HTML file that holds everything, and asks nothing of the network.

The rule: what a report needs is looked for before a model is run, so that no evaluation ends without its page.
"""

from __future__ import annotations

from pathlib import Path

from surefoot.data.output import check_place
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.best_of_n import BestOfNResult
from surefoot.evaluate.prmbench import PRMBenchResult
from surefoot.evaluate.processbench import ProcessBenchResult

Result = ProcessBenchResult | PRMBenchResult | BestOfNResult


def report(result: Result, path: str | Path) -> None:
    """Writes the page of a result to a file. Needs `pip install "surefoot[report]"`."""
    prepare_report(path)
    text = report_html(result)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"The report cannot be written to {path}: {error}") from error


def report_html(result: Result) -> str:
    """The page itself."""
    from surefoot.evaluate.report import best_of_n, prmbench, processbench
    from surefoot.evaluate.report.page import page

    if isinstance(result, ProcessBenchResult):
        return page(processbench.content(result))
    if isinstance(result, PRMBenchResult):
        return page(prmbench.content(result))
    if isinstance(result, BestOfNResult):
        return page(best_of_n.content(result))
    raise InputError(f"{type(result).__name__} has no report. Give what processbench, prmbench or best_of_n returned.")


def prepare_report(path: str | Path) -> None:
    """Refuses a place that cannot be written to, or a machine without the plotting package."""
    from surefoot.evaluate.report.figures import require

    require()
    check_place("report", path)
