"""openr's Math-psa: LoRA weights on Qwen2.5-Math-7B-Instruct.

The prompt is `question Step 1: ...`, the tag (a space and five line breaks), a space, `Step 2: ...`, and so on. The
words ` +` and ` -` are compared at each tag.
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
