"""Plain-text families in which a tag, an ordinary token of the vocabulary, follows every step and is where it is read.

The question and the first step are encoded as one text, each further step with its separator as another; the tags
between them are inserted by id. For ordinary text this gives the ids of tokenizing everything at once, because in none
of these vocabularies does a token span the space before a tag or the break after it. A tag inside a question or a step
is treated as text: it is not read, and the result carries a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.core.prompt import Prompt
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import numbered
from surefoot.families.label_words import LabelWordFamily
from surefoot.tokenization.settings import TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer


@dataclass(frozen=True)
class TaggedFamily(LabelWordFamily):
    """A family with a tag after every step. Subclasses set the options."""

    readout: ClassVar[str] = "two word logits at the tag"

    tag: str = ""
    between: str = " "
    """The separator between the question and the first step."""
    before: str = ""
    """The separator between a tag and the next step."""
    opening: str | None = None
    """The special token at the start of the text (BOS), if there is one."""
    number_steps: bool = True
    """Prefix steps with `Step 1: ` unless they have such a label already."""
    strip: bool = False
    """Remove white space around the steps."""
    strip_question: bool = False
    """Remove white space around the question."""

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The BOS token, if the tokenizer puts it in front of a text."""
        return settings.added_opening

    @property
    def text_markers(self) -> tuple[str, ...]:
        """The tag, without white space unless it consists of nothing else."""
        return (self.tag.strip() or self.tag,)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat format and no system message."""
        self.reject_system(system)
        tag = tokenizer.single_token(self.tag)
        question = question.strip() if self.strip_question else question
        steps = [step.strip() for step in steps] if self.strip else steps
        texts = [numbered(at, step) if self.number_steps else step for at, step in enumerate(steps, start=1)]
        first, *rest = texts or [""]
        builder = PromptBuilder(tokenizer, bos=self.opening)
        builder.text(f"{question}{self.between}{first}", starts_text=True, question=question)
        for number, text in enumerate([None, *rest]):
            if text is not None:
                builder.text(self.before + text)
            if number < len(steps):
                builder.token(tag)
                builder.read()
        return builder.build()
