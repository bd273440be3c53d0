"""VersaPRM, the Llama and Qwen PRMs that the same authors trained on PRM800K, and dPRM and dORM of Multi-RM.

The prompt is the question, a space and two line breaks, then the steps, each followed by the tag: a space and four line
breaks. The words `+` and `-` are compared at each tag. A dORM is trained at the last tag only, on whether the final
answer is right. It is read at every tag all the same, as in the makers' code: the score of an earlier step is what it
says about the solution up to there, and that of the last step, the aggregation `final`, is the score of the solution.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.tagged import TaggedFamily


@dataclass(frozen=True)
class Versa(TaggedFamily):
    """The tag is a single token: a space and four line breaks. Steps are not numbered."""

    name = "versa"

    tag: str = " \n\n\n\n"
    between: str = " \n\n"
    opening: str | None = "<|begin_of_text|>"
    number_steps: bool = False
    strip: bool = True
    strip_question: bool = True
