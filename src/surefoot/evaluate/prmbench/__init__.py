"""PRMBench: which steps does a PRM take for incorrect?"""

from surefoot.evaluate.prmbench.result import ClassResult, PRMBenchResult
from surefoot.evaluate.prmbench.run import prmbench
from surefoot.evaluate.step_decisions import Decisions

__all__ = ["ClassResult", "Decisions", "PRMBenchResult", "prmbench"]
