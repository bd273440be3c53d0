"""RLHFlow's Llama3.1-8B-PRM-Mistral-Data and -Deepseek-Data.

The rule: the user says question and first step, then one step a turn; the assistant's label is `+` or `-`.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.turns import Turns


@dataclass(frozen=True)
class RLHFlow(Turns):
    """Question and first step are parted by a space."""

    name = "rlhflow"
