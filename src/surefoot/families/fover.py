"""FoVer's PRMs on Llama 3.1 8B and Qwen2.5 7B.

The rule: as RLHFlow's, with a task description in the first turn and the labels `correct` and `incorrect`. The spelling
mistake in the description is that of the training data and has to stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.base import Golden
from surefoot.families.turns import Turns

FIRST_TURN = """** Problem **
{question}

** Task **
Your task is to evaluate the accuracy of each step in the provided solution to the above question. For each step, \
respond with "correct" if the reasoning is logically valid and mathematically sound, or if the step is a general \
statement or transition that does not contain reasoning. Respond with "incorrect" if the step includes any errors or \
flawed logic.

** Sotluion **
{step}"""


@dataclass(frozen=True)
class FoVer(Turns):
    """Labels spelled out."""

    name = "fover"
    goldens = (
        Golden(
            models=("qwen-2.5-7b-fover-prm",),
            question="Calculate (1+1)*(1+2)",
            steps=("1+1=2", "1+2=3", "2*3=8"),
            scores=(0.910, 0.9998, 0.0123),
            tolerance=0.04,
            source="the example in the repository psunlpgroup/FoVer",
        ),
    )

    good: str = "correct"
    bad: str = "incorrect"

    def first_turn(self, question: str, step: str) -> str:
        """The problem, the task, the first step."""
        return FIRST_TURN.format(question=question, step=step)
