"""An example of a family in its own package.

The prompt is `Q: `, the question, then the steps, each followed by the special token `<|im_end|>`. The score is the
sigmoid of a linear layer named `value` at that token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families import CatalogEntry, Family, PromptBuilder, PromptTokenizer, Size
from surefoot.families.heads import linear, linear_shapes

if TYPE_CHECKING:
    from torch import Tensor

LLAMA_1B = Size(hidden=2048, inner=8192, layers=16, keys=512, vocabulary=128256)


@dataclass(frozen=True)
class Closing(Family):
    name = "closing"
    readout = "value, sigmoid at the end of the step"
    architectures = ("LlamaForClosingPRM",)
    unused_tensors = ("lm_head.",)
    models = (
        CatalogEntry("example/closing-1b", "closing", LLAMA_1B, context=8192, licence="Apache-2.0"),
        CatalogEntry("example/closing-1b-long", "closing", LLAMA_1B, options={"lead": "Question: "}),
    )

    lead: str = "Q: "

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        return linear_shapes(config, "value", 1)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        self.reject_system(system)
        builder = PromptBuilder(tokenizer)
        builder.text(self.lead + question, starts_text=True)
        builder.end_question()
        for step in steps:
            builder.text(step)
            builder.token("<|im_end|>")
            builder.read()
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        return linear(head, "value", hidden).sigmoid()[:, 0]
