"""VersaPRM, and the Llama and Qwen PRMs trained on PRM800K by the same authors.

The rule: the question, a space and two line breaks, then the steps, each followed by the tag, a space and four line
breaks; at each tag the words `+` and `-` are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.tagged import Tagged


@dataclass(frozen=True)
class Versa(Tagged):
    """The tag is one token: a space and four line breaks. Steps carry no numbers."""

    name = "versa"

    tag: str = " \n\n\n\n"
    between: str = " \n\n"
    opening: str | None = "<|begin_of_text|>"
    number_steps: bool = False
