"""ProcessBench: does a PRM find the first incorrect step?"""

from surefoot.evaluate.processbench.result import GroupResult, Judgement, ProcessBenchResult, Proportion
from surefoot.evaluate.processbench.run import check_options, processbench

__all__ = ["GroupResult", "Judgement", "ProcessBenchResult", "Proportion", "check_options", "processbench"]
