"""API keys of servers: where they come from and what they may contain."""

from __future__ import annotations

import os
from pathlib import Path

from surefoot.errors import OptionError

KEY_VARIABLE = "SUREFOOT_API_KEY"
GENERATOR_KEY_VARIABLE = "OPENAI_API_KEY"
"""The key of servers that write."""


def is_key(text: str) -> bool:
    """Whether `text` can be sent as a key: one word of printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def find_key(given: str | None, variable: str = KEY_VARIABLE) -> str | None:
    """Returns the given key, or that of the environment, without the line break of a key file.

    An empty key is none: `api_key=""` sends no key, whatever the environment has.
    """
    return (os.environ.get(variable, "") if given is None else given).strip() or None


def is_in_environment(given: str | None, variable: str = KEY_VARIABLE) -> bool:
    """Whether a server needs a key and other processes can read it from their environment.

    Pickles never contain keys. A key that is not in the environment raises `OptionError`.
    """
    key = find_key(given, variable)
    if key is not None and key != find_key(None, variable):
        raise OptionError(
            "The API key is not part of a pickle, and other processes cannot read it from their environment. Set the "
            f"variable {variable} instead of passing api_key=..."
        )
    return key is not None


def require_in_environment(url: str, variable: str = KEY_VARIABLE) -> None:
    """Raises `OptionError` if the environment has no key for the server of an unpickled scorer or generator."""
    if find_key(None, variable) is None:
        raise OptionError(f"{url} needs an API key. Set the variable {variable} in the process that unpickles it.")


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
