"""Benchmarks for PRMs: ProcessBench, PRMBench, AgentProcessBench, best of N, calibration, searches and comparisons.

    rows = evaluate.read_processbench("ProcessBench/")
    print(evaluate.processbench(scorer, rows))

Evaluation uses only the `StepScorer` interface. Importing this package does not import torch.
"""

from __future__ import annotations

from surefoot.evaluate.agentprocessbench import (
    AgentProcessBenchResult,
    Trajectory,
    agentprocessbench,
    read_agentprocessbench,
)
from surefoot.evaluate.baselines import Baseline
from surefoot.evaluate.best_of_n import BestOfNResult, best_of_n
from surefoot.evaluate.calibrate import CalibrationResult, calibrate
from surefoot.evaluate.comparison import Comparison, compare, comparison_html, write_comparison
from surefoot.evaluate.prmbench import PRMBenchResult, prmbench
from surefoot.evaluate.processbench import ProcessBenchResult, processbench
from surefoot.evaluate.provenance import provenance
from surefoot.evaluate.published import published_prmbench, published_processbench
from surefoot.evaluate.registry import BENCHMARKS, Benchmark
from surefoot.evaluate.reliability import Bin, Reliability, labelled_scores, reliability
from surefoot.evaluate.report import report, report_html
from surefoot.evaluate.rows import (
    PRMBenchRow,
    ProcessBenchRow,
    Rollout,
    read_labelled,
    read_prmbench,
    read_processbench,
    read_rollouts,
)
from surefoot.evaluate.search import (
    SearchComparison,
    compare_searches,
    plot_searches,
    read_search_records,
    search_report_html,
    write_search_report,
)

__all__ = [
    "BENCHMARKS",
    "AgentProcessBenchResult",
    "Baseline",
    "Benchmark",
    "BestOfNResult",
    "Bin",
    "CalibrationResult",
    "Comparison",
    "PRMBenchResult",
    "PRMBenchRow",
    "ProcessBenchResult",
    "ProcessBenchRow",
    "Reliability",
    "Rollout",
    "SearchComparison",
    "Trajectory",
    "agentprocessbench",
    "best_of_n",
    "calibrate",
    "compare",
    "compare_searches",
    "comparison_html",
    "labelled_scores",
    "plot_searches",
    "prmbench",
    "processbench",
    "provenance",
    "published_prmbench",
    "published_processbench",
    "read_agentprocessbench",
    "read_labelled",
    "read_prmbench",
    "read_processbench",
    "read_rollouts",
    "read_search_records",
    "reliability",
    "report",
    "report_html",
    "search_report_html",
    "write_comparison",
    "write_search_report",
]
