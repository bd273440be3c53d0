"""Measuring PRMs: ProcessBench, PRMBench and best of N.

    rows = evaluate.read_processbench("ProcessBench/")
    print(evaluate.processbench(scorer, rows))

The rule: only what `surefoot` offers to everybody is used here, and importing this does not import torch.
"""

from __future__ import annotations

from surefoot.evaluate.best_of_n import BestOfNResult, best_of_n
from surefoot.evaluate.prmbench import PRMBenchResult, prmbench
from surefoot.evaluate.processbench import ProcessBenchResult, processbench
from surefoot.evaluate.rows import (
    PRMBenchRow,
    ProcessBenchRow,
    Rollout,
    read_prmbench,
    read_processbench,
    read_rollouts,
)

__all__ = [
    "BestOfNResult",
    "PRMBenchResult",
    "PRMBenchRow",
    "ProcessBenchResult",
    "ProcessBenchRow",
    "Rollout",
    "best_of_n",
    "prmbench",
    "processbench",
    "read_prmbench",
    "read_processbench",
    "read_rollouts",
]
