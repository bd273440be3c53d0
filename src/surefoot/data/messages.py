"""Extract the question and the solution from conversations.

The question is the last user message; the solution is everything the assistant said. Plain strings are returned as is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.errors import InputError


def question_of(prompt: Any) -> str:
    """Return the question: a string prompt itself, or the last user message of a conversation."""
    if isinstance(prompt, str):
        return prompt
    asked = [message for message in prompt if message.get("role") == "user"]
    if not asked:
        raise InputError("A prompt has no user message, so it has no question. Name the column with it: question=...")
    return content_text(asked[-1])


def completion_text(completion: Any) -> Any:
    """Return the solution: a string itself, or the assistant's messages joined by blank lines."""
    if not isinstance(completion, Sequence) or isinstance(completion, str):
        return completion
    return "\n\n".join(content_text(message) for message in completion if message.get("role") == "assistant")


def response_of(conversation: Sequence[Mapping[str, Any]]) -> str:
    """Return what the assistant said after the last user message of a whole conversation."""
    last = max((at for at, message in enumerate(conversation) if message.get("role") == "user"), default=-1)
    return str(completion_text(conversation[last + 1 :]))


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of chat messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


def content_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, Sequence) or not all(isinstance(part, Mapping) for part in content):
        raise InputError(f"The content of a message is {type(content).__name__}, not text or a list of parts.")
    texts = [part.get("text") or "" for part in content if part.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        raise InputError("A message has a part whose text is not a string.")
    return "".join(texts)
