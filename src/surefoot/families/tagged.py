"""Plain text in which a tag follows every step: an ordinary token of the vocabulary, read in its own place.

The rule: question and first step are one text, and so is every further step with what parts it from the tag; the tags
between them are put in by id. For ordinary text that gives the ids of tokenising everything at once, because in no
vocabulary here does a token reach across the space in front of a tag or the break behind it. A tag in the text of a
question or step is text: it is not read, and it is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from surefoot.core.prompt import Prompt
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import numbered
from surefoot.families.label_words import TwoWords
from surefoot.families.tokenizer import PromptTokenizer


@dataclass(frozen=True)
class Tagged(TwoWords):
    """A family that is asked so, with the options that tell its members apart."""

    readout: ClassVar[str] = "two word logits at the tag"

    tag: str = ""
    between: str = " "
    """What stands between question and first step."""
    before: str = ""
    """What stands between a tag and the next step."""
    opening: str | None = None
    """The structure token that opens the text, if there is one."""
    number_steps: bool = True
    """Put `Step 1: ` in front of steps that do not say so themselves."""

    @property
    def lookalikes(self) -> tuple[str, ...]:
        """The tag, if it can be seen."""
        return (self.tag.strip() or self.tag,)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat and no system message."""
        self.refuse_system(system)
        tag = tokenizer.word(self.tag)
        texts = [numbered(at, step) if self.number_steps else step for at, step in enumerate(steps, start=1)]
        first, *rest = texts or [""]
        builder = PromptBuilder(tokenizer)
        if self.opening is not None:
            builder.token(self.opening)
        builder.text(f"{question}{self.between}{first}", opens=True, question=question)
        for number, text in enumerate([None, *rest]):
            if text is not None:
                builder.text(self.before + text)
            if number < len(steps):
                builder.token(tag)
                builder.read()
        return builder.prompt()
