"""AgentProcessBench: which messages of a tool-using agent does a PRM take for errors?"""

from surefoot.evaluate.agentprocessbench.result import AgentProcessBenchResult, SubsetResult, TrajectoryJudgement
from surefoot.evaluate.agentprocessbench.rows import Trajectory, read_agentprocessbench
from surefoot.evaluate.agentprocessbench.run import agentprocessbench

__all__ = [
    "AgentProcessBenchResult",
    "SubsetResult",
    "Trajectory",
    "TrajectoryJudgement",
    "agentprocessbench",
    "read_agentprocessbench",
]
