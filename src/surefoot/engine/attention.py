"""Which attention implementation a model runs with.

The rule: the fastest one that this machine has, or the one that was asked for, or an error; never another in silence.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from surefoot.errors import OptionError

ATTENTIONS = ("auto", "flash_attention_2", "sdpa", "eager")


def choose_attention(attention: str, device: torch.device, dtype: torch.dtype) -> str:
    """`auto` is flash-attention where it is installed and can run, else sdpa, else eager."""
    if attention not in ATTENTIONS:
        raise OptionError(f"attention={attention!r} is not offered. Choose one of: {', '.join(ATTENTIONS)}.")
    obstacle = _flash_obstacle(device, dtype)
    if attention == "flash_attention_2" and obstacle:
        raise OptionError(f'attention="flash_attention_2" cannot run: {obstacle}. Use attention="auto" or "sdpa".')
    if attention != "auto":
        return attention
    if obstacle is None:
        return "flash_attention_2"
    return "sdpa" if hasattr(torch.nn.functional, "scaled_dot_product_attention") else "eager"


def _flash_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cuda":
        return f"it needs a CUDA device, and this is {device.type}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it needs float16 or bfloat16, and this is {str(dtype).removeprefix('torch.')}"
    if find_spec("flash_attn") is None:
        return "the package flash-attn is not installed"
    return None
