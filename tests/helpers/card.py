"""The example of the model card of Qwen2.5-Math-PRM-7B."""

from __future__ import annotations

from surefoot.families import FAMILIES, find_goldens

(_golden,) = find_goldens(FAMILIES["qwen"], "Qwen2.5-Math-PRM-7B")
CARD_QUESTION, CARD_STEPS = _golden.question, _golden.steps
