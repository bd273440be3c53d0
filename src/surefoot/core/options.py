"""Options that every scorer understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from surefoot.errors import OptionError

SplitRule = Literal["auto", "steps", "paragraphs", "lines"]
SPLIT_RULES: tuple[SplitRule, ...] = get_args(SplitRule)

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
    step of its own. `system` replaces the model's system message.
    """

    split: SplitRule = "auto"
    closing: bool = True
    system: str | None = None

    def __post_init__(self) -> None:
        if self.split not in SPLIT_RULES:
            raise OptionError(f"split={self.split!r} is not a rule. Choose one of: {', '.join(SPLIT_RULES)}.")
        if not isinstance(self.closing, bool):
            raise OptionError(f"closing={self.closing!r} has to be True or False.")
        if not isinstance(self.system, str | None):
            raise OptionError(f"system is {type(self.system).__name__}. Pass a string, or None for the model's own.")
        try:
            (self.system or "").encode()
        except UnicodeEncodeError:
            raise OptionError("system contains half of a surrogate pair, which is not a character.") from None


DEFAULT_OPTIONS = ReadOptions()
