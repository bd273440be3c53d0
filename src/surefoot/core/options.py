"""Options that every scorer understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from surefoot.errors import OptionError

SplitRule = Literal["auto", "steps", "paragraphs", "lines"]
SPLIT_RULES: tuple[SplitRule, ...] = get_args(SplitRule)

Thinking = Literal["skip", "only", "all"]
THINKING: tuple[Thinking, ...] = get_args(Thinking)

Quantization = Literal["nf4", "int8"]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)


@dataclass(frozen=True)
class ReadOptions:
    """How a scorer reads a solution.

    >>> options = surefoot.ReadOptions(split="lines")
    >>> result = surefoot.load("mini").score("What is 2 + 3?", "2 + 3 = 5.\\nSo it is 5.", options)
    >>> len(result.steps)
    2

    `split` is the rule that finds the steps of a text: one of `SPLIT_RULES`. `closing` makes a stated final answer a
    step of its own. `system` replaces the model's system message. `thinking` says what is judged in the text of a
    reasoning model: the response after `</think>` (`skip`), the thinking alone (`only`), or both (`all`). Text without
    these tags is all response. A list of steps is read as it is.
    """

    split: SplitRule = "auto"
    closing: bool = True
    system: str | None = None
    thinking: Thinking = "skip"

    def __post_init__(self) -> None:
        if self.split not in SPLIT_RULES:
            raise OptionError(f"split={self.split!r} is not a rule. Choose one of: {', '.join(SPLIT_RULES)}.")
        if self.thinking not in THINKING:
            raise OptionError(f"thinking={self.thinking!r} is unknown. Choose one of: {', '.join(THINKING)}.")
        if not isinstance(self.closing, bool):
            raise OptionError(f"closing={self.closing!r} has to be True or False.")
        if not isinstance(self.system, str | None):
            raise OptionError(f"system is {type(self.system).__name__}. Pass a string, or None for the model's own.")
        try:
            (self.system or "").encode()
        except UnicodeEncodeError:
            raise OptionError("system contains half of a surrogate pair, which is not a character.") from None


DEFAULT_OPTIONS = ReadOptions()
