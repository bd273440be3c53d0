"""Attention over a trie: each token attends to itself and its ancestors.

The stock model calls one of these functions through transformers' attention interface; no model is patched.
`keys_values` is a buffer for all layers that is passed to the model as an extra argument. The keys and values that a
pack inherits come first in it, followed by the pack's own, which each layer writes into it. The implementation is
chosen when the model is loaded: the requested one, or the fastest that works on this machine. A requested one that
cannot run is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from surefoot.engine.segments import Segment
from surefoot.engine.trie import Pack
from surefoot.errors import OptionError

logger = logging.getLogger("surefoot")

ATTENTIONS = ("auto", "flex", "flash_attention_2", "sdpa", "eager")


def choose_attention(attention: str, device: torch.device, dtype: torch.dtype) -> str:
    """Resolve `auto`: sdpa on the CPU; on CUDA FlexAttention, with flash-attention for packs without sharing."""
    if attention not in ATTENTIONS:
        raise OptionError(f"attention={attention!r} is not supported. Choose one of: {', '.join(ATTENTIONS)}.")
    obstacle = None
    if attention == "flash_attention_2":
        obstacle = flash_obstacle(device, dtype)
    if attention in ("flash_attention_2", "flex"):
        obstacle = obstacle or flex_obstacle(device)
    if obstacle:
        raise OptionError(f'attention="{attention}" cannot run: {obstacle}. Use attention="auto" or "sdpa".')
    if attention != "auto":
        return attention
    if device.type != "cuda":
        return "sdpa"
    if obstacle := flex_obstacle(device):
        logger.warning("Using sdpa attention with a dense mask, because %s.", obstacle)
        return "sdpa"
    return "flex" if flash_obstacle(device, dtype) else "flash_attention_2"


def flex_obstacle(device: torch.device) -> str | None:
    """Why FlexAttention cannot run, if so. On CUDA it is compiled, so only a small test call can tell."""
    try:
        from torch.nn.attention.flex_attention import flex_attention  # noqa: F401

        if device.type == "cuda":
            sample = torch.zeros(1, 1, 128, 64, device=device, dtype=torch.float32)
            _compiled_flex()(sample, sample, sample)
    except Exception as error:
        return f"FlexAttention does not work here ({type(error).__name__}: {error})"
    return None


def flash_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cuda":
        return f"it needs a CUDA device, but the device is {device.type}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it needs float16 or bfloat16, but the dtype is {str(dtype).removeprefix('torch.')}"
    return flash_package_obstacle(device)


def flash_package_obstacle(device: torch.device) -> str | None:
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs an Ampere or newer GPU"
    try:
        import flash_attn  # noqa: F401
    except ImportError as error:
        return f"the package flash-attn cannot be imported ({error})"
    return None


def register(attention: str) -> str:
    """Register an implementation with transformers and return its name there."""
    from transformers import AttentionInterface

    function = IMPLEMENTATIONS[attention]
    # transformers assumes that every name with "flash" in it is one of its own.
    name = f"surefoot_{function.__name__}".replace("flash", "varlen")
    AttentionInterface.register(name, function)
    return name


def dense_mask(pack: Pack, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The pack's attention mask as an additive bias: 0 or minus infinity.

    It is padded to `rows` tokens and `columns` inherited ones. Padding attends only to itself, so no row is empty.
    """
    seen = torch.zeros(rows, columns + rows, dtype=torch.bool, device="cpu")
    seen[:, columns:].fill_diagonal_(True)
    tokens, inherited = len(pack.ids), pack.inherited
    visible = torch.from_numpy(pack.mask())
    seen[:tokens, :inherited] = visible[:, :inherited]
    seen[:tokens, columns : columns + tokens] = visible[:, inherited:]
    mask = torch.zeros(1, 1, *seen.shape, dtype=dtype, device=device)
    return mask.masked_fill_(~seen.to(device), float("-inf"))


def _with_inherited(module: Any, key: Tensor, value: Tensor, keys_values: Tensor) -> tuple[Tensor, Tensor]:
    """Write this layer's keys and values after the inherited ones and return both together."""
    layer = keys_values[module.layer_idx]
    own = key.shape[2]
    layer[0, :, -own:] = key[0]
    layer[1, :, -own:] = value[0]
    return layer[0][None], layer[1][None]


def sdpa(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    keys_values: Tensor,
    segments: Sequence[Segment] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """torch's fused kernels with a dense mask, or two matrix products for each of the pack's segments."""
    key, value = _with_inherited(module, key, value, keys_values)
    if segments is not None:
        return attend(query, key, value, segments, scaling), None
    if query.is_cuda:
        # With a mask, the fast CUDA kernels need as many key heads as query heads.
        key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], 1) for states in (key, value))
    out = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=key.shape[1] != query.shape[1]
    )
    return out.transpose(1, 2), None


def attend(query: Tensor, key: Tensor, value: Tensor, segments: Sequence[Segment], scaling: float | None) -> Tensor:
    """Attention of each segment's rows to its keys, which on a CPU takes half the time of torch's fused kernel.

    Query heads that share a key head are rows of one product. Supports autograd.
    """
    _, heads, _, size = query.shape
    groups = heads // key.shape[1]
    query = query[0] * (scaling if scaling is not None else size**-0.5)
    found = []
    for segment in segments:
        keys, values = (
            states[0] if segment.keys is None else states[0].index_select(1, segment.keys) for states in (key, value)
        )
        own = query[:, segment.rows].reshape(len(keys), -1, size)
        weights = torch.bmm(own, keys.transpose(1, 2)).view(len(keys), groups, -1, keys.shape[1])
        if segment.mask is not None:
            weights += segment.mask
        weights = weights.softmax(-1, dtype=torch.float32).to(values.dtype)
        outputs = torch.bmm(weights.view(len(keys), -1, keys.shape[1]), values)
        found.append(outputs.view(heads, -1, values.shape[2]).transpose(0, 1))
    return torch.cat(found)[None]


def eager(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    *,
    keys_values: Tensor,
    **_: Any,
) -> tuple[Tensor, None]:
    """A plain implementation: two matrix products and a softmax."""
    key, value = _with_inherited(module, key, value, keys_values)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    weights = (query @ key.transpose(2, 3) * scale + attention_mask).softmax(-1, dtype=torch.float32)
    return (weights.to(query.dtype) @ value).transpose(1, 2), None


def flex(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    *,
    keys_values: Tensor,
    **_: Any,
) -> tuple[Tensor, None]:
    """FlexAttention: fully masked blocks are never computed. `attention_mask` is a BlockMask."""
    from torch.nn.attention.flex_attention import flex_attention

    key, value = _with_inherited(module, key, value, keys_values)
    run = _compiled_flex() if query.is_cuda else flex_attention
    out = run(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=key.shape[1] != query.shape[1])
    return out.transpose(1, 2), None


def flash(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    *,
    keys_values: Tensor,
    sequence_starts: Tensor | None = None,
    longest: int = 0,
    **rest: Any,
) -> tuple[Tensor, None]:
    """flash-attention for a pack of separate prompts, FlexAttention for one whose prompts share tokens."""
    if sequence_starts is None:
        return flex(module, query, key, value, attention_mask, scaling, keys_values=keys_values, **rest)
    from flash_attn import flash_attn_varlen_func

    _with_inherited(module, key, value, keys_values)
    out = flash_attn_varlen_func(
        *(states[0].transpose(0, 1) for states in (query, key, value)),
        cu_seqlens_q=sequence_starts,
        cu_seqlens_k=sequence_starts,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scaling,
        causal=True,
    )
    return out[None], None


IMPLEMENTATIONS = {"sdpa": sdpa, "eager": eager, "flex": flex, "flash_attention_2": flash}


def block_mask(pack: Pack, rows: int, columns: int, device: torch.device) -> Any:
    """The pack's attention mask as a BlockMask, from the trie's inequality; padded as in `dense_mask`."""
    from torch.nn.attention.flex_attention import create_block_mask

    # Padding gets indices past the end of the trie, each with an end right after it: it is visible only to itself.
    beyond = int(pack.ends.max(initial=0))
    indices = torch.full((columns + rows,), beyond, dtype=torch.long, device="cpu")
    indices[columns:] += torch.arange(rows, device="cpu")
    ends = indices.clone()
    ends[columns:] += 1
    for source, target in ((slice(0, pack.inherited), 0), (slice(pack.inherited, None), columns)):
        count = len(pack.keys[source])
        indices[target : target + count] = torch.from_numpy(pack.keys[source])
        ends[target : target + count] = torch.from_numpy(pack.ends[source])
    indices, ends = indices.to(device), ends.to(device)
    own = indices[columns:]

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        index = own[query]
        return (indices[key] <= index) & (index < ends[key])

    return create_block_mask(visible, None, None, rows, columns + rows, device=str(device))


def sequence_starts(pack: Pack) -> Tensor | None:
    """Where each prompt of the pack starts, and where the last one ends; None if any of them share a token."""
    starts = np.flatnonzero(pack.positions == 0)
    # A prompt without shared tokens starts at position 0 and continues without a jump.
    jumps = np.flatnonzero(np.diff(pack.positions) != 1) + 1
    if pack.inherited or not len(starts) or not np.array_equal(starts[1:], jumps):
        return None
    return torch.tensor([*starts.tolist(), len(pack.ids)], dtype=torch.int32, device="cpu")


_flex_cache: list[Any] = []


def _compiled_flex() -> Any:
    if not _flex_cache:
        from torch.nn.attention.flex_attention import flex_attention

        _flex_cache.append(torch.compile(flex_attention, dynamic=True))
    return _flex_cache[0]
