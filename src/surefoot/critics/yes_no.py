"""A critic for any chat model, configured by a template: is this step correct, Yes or No?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from surefoot.critics.backend import NO_VERDICT, CriticBackend, Labels, incomplete
from surefoot.critics.base import StepCritic, Task
from surefoot.critics.prompt import ChatMessage
from surefoot.critics.verdict import Vote, failed
from surefoot.errors import OptionError
from surefoot.text.thinking import after_thinking

FIELDS = ("{question}", "{previous}", "{step}")
FIRST = "(none: this is the first step)"
TEMPLATE = """Here are a problem, the first steps of a solution, and the next step.

[Problem]
{question}

[Previous steps]
{previous}

[Next step]
{step}

Check the next step only: does it follow from the problem and the previous steps, and are its calculations right?
Explain briefly, then end with a line that says "Verdict: Yes" if the next step is correct, or "Verdict: No" if not."""


@dataclass(frozen=True)
class YesNoCritic(StepCritic):
    """A per-step critic whose prompt, labels and closing words are options."""

    name: ClassVar[str] = "yes-no"
    description: ClassVar[str] = "any chat model with your own template: is this step correct, Yes or No?"
    takes_system: ClassVar[bool] = False

    template: str = TEMPLATE
    """The message, with {question}, {previous} and {step}, each at most once."""
    closing: str = "Verdict:"
    """The words before the verdict."""
    right: str = " Yes"
    """The verdict for a correct step: one token, with the space before it."""
    wrong: str = " No"
    explain: bool = True
    """Let the model explain before its verdict. Without, the verdict is read at once, which costs no tokens."""
    temperature: float = 0.0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in FIELDS:
            if self.template.count(name) > 1 or (name == "{step}" and name not in self.template):
                raise OptionError(f"template: it needs {{step}}, and each of {', '.join(FIELDS)} at most once.")
        right, wrong = self.labels.without_space()
        if not self.closing.strip() or not right or not wrong or right == wrong:
            raise OptionError("closing, right and wrong: pass texts that are not blank, and two different verdicts.")

    @property
    def labels(self) -> Labels:
        """The two verdicts."""
        return Labels(self.right, self.wrong)

    def prompt(self, task: Task, step: int) -> ChatMessage:
        """The message about one step. Texts are inserted at once, so that none can contain a field."""
        values = {
            "{question}": task.question,
            "{previous}": "\n\n".join(task.steps[:step]) or FIRST,
            "{step}": task.steps[step],
        }
        pieces = re.split("(" + "|".join(map(re.escape, FIELDS)) + ")", self.template)
        return ChatMessage("".join(values.get(piece, piece) for piece in pieces))

    async def vote(
        self, backend: CriticBackend, task: Task, step: int, history: tuple[str, ...], seed: int
    ) -> tuple[Vote, str | None]:
        """Let the model explain, then compare the probabilities of both verdicts after the closing words."""
        prompt = self.prompt(task, step)
        if not self.explain and backend.reads_labels:
            return await backend.read(prompt.plus(self.closing), self.labels, self.min_mass), ""
        written = await backend.write(prompt, max_tokens=self.max_tokens, sampling=self.sampling, seed=seed)
        if problem := incomplete(written, self.max_tokens):
            return problem, None
        if not backend.reads_labels:
            return self.from_text(written.text), written.text
        found = self.last_verdict(written.text)
        text = written.text.rstrip() + "\n\n" if found is None else written.text[: found.start("verdict")]
        return await backend.read(prompt.plus(text + self.closing), self.labels, self.min_mass), written.text

    def from_text(self, text: str) -> Vote:
        """The verdict in the last line, for servers that report no probabilities. It counts as certain."""
        found = self.last_verdict(text)
        if found is None:
            return failed("no_verdict", NO_VERDICT)
        return Vote(1.0 if found["label"] == self.labels.without_space()[0] else 0.0)

    def last_verdict(self, text: str) -> re.Match[str] | None:
        """The verdict, if the last line after the thinking is one and nothing else."""
        right, wrong = map(re.escape, self.labels.without_space())
        answer = len(text) - len(after_thinking(text))
        marks = r"[\s*_\"'`.!]*"
        pattern = rf"^[ \t*_]*(?P<verdict>{re.escape(self.closing)}){marks}(?P<label>{right}|{wrong}){marks}\Z"
        found = [*re.finditer(pattern, text, re.MULTILINE)]
        return found[-1] if found and found[-1].start() >= answer else None

    def marks(self) -> tuple[str, ...]:
        """The template's own lines and the closing words."""
        fixed = re.split("|".join(map(re.escape, FIELDS)), self.template)
        lines = (line.strip() for part in fixed for line in part.splitlines())
        return (*(line for line in lines if len(line) > 2), self.closing)
