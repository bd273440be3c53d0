"""The question and the solution in a conversation.

The rule: the question is what the user said last, the solution is what the assistant said; a string is itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.errors import InputError


def question_of(prompt: Any) -> str:
    """The question in a prompt: the text itself, or the last message of the user."""
    if isinstance(prompt, str):
        return prompt
    asked = [message for message in prompt if message.get("role") == "user"]
    if not asked:
        raise InputError("A prompt has no message of the user, so there is no question. Name a column: question=...")
    return content_text(asked[-1])


def completion_text(completion: Any) -> Any:
    """The text of a completion: the text itself, or what the assistant said, message by message."""
    if not isinstance(completion, Sequence) or isinstance(completion, str):
        return completion
    return "\n\n".join(content_text(message) for message in completion if message.get("role") == "assistant")


def content_text(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
