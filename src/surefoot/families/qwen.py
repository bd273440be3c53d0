"""Qwen2.5-Math-PRM-7B and -72B, Qwen2.5-Math-7B-PRM800K, and whatever shares their layout.

The rule: a ChatML conversation in which the marker `<extra_0>` closes every step; two classes, wrong and right, are
read at each marker by a small MLP. Pieces between structure tokens are encoded one by one, which is exactly what
tokenising the whole conversation does with ordinary text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.prompt import Prompt
from surefoot.families.base import Golden
from surefoot.families.chat import chatml_marked
from surefoot.families.heads import TwoClassFamily
from surefoot.families.tokenizer import PromptTokenizer

SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
MARKER = "<extra_0>"

CARD_QUESTION = (
    "Sue lives in a fun neighborhood.  One weekend, the neighbors decided to play a prank on Sue.  On Friday morning, "
    "the neighbors placed 18 pink plastic flamingos out on Sue's front yard.  On Saturday morning, the neighbors took "
    "back one third of the flamingos, painted them white, and put these newly painted white flamingos back out on "
    "Sue's front yard.  Then, on Sunday morning, they added another 18 pink plastic flamingos to the collection. At "
    "noon on Sunday, how many more pink plastic flamingos were out than white plastic flamingos?"
)
CARD_STEPS = (
    "To find out how many more pink plastic flamingos were out than white plastic flamingos at noon on Sunday, we can "
    "break down the problem into steps. First, on Friday, the neighbors start with 18 pink plastic flamingos.",
    "On Saturday, they take back one third of the flamingos. Since there were 18 flamingos, (1/3 \\times 18 = 6) "
    "flamingos are taken back. So, they have (18 - 6 = 12) flamingos left in their possession. Then, they paint these "
    "6 flamingos white and put them back out on Sue's front yard. Now, Sue has the original 12 pink flamingos plus the "
    "6 new white ones. Thus, by the end of Saturday, Sue has (12 + 6 = 18) pink flamingos and 6 white flamingos.",
    "On Sunday, the neighbors add another 18 pink plastic flamingos to Sue's front yard. By the end of Sunday morning, "
    "Sue has (18 + 18 = 36) pink flamingos and still 6 white flamingos.",
    "To find the difference, subtract the number of white flamingos from the number of pink flamingos: (36 - 6 = 30). "
    "Therefore, at noon on Sunday, there were 30 more pink plastic flamingos out than white plastic flamingos. The "
    "answer is (\\boxed{30}).",
)


@dataclass(frozen=True)
class Qwen(TwoClassFamily):
    """ChatML with a marker behind every step."""

    name = "qwen"
    architectures = ("Qwen2ForProcessRewardModel",)
    unused_tensors = ("lm_head.",)
    own_tokens = (MARKER,)
    goldens = (
        Golden(
            models=("qwen2.5-math-prm-7b",),
            question=CARD_QUESTION,
            steps=CARD_STEPS,
            scores=(1.0, 0.1904296875, 0.9765625, 1.0),
            tolerance=0.04,
            source="the model card's example, bfloat16",
        ),
        Golden(
            models=("qwen2.5-math-prm-72b",),
            question=CARD_QUESTION,
            steps=CARD_STEPS,
            scores=(0.9921875, 0.0047607421875, 0.32421875, 0.8203125),
            tolerance=0.27,
            source="the model card's example, bfloat16; others missed it by up to 0.26 on the borderline steps",
        ),
    )

    default_system: str | None = SYSTEM
    """The system message unless another is given; None for no system turn."""
    marker: str = MARKER

    def step_marker(self) -> str:
        """The token that closes every step."""
        return self.marker

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """System, user and assistant turn; the assistant's holds each step followed by the marker."""
        system = self.default_system if system is None else system
        return chatml_marked(tokenizer, system, question, steps, self.marker)
