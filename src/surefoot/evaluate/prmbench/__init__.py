"""PRMBench: which steps does a PRM take for incorrect?"""

from surefoot.evaluate.prmbench.result import ClassResult, Decisions, PRMBenchResult
from surefoot.evaluate.prmbench.run import prmbench

__all__ = ["ClassResult", "Decisions", "PRMBenchResult", "prmbench"]
