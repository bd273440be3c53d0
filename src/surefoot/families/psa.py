"""openr's Math-psa: LoRA weights on Qwen2.5-Math-7B-Instruct.

The rule: `question Step 1: ...`, a space and five line breaks as the tag, a space, `Step 2: ...`; at each tag the words
` +` and ` -` are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.tagged import Tagged


@dataclass(frozen=True)
class MathPSA(Tagged):
    """The tag is one token: a space and five line breaks."""

    name = "math-psa"

    good: str = " +"
    bad: str = " -"
    tag: str = " \n\n\n\n\n"
    before: str = " "
