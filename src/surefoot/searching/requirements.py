"""Checks that the packages of the extra `search` are installed, before a model is loaded or a token is spent."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from surefoot.core.addresses import is_service
from surefoot.errors import MissingDependencyError


def require_packages(generator: Any, *, many: bool = False) -> None:
    """Raise `MissingDependencyError` if a search with this generator, or one over `many` questions, cannot run.

    A model in this process and recorded rollouts need no HTTP client.

    >>> require_packages("samples.jsonl")
    """
    needed = {"math-verify": "math_verify"}  # compares answers
    if is_service(generator):
        needed["httpx"] = "httpx"
    if many:
        needed["filelock"] = "filelock"
    missing = [package for package, module in needed.items() if not _is_installed(module)]
    if missing:
        raise MissingDependencyError(
            f'A search needs packages that are not installed: {", ".join(missing)}. Run: pip install "surefoot[search]"'
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # the module is disabled: its entry in sys.modules is None
        return False
