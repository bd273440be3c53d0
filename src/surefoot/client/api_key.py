"""API keys of the service: where they come from and what they may contain."""

from __future__ import annotations

KEY_VARIABLE = "SUREFOOT_API_KEY"


def is_key(text: str) -> bool:
    """Whether `text` can be sent as a key: one word of printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
