"""Universal-PRM-7B.

The rule: every step is judged at the end of a text that holds the steps up to it and then ends. So each step has a
prompt of its own; they differ in nothing but the end, and what they share is computed once. A reference answer may
stand in the question, as in training; where it does not, the question says that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family, Golden, config_int
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import chatml_turn
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

REFERENCE = "\n\n###\n\nThe reference answer is: "
NO_REFERENCE = "There is no reference answer for this question."
QUESTION = (
    "It's April, and Mrs. Rylan has been busy on her farm planting different types of vegetables for the season. She "
    "has bought 20 packets of tomato seeds and 80 packets of celery seeds to plant. If a packet of tomato seeds costs "
    "$40 and a packet of celery seeds costs $30, how much money did she use to buy the seeds?"
    f"{REFERENCE}The total amount of money she used to buy the tomato seeds is 20 packets * $40/packet = "
    "$<<20*40=800>>800\nThe celery seeds cost her 80 packets * $30/packet = $<<80*30=2400>>2400\nFor the seeds, Mrs. "
    "Rylan paid $2400 + $800 = $<<2400+800=3200>>3200\n#### 3200"
)
STEPS = (
    "To find out how much money Mrs. Rylan used to buy the seeds, we need to calculate the total cost of tomato seeds "
    "and celery seeds separately, then add them together.",
    "First, calculate the total cost of tomato seeds. Number of packets of tomato seeds = 20. Cost per packet of "
    "tomato seeds = $40. Total cost of tomato seeds = Number of packets of tomato seeds * Cost per packet of tomato "
    "seeds = 20 * $40 = $800.",
    "Second, calculate the total cost of celery seeds. Number of packets of celery seeds = 80. Cost per packet of "
    "celery seeds = $30. Total cost of celery seeds = Number of packets of celery seeds * Cost per packet of celery "
    "seeds = 80 * $30 = $2400.",
    "Finally, calculate the total amount of money used to buy the seeds. Total amount of money = Total cost of tomato "
    "seeds + Total cost of celery seeds = $800 + $2400 = $3200.",
    "Therefore, Mrs. Rylan used \\boxed{$3200} to buy the seeds.",
)


@dataclass(frozen=True)
class Universal(Family):
    """One prompt a step."""

    name = "universal"
    readout = "value MLP, sigmoid at the end of each prefix"
    unused_tensors = ("lm_head.",)
    goldens = (
        Golden(
            models=("universal-prm-7b",),
            question=QUESTION,
            steps=STEPS,
            scores=(0.73828125, 0.7265625, 0.73046875, 0.73828125, 0.734375),
            tolerance=0.03,
            source="the model card's example, bfloat16",
        ),
    )

    default_system: str | None = "You are a helpful assistant."
    end: str = "<|im_end|>"
    """The structure token that ends the text, where it is read."""

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Linear, ReLU, Linear to one value."""
        size = config_int(config, "hidden_size")
        return {
            "score.0.weight": (size, size),
            "score.0.bias": (size,),
            "score.2.weight": (1, size),
            "score.2.bias": (1,),
        }

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """All steps, read once, at the end: the prompt of the last step."""
        system = self.default_system if system is None else system
        if REFERENCE not in question:
            question += REFERENCE + NO_REFERENCE
        builder = PromptBuilder(tokenizer)
        if system is not None:
            chatml_turn(builder, "system", system)
        chatml_turn(builder, "user", question)
        builder.token("<|im_start|>")
        builder.text("assistant\n")
        builder.question_ends()
        if steps:
            builder.text("\n\n".join(steps) + "\n\n")
            builder.token(self.end)
            builder.read()
        return builder.prompt()

    def prompts(
        self,
        tokenizer: PromptTokenizer,
        question: str,
        steps: Sequence[str],
        system: str | None = None,
        limit: int | None = None,
    ) -> tuple[Prompt, ...]:
        """One for every step, with the steps up to it. The first that is too long stands for all that follow."""
        found: list[Prompt] = []
        for count in range(min(1, len(steps)), len(steps) + 1):
            too_long = limit is not None and found and len(found[-1].ids) > limit
            found.append(found[-1] if too_long else self.render(tokenizer, question, steps[:count], system))
        return tuple(found)

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the value."""
        inner = (hidden @ head["score.0.weight"].T + head["score.0.bias"]).relu()
        return (inner @ head["score.2.weight"].T + head["score.2.bias"]).sigmoid()[:, 0]
