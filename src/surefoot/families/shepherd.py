"""Math-Shepherd's Mistral-7B PRM, and ER-PRM, which uses the same prompt.

The prompt is `question Step 1: ... ки`, a line break, `Step 2: ... ки`, and so on. The words `+` and `-` are compared
at each tag.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.tagged import TaggedFamily


@dataclass(frozen=True)
class Shepherd(TaggedFamily):
    """The tag `ки`, followed by a line break."""

    name = "shepherd"

    good: str = " +"
    bad: str = " -"
    tag: str = " ки"
    before: str = "\n"
    opening: str | None = "<s>"


@dataclass(frozen=True)
class ERPRM(Shepherd):
    """ER-PRM on Llama 3.1: nothing between the tag and the next step."""

    name = "er-prm"

    before: str = ""
    opening: str | None = "<|begin_of_text|>"
