"""Measuring PRMs: ProcessBench, PRMBench, best of N, and how well scores are calibrated.

    rows = evaluate.read_processbench("ProcessBench/")
    print(evaluate.processbench(scorer, rows))

The rule: only what `surefoot` offers to everybody is used here, and importing this does not import torch.
"""

from __future__ import annotations

from surefoot.evaluate.best_of_n import BestOfNResult, best_of_n
from surefoot.evaluate.calibrate import CalibrationResult, calibrate
from surefoot.evaluate.prmbench import PRMBenchResult, prmbench
from surefoot.evaluate.processbench import ProcessBenchResult, processbench
from surefoot.evaluate.reliability import Bin, Reliability, reliability
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

__all__ = [
    "BestOfNResult",
    "Bin",
    "CalibrationResult",
    "PRMBenchResult",
    "PRMBenchRow",
    "ProcessBenchResult",
    "ProcessBenchRow",
    "Reliability",
    "Rollout",
    "best_of_n",
    "calibrate",
    "prmbench",
    "processbench",
    "read_labelled",
    "read_prmbench",
    "read_processbench",
    "read_rollouts",
    "reliability",
    "report",
    "report_html",
]
