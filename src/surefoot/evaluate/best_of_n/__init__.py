"""Best of N: how often is the solution that a PRM selects correct?"""

from surefoot.evaluate.best_of_n.result import BestOfNResult, Candidate, Curve, Estimate
from surefoot.evaluate.best_of_n.run import best_of_n, check_options, check_sizes

__all__ = ["BestOfNResult", "Candidate", "Curve", "Estimate", "best_of_n", "check_options", "check_sizes"]
