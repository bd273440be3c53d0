"""Test-time search: how does it compare with what the same tokens buy without it?"""

from surefoot.evaluate.search.compare import compare_searches
from surefoot.evaluate.search.files import read_search_records
from surefoot.evaluate.search.measures import SearchMeasurement
from surefoot.evaluate.search.plot import plot_searches
from surefoot.evaluate.search.report import search_report_html, write_search_report
from surefoot.evaluate.search.result import QuestionOutcome, SearchComparison

__all__ = [
    "QuestionOutcome",
    "SearchComparison",
    "SearchMeasurement",
    "compare_searches",
    "plot_searches",
    "read_search_records",
    "search_report_html",
    "write_search_report",
]
