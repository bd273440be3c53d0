"""The chat format of DeepSeek-R1-Distill, from which GenPRM, ThinkPRM, gPRM and Dyve were trained."""

from __future__ import annotations

from surefoot.critics.prompt import Token

BOS = Token("<｜begin▁of▁sentence｜>")
USER = Token("<｜User｜>")
ASSISTANT = Token("<｜Assistant｜>")
END = Token("<｜end▁of▁sentence｜>")
THINK = Token("<think>")

WITH_SYSTEM = "<｜begin▁of▁sentence｜>{system}<｜User｜>{user}"
"""Both messages as all of its templates render them, without the generation prompt."""
WITH_THINKING = "<｜begin▁of▁sentence｜><｜User｜>{user}<｜Assistant｜><think>\n"
"""A message as the template of 2025 and later renders it. Older templates leave out the `<think>` at the end."""
