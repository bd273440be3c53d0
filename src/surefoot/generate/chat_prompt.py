"""The prompt of a generator as chat messages: an optional system message and the question in a template.

Invariant: the question is inserted literally. Braces in a question, or the text `{question}` itself, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.errors import InputError, OptionError
from surefoot.tokenization.settings import Message

PLACE = "{question}"
"""Where the template has the question."""
DEFAULT_SYSTEM = (
    "Solve the problem step by step. Separate the steps with blank lines, and end with the final answer in \\boxed{}."
)


@dataclass(frozen=True)
class ChatPrompt:
    """What a generator puts around a question.

    >>> ChatPrompt(system=None, template="Problem: {question}").messages("What is 2 + 3?")
    [{'role': 'user', 'content': 'Problem: What is 2 + 3?'}]
    """

    system: str | None = DEFAULT_SYSTEM
    """None or an empty text is no system message at all."""
    template: str = PLACE
    """The user message, which has `{question}` exactly once."""

    def __post_init__(self) -> None:
        if not isinstance(self.template, str) or self.template.count(PLACE) != 1:
            raise OptionError(f"prompt={self.template!r}: pass a text that contains {PLACE} exactly once.")
        if self.system is not None and not isinstance(self.system, str):
            raise OptionError(f"system={self.system!r}: pass a text, or None for no system message.")
        check_text(self.system or "", self.template)

    def messages(self, question: str) -> list[Message]:
        """Return the conversation that asks a question."""
        system: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.user(question)}]

    def user(self, question: str) -> str:
        """Return the user message for a question."""
        return self.template.replace(PLACE, question)


def check_text(*texts: str) -> None:
    """Raise if a text cannot be sent."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"A text contains half of a character ({error}). Read it as UTF-8 again.") from error
