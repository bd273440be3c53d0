"""R-PRM: an analysis of one step under five headings, then a second pass that compares ` Yes` and ` No`.

The makers' prompt file ends with a backslash and the letter n, twice, where a line break was meant. Their model was
evaluated with these characters, so they are part of the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from surefoot.critics.backend import Labels
from surefoot.critics.base import Task
from surefoot.critics.chains import ChainCritic
from surefoot.critics.prompt import Token, TokenPrompt

START, END = Token("<|im_start|>"), Token("<|im_end|>")
SYSTEM = "You are a helpful assistant."
FIRST_STEP = "Since the Now Step is the first step, there are no Previous Steps."
INSTRUCTIONS = """You are an excellent math teacher. Please verify the correctness of the Now Step.

You first need to analyze the Now Step and the Previous Steps and then summarize based on your analysis.
Analysis:
You need to analyze the following aspects.
**Previous Steps Analysis**: You need to analyze the Previous Steps step by step. For each step, you need to first \
explain what the current step is doing, then you try to find any error in the current step.
**Now Step Analysis**: You first need to explain what the Now Step is doing, and then point out which part of the \
Question it is trying to solve or which part of the information it states.
**Data Source Analysis**: First you need to find out what data are used in the Now Step, and then you need to \
determine whether the source of the data is reasonable and correct. When you judge whether the source of a data is \
reasonable and correct, you need to specify the specific source of this data: such as which part of the question, or \
which content of the previous step; and then determine the source and current use is consistent, the Now Step is used \
correctly.
**Consistency Analysis**: You need to check that the Now Step is consistent with the contents of the Previous Steps, \
and then you need to check that all the information inside the Now Step is consistent.
**Calculation Analysis**: If the Now Step involves any calculations, such as addition, subtraction, multiplication, \
division, equations, modulo operations, etc., you will first need to perform a check on the calculation, such as a \
reverse operation, to see if the calculation was done correctly, and then analyze the results of your check to see if \
there was an error in the calculation.
Conclusion:\x20
Please verify the correctness of the Now Step based on your analysis, if there is any error in the Now Step then the \
Now Step is wrong and vice versa the Now Step is correct. At the end of the Conclusion, when you give your final \
answer, write it in the form "Verification: Is the step correct (Yes/No)? X", where X is either Yes or No.

"""


@dataclass(frozen=True)
class RPRM(ChainCritic):
    """kevinpro/R-PRM-7B-DPO. The makers take ten votes."""

    name: ClassVar[str] = "r-prm"
    description: ClassVar[str] = "R-PRM: analyses one step under five headings, second pass for Yes or No"
    models: ClassVar[tuple[str, ...]] = ("kevinpro/R-PRM-7B-DPO", "kevinpro/R-PRM-7B-SFT")
    structure: ClassVar[tuple[str, ...]] = ("Previous Steps:", "Now Step:", "Is the step correct (Yes/No)?")
    numbers_steps: ClassVar[bool] = True
    closing: ClassVar[str] = "Is the step correct (Yes/No)?"
    forced: ClassVar[str] = "\nBased on your analysis. Is the answer correct (Yes/No)?"
    labels: ClassVar[Labels] = Labels(" Yes", " No")

    temperature: float = 0.95
    top_p: float = 0.95
    max_tokens: int = 3072

    def prompt(self, task: Task, step: int) -> TokenPrompt:
        """One step and those before it, in the makers' words."""
        numbered = [f"Step {number}: {text}" for number, text in enumerate(task.steps[: step + 1], 1)]
        before = "\n".join(numbered[:-1]) or FIRST_STEP
        message = (
            f"{INSTRUCTIONS}Question: {task.question}\nPrevious Steps: {before}\nNow Step: {numbered[-1]}\n"
            "Please carefully analyze the correctness of the Now Step.\nReply: "
        )
        system = SYSTEM if task.system is None else task.system
        return TokenPrompt(
            (START, f"system\n{system}", END, "\n", START, f"user\n{message}", END, "\\n", START, "assistant\\n")
        )
