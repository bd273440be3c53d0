"""Finds the folder of a model or a tokenizer, which is downloaded from the Hugging Face hub unless it exists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from surefoot.errors import LoadError, OptionError

MODEL_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def local_folder(model: str | Path) -> Path | None:
    """Return the folder if it exists."""
    try:
        folder = Path(model).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, ValueError, RuntimeError, TypeError):  # names that no file can have, and unknown users
        return None


def find_folder(model: str | Path, files: Iterable[str], revision: str | None = None, *, example: str) -> Path:
    """Return an existing folder, or download the `files` of a hub id, which are patterns, unless they are cached.

    `example` ends the message about a name that is neither: a hub id and what else helps.
    """
    if (folder := local_folder(model)) is not None:
        if revision is not None:
            raise OptionError(f"revision={revision!r} applies to models on the hub only, and {folder} is a folder.")
        return folder
    if not MODEL_ID.fullmatch(str(model)):
        raise LoadError(f"{str(model)[:200]!r} is neither an existing folder nor a hub id such as {example}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(model), revision=revision, allow_patterns=list(files)))
    except Exception as error:
        raise LoadError(
            f"{str(model)!r} is not an existing folder, and downloading it from the Hugging Face hub failed: {error}. "
            "Check the id and the revision, log in if the model is gated, or pass the path of a downloaded copy."
        ) from error
