"""Options that every scorer understands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args

from surefoot.errors import OptionError

SplitRule = Literal["auto", "steps", "paragraphs", "lines"]
SPLIT_RULES: tuple[SplitRule, ...] = get_args(SplitRule)

Thinking = Literal["skip", "only", "all"]
THINKING: tuple[Thinking, ...] = get_args(Thinking)

Quantization = Literal["nf4", "int8"]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)

Precision = Literal["exact", "auto", "fast"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


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


class Named(Protocol):
    """A frozen dataclass with a name, whose fields are options: a family or a critic."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Its name in the registry."""


T = TypeVar("T", bound=Named)


def with_options(what: T, options: Mapping[str, Any], noun: str = "family") -> T:
    """Return a family or a critic with some of its options changed."""
    known = {field.name: field for field in dataclasses.fields(what)}
    unknown = [name for name in options if name not in known]
    if unknown:
        listed = ", ".join(f"{name} (now {getattr(what, name)!r})" for name in known) or "none"
        raise OptionError(f"The {noun} {what.name!r} has no option {unknown[0]!r}. Its options: {listed}.")
    for name, value in options.items():
        expected = known[name].type
        if not _matches(value, str(expected)):
            raise OptionError(f"The option {name}={value!r} of the {noun} {what.name!r} must be of type {expected}.")
    return dataclasses.replace(what, **options) if options else what


def _matches(value: Any, annotation: str) -> bool:
    """Whether a value matches a field's annotation: str, bool, int, float, None and unions of these."""
    kinds: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "None": (type(None),),
    }
    names = [name.strip() for name in annotation.split("|")]
    if any(name not in kinds for name in names):
        return True
    return any(isinstance(value, kinds[name]) and (name == "bool" or not isinstance(value, bool)) for name in names)
