"""Math-Shepherd's Mistral-7B PRM, and two that use its prompt: OpenRLHF's Mistral-7B PRM, and ER-PRM.

The prompt is `question Step 1: ... ки`, a line break, `Step 2: ... ки`, and so on. The words `+` and `-` are compared
at each tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from surefoot.families.tagged import TaggedFamily
from surefoot.tokenization.settings import TokenizerSettings


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
class OpenRLHF(Shepherd):
    """OpenRLHF's PRM: no BOS token, even if the tokenizer adds one, because its trainer tokenizes without."""

    name = "openrlhf"

    opening: str | None = None

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """Nothing: the tokenizer's own BOS setting is not used."""
        return {}


@dataclass(frozen=True)
class ERPRM(Shepherd):
    """ER-PRM on Llama 3.1: nothing between the tag and the next step."""

    name = "er-prm"

    before: str = ""
    opening: str | None = "<|begin_of_text|>"
