"""openr's Math-psa: LoRA weights on Qwen2.5-Math-7B-Instruct.

The prompt is the question, a space, and the steps, each followed by the tag (a space and five line breaks) and a space.
The words ` +` and ` -` are compared at each tag. Labels such as `Step 1:` stay if a step has one; none are added.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.tagged import TaggedFamily


@dataclass(frozen=True)
class MathPSA(TaggedFamily):
    """The tag is a single token: a space and five line breaks."""

    name = "math-psa"

    good: str = " +"
    bad: str = " -"
    tag: str = " \n\n\n\n\n"
    before: str = " "
    number_steps: bool = False
    strip: bool = True
