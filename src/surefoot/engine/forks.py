"""What a fork leaves behind: torch's threads do not exist in a forked process, and waiting for them never ends.

A model that was loaded before the fork raises an error in the child. A model that is loaded in the child works, with
one thread.
"""

from __future__ import annotations

import logging
import os

import torch

from surefoot.errors import SurefootError

logger = logging.getLogger("surefoot")

_threads_of = os.getpid()
"""The process that torch's threads belong to, as far as we know."""


def check_process(loaded_in: int) -> None:
    """Raise an error if this process is not the one with the given id, in which the model was loaded."""
    if os.getpid() != loaded_in:
        raise SurefootError(
            f"This model was loaded in process {loaded_in}, and this is its forked child {os.getpid()}, in which "
            "computing with it would never end. Load the model in the child, start processes with the method spawn "
            "instead of fork, or share one model through a service (surefoot serve)."
        )


def use_own_threads() -> None:
    """Let torch compute with one thread in a forked process. Call it before the first computation."""
    global _threads_of
    if os.getpid() == _threads_of:
        return
    _threads_of = os.getpid()
    if torch.get_num_threads() > 1:
        logger.warning(
            "This process was forked, so torch computes with one thread here. Start processes with the method spawn to "
            "use more."
        )
        torch.set_num_threads(1)
