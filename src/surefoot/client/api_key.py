"""API keys of the service: where they come from and what they may contain."""

from __future__ import annotations

import os
from pathlib import Path

from surefoot.errors import OptionError

KEY_VARIABLE = "SUREFOOT_API_KEY"


def is_key(text: str) -> bool:
    """Whether `text` can be sent as a key: one word of printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def find_key(given: str | None) -> str | None:
    """Returns the given key, or that of the environment, without the line break of a key file."""
    key = given or os.environ.get(KEY_VARIABLE)
    return None if key is None else key.strip()


def read_key(where: str) -> str:
    """Reads the API key from a file, or from the environment if `where` is `env`."""
    if where == "env":
        key = os.environ.get(KEY_VARIABLE, "")
        source = f"The environment variable {KEY_VARIABLE}"
    else:
        try:
            key = Path(where).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"The key file cannot be read ({type(error).__name__}). --api-key takes the path of a file with the "
                f"key, or `env` for the variable {KEY_VARIABLE}; `ps` would show the key itself to every user."
            ) from error
        source = "The key file"
    key = key.strip()
    if not is_key(key):
        raise OptionError(f"{source} does not contain a key: one word of printable ASCII.")
    return key
