"""RLHFlow's Llama3.1-8B-PRM-Mistral-Data and -Deepseek-Data.

The user's first turn contains the question and the first step, each further turn one step. The assistant's label is `+`
or `-`.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.turns import TurnFamily


@dataclass(frozen=True)
class RLHFlow(TurnFamily):
    """One turn per step; a space separates the question from the first step."""

    name = "rlhflow"
