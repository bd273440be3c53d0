"""GenPRM: a dialogue with one user turn per step, to which the model replies with an analysis and a judgement.

The prompt has no assistant header: the forced beginning of the reply follows the step's text at once, as in the makers'
code. Later steps see the model's own earlier replies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.critics.backend import NO_VERDICT, CriticBackend, Labels, incomplete
from surefoot.critics.base import StepCritic, Task
from surefoot.critics.code_execution import CodeSession, require_sandbox
from surefoot.critics.prompt import Piece, TokenPrompt, Written
from surefoot.critics.r1 import ASSISTANT, BOS, END, USER, WITH_SYSTEM
from surefoot.critics.verdict import Vote, failed
from surefoot.errors import OptionError

SYSTEM = "You are a math teacher. Your task is to review and critique the paragraphs in solution step by step."
DIRECT_SYSTEM = (
    "You are a math teacher. Your task is to review and critique the paragraphs in solution directly. Output your "
    "judgement in the format of `\\boxed{Yes}` if the paragraph is correct, or `\\boxed{No}` if the paragraph is "
    "incorrect."
)
ANALYZE = "<analyze>\nLet's analyze the Paragraph {number} step by step: "
VERIFY = "<verify>\nLet's use python code to find any potential error:\n```python\n"
OUTPUT = "<output>\n**Judgement**: $\\boxed"
ANALYZED, CODED, JUDGED = "</analyze>\n", "\n```\n", "</output>\n"
CODE_OUTPUT = "[Code Output]\n\n```\n{output}\n```\n"
CODE_BLOCK = re.compile(r"```python\s*(.*?)\s*```", re.DOTALL)
VERDICT = re.compile(r"\\boxed\{(?=(?:Yes|No)\})")
OUTPUT_TOKENS = 20
"""The most tokens of a judgement after a forced beginning."""
ROUNDS = 3
"""The most code blocks per step."""

Code = Literal["off", "written", "run"]


@dataclass(frozen=True)
class GenPRM(StepCritic):
    """GenPRM/GenPRM-1.5B, -7B and -32B."""

    name: ClassVar[str] = "genprm"
    description: ClassVar[str] = "GenPRM: analyses each step in a dialogue, optionally with Python code"
    models: ClassVar[tuple[str, ...]] = ("GenPRM/GenPRM-1.5B", "GenPRM/GenPRM-7B", "GenPRM/GenPRM-32B")
    takes_tokens: ClassVar[bool] = True
    reads_history: ClassVar[bool] = True
    adds_generation_prompt: ClassVar[bool] = False
    structure: ClassVar[tuple[str, ...]] = (
        "<analyze>", "</analyze>", "<verify>", "</verify>", "<output>", "</output>", "[Code Output]",
    )  # fmt: skip
    labels: ClassVar[Labels] = Labels("Yes", "No")

    first_turn: Literal["evaluation", "training"] = "evaluation"
    """The first message: as in the makers' ProcessBench script, or with `Question: ` as in their training data."""
    analyze: bool = True
    """Without an analysis, the makers measured 60.0 instead of 79.3 F1."""
    code: Code = "off"
    """`written`: the model writes code and guesses its output. `run`: the code is run here, which is worth about 1 F1.
    It runs in a process without network, with limits on time and memory, on Linux only."""
    top_p: float = 0.95
    top_k: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_turn not in ("evaluation", "training"):
            raise OptionError(f"first_turn={self.first_turn!r}: pass 'evaluation' or 'training'.")
        if self.code not in ("off", "written", "run"):
            raise OptionError(f"code={self.code!r}: pass 'off', 'written' or 'run'.")
        if self.code == "run":
            require_sandbox()

    def published_template(self) -> str | None:
        """The template of DeepSeek-R1-Distill, which ends with the step."""
        return WITH_SYSTEM

    def prompt(self, task: Task, step: int, history: tuple[str, ...]) -> TokenPrompt:
        """The dialogue up to a step, without the beginning of the model's reply."""
        system = DIRECT_SYSTEM if not self.analyze and self.code == "off" else SYSTEM
        return TokenPrompt((BOS, system if task.system is None else task.system, *self._turns(task, step, history)))

    def _turns(self, task: Task, step: int, history: tuple[str, ...]) -> Iterator[Piece]:
        for number in range(step + 1):
            yield USER
            if number == 0 and self.first_turn == "training":
                yield f"Question: {task.question}\n\n{task.steps[0]}"
            else:
                yield f"{task.question}\n{task.steps[0]}" if number == 0 else task.steps[number]
            if number < step:
                yield ASSISTANT
                yield Written(history[number])
                yield END

    async def vote(
        self, backend: CriticBackend, task: Task, step: int, history: tuple[str, ...], seed: int
    ) -> tuple[Vote, str | None]:
        """Write an analysis, code if that was asked for, and a judgement."""
        prompt, reply = self.prompt(task, step, history), ""
        if self.analyze:
            reply = ANALYZE.format(number=step + 1)
            written = await backend.write(
                prompt.plus(reply), max_tokens=self.max_tokens, sampling=self.sampling, seed=seed, stops=(ANALYZED,)
            )
            if problem := incomplete(written, self.max_tokens):
                return problem, None
            reply += written.text
        judged = reply + OUTPUT if self.code == "off" else await self._with_code(backend, prompt, reply, history, seed)
        if isinstance(judged, Vote):
            return judged, None
        return await self._judge(backend, prompt, judged, seed)

    async def _judge(
        self, backend: CriticBackend, prompt: TokenPrompt, reply: str, seed: int
    ) -> tuple[Vote, str | None]:
        """Complete the judgement, and read the probabilities where it says Yes or No."""
        if not reply.endswith(JUDGED):
            written = await backend.write(
                prompt.plus(reply), max_tokens=OUTPUT_TOKENS, sampling=self.sampling, seed=seed, stops=(JUDGED,)
            )
            if written.end == "error":
                return failed("generator_error", written.reason or NO_VERDICT), None
            reply += written.text
        found = list(VERDICT.finditer(reply, max(0, reply.rfind("<output>"))))
        if not found:
            return failed("no_verdict", NO_VERDICT), None
        return await backend.read(prompt.plus(reply[: found[-1].end()]), self.labels, self.min_mass), reply

    async def _with_code(
        self, backend: CriticBackend, prompt: TokenPrompt, analysis: str, history: tuple[str, ...], seed: int
    ) -> str | Vote:
        """The reply with code and its output, up to the judgement. Too much code is dropped again."""
        reply = analysis + VERIFY
        session = CodeSession(_blocks(history)) if self.code == "run" else None
        for round_ in range(ROUNDS):
            written = await backend.write(
                prompt.plus(reply),
                max_tokens=self.max_tokens,
                sampling=self.sampling,
                seed=seed + round_,
                stops=(JUDGED,) if session is None else (CODED, JUDGED),
            )
            if written.end == "error":
                return failed("generator_error", written.reason or NO_VERDICT)
            reply += written.text
            if written.end != "step" or reply.endswith(JUDGED):
                break
            if session is not None:
                blocks = CODE_BLOCK.findall(reply)
                output = await session.run(blocks[-1]) if blocks else "Code format error: No code found."
                reply += CODE_OUTPUT.format(output=output)
        if reply.endswith(JUDGED):
            return reply
        return analysis + OUTPUT if self.analyze else f"{reply}</verify>\n{OUTPUT}"


def _blocks(history: tuple[str, ...]) -> list[str]:
    """The code of earlier steps, whose names later code may use."""
    return [block for reply in history for block in CODE_BLOCK.findall(reply)]
