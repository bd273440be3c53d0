"""FoVer's PRMs on Llama 3.1 8B and Qwen2.5 7B.

Like RLHFlow's, with a task description in the first turn and the labels `correct` and `incorrect`. The spelling mistake
in the description is that of the training data and must stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.turns import TurnFamily

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
class FoVer(TurnFamily):
    """One turn per step, with a task description."""

    name = "fover"
    strips_steps = False

    good: str = "correct"
    bad: str = "incorrect"

    def first_turn(self, question: str, step: str) -> str:
        """The problem, the task and the first step."""
        return FIRST_TURN.format(question=question, step=step)
