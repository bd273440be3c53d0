"""Takes from a checkpoint's tokenizer files what the makers' code takes from them, and reports where they disagree."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.core.options import with_options
from surefoot.errors import CheckpointError
from surefoot.families.base import Family
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

logger = logging.getLogger("surefoot")

QUESTION = "What is 2 + 3, times 4?"
STEPS = ("Step 1: 2 + 3 = 5.", "Step 2: 5 * 4 = 20.")
SHOWN = 400


@dataclass(frozen=True)
class TokenizerCheck:
    """What a family took from a checkpoint's tokenizer files, and where its prompt differs from theirs."""

    files: tuple[str, ...] = ()
    """The files that were found."""
    taken: dict[str, Any] = field(default_factory=dict)
    """The family's options that the files decided."""
    mismatches: tuple[str, ...] = ()
    """One message per disagreement, showing both sides."""

    def report(self, model: str, *, strict: bool = False) -> None:
        """Log every mismatch as a warning; with `strict`, raise `CheckpointError` instead."""
        if self.mismatches and strict:
            raise CheckpointError(
                f"{model}: {' '.join(self.mismatches)} Its scores may not be those that its makers published. Change "
                "family_options, use the tokenizer files from the model's own repository, or load without strict."
            )
        for mismatch in self.mismatches:
            logger.warning("%s: %s", model, mismatch)


def adopt_settings(family: Family, settings: TokenizerSettings, keep: Collection[str] = ()) -> Family:
    """Return the family with the options that its makers' code takes from the tokenizer files, except those in `keep`.

    family = adopt_settings(family, read_tokenizer_settings(folder), keep=family_options)
    """
    taken = family.options_from(settings)
    return with_options(family, {name: value for name, value in taken.items() if name not in keep})


def check_settings(family: Family, tokenizer: PromptTokenizer, settings: TokenizerSettings) -> TokenizerCheck:
    """Compare what the tokenizer files say and render on a probe with what the family renders."""
    wanted = family.options_from(settings)
    mismatches = [
        f"The option {name} of the family {family.name} is {getattr(family, name)!r}, but the checkpoint's tokenizer "
        f"files say {value!r}."
        for name, value in wanted.items()
        if getattr(family, name) != value
    ]
    messages = family.chat_messages(QUESTION, STEPS)
    if settings.chat_template is not None and messages is not None and not mismatches:
        mismatches += _compare_prompts(family, tokenizer, settings, messages)
    taken = {name: value for name, value in wanted.items() if getattr(family, name) == value}
    if taken:
        family.prompts(tokenizer, QUESTION, STEPS)  # fails if the files name a token that the vocabulary lacks
    return TokenizerCheck(settings.files, taken, tuple(mismatches))


def _compare_prompts(
    family: Family, tokenizer: PromptTokenizer, settings: TokenizerSettings, messages: Sequence[Message]
) -> list[str]:
    ours = family.prompts(tokenizer, QUESTION, STEPS)[-1]
    end = max(ours.reads, default=len(ours.ids) - 1) + 1
    try:
        text = settings.render_chat(messages)
    except CheckpointError as error:
        return [f"{error} The family {family.name} renders its own prompt."]
    theirs = tokenizer.encode_prompt(text)
    if theirs[:end] == list(ours.ids[:end]):
        return []
    return [
        f"The checkpoint's chat template and the family {family.name} render a probe differently. Template: "
        f"{_shorten(text)!r}. Family: {_shorten(tokenizer.decode(ours.ids[:end]))!r}."
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
