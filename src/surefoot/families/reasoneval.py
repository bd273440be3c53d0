"""ReasonEval-7B and -34B.

The rule: question and steps as plain text, one after the other; three classes, negative, neutral and positive, are read
at the last token of each step. The score is the probability of neutral or positive: the step is valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family, Golden, config_int
from surefoot.families.builder import PromptBuilder
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

QUESTION = (
    "Let $x,$ $y,$ and $z$ be positive real numbers such that $xyz(x + y + z) = 1.$  Find the minimum value of\n"
    "\\[(x + y)(y + z).\\]"
)
STEPS = (
    "1. The problem asks us to find the minimum value of $(x + y)(y + z)$ given that $x,$ $y,$ and $z$ are positive "
    "real numbers and $xyz(x + y + z) = 1$.",
    "2. By the AM-GM inequality, we have $x + y + z \\geq 3\\sqrt[3]{xyz}$.",
    "3. By the given condition $xyz(x + y + z) = 1$, we can substitute $x + y + z$ with $\\sqrt[3]{xyz}$ in the "
    "inequality from step 2 to get $3\\sqrt[3]{xyz} \\geq 3$.",
    "4. Simplifying the inequality from step 3 gives $\\sqrt[3]{xyz} \\geq 1$.",
    "5. By raising both sides of the inequality from step 4 to the power of 3, we have $xyz \\geq 1$.",
    "6. By the AM-GM inequality, we have $(x + y)(y + z) \\geq 2\\sqrt{(x + y)(y + z)}$.",
    "7. By the given condition $xyz(x + y + z) = 1$, we can substitute $(x + y)(y + z)$ with $\\frac{1}{xyz}$ in the "
    "inequality from step 6 to get $2\\sqrt{(x + y)(y + z)} \\geq 2\\sqrt{\\frac{1}{xyz}}$.",
    "8. Simplifying the inequality from step 7 gives $(x + y)(y + z) \\geq \\frac{2}{\\sqrt{xyz}}$.",
    "9. By the condition $xyz \\geq 1$ from step 5, we have $\\frac{2}{\\sqrt{xyz}} \\geq \\frac{2}{\\sqrt{1}} = 2$.",
    "10. Therefore, the minimum value of $(x + y)(y + z)$ is $\\boxed{2}$.",
)
SOURCE = "the example in the repository GAIR-NLP/ReasonEval"


@dataclass(frozen=True)
class ReasonEval(Family):
    """Plain text, three classes at the end of each step."""

    name = "reasoneval"
    readout = "three classes at the step's last token"
    goldens = (
        Golden(
            models=("reasoneval-7b",),
            question=QUESTION,
            steps=STEPS,
            scores=(0.9492, 0.7863, 0.2520, 0.7860, 0.9125, 0.5916, 0.4494, 0.8189, 0.8240, 0.2671),
            tolerance=0.04,
            source=SOURCE,
        ),
        Golden(
            models=("reasoneval-34b",),
            question=QUESTION,
            steps=STEPS,
            scores=(0.9360, 0.6813, 0.0720, 0.2811, 0.4531, 0.1122, 0.1328, 0.2026, 0.2265, 0.1163),
            tolerance=0.04,
            source=SOURCE,
        ),
    )

    opening: str | None = "<s>"
    """The structure token that opens the text."""
    steps_open: bool = True
    """Encode every step as a text of its own: in the authors' code a structure token stands between them, which is
    taken out again afterwards."""

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to three classes, with a bias where config.json says so."""
        shapes: dict[str, tuple[int, ...]] = {"score_head.weight": (3, config_int(config, "hidden_size"))}
        if config.get("use_bias", config.get("bias")):
            shapes["score_head.bias"] = (3,)
        return shapes

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat, nothing between the steps."""
        self.refuse_system(system)
        builder = PromptBuilder(tokenizer)
        if self.opening is not None:
            builder.token(self.opening)
        builder.text(f"Question:\n{question}\nAnswer:\nLet's think step by step.\n", opens=True)
        builder.question_ends()
        for step in steps:
            builder.text(step, opens=self.steps_open)
            builder.read()
        return builder.prompt()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Neutral or positive."""
        logits = hidden @ head["score_head.weight"].T
        if "score_head.bias" in head:
            logits = logits + head["score_head.bias"]
        return logits.softmax(-1)[:, 1:].sum(-1)
