"""Attention and KV cache for decoding one token per sequence, without copies of keys and values.

transformers' own attention repeats keys and values for every query head when sequences are padded, and its cache is
copied for every token. In a batch of long sequences both take longer than the matrix products.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "surefoot_decoding"
ROOM = 128
"""Tokens by which the buffer of a cache layer grows."""


def attention_for(model_class: type[Any]) -> str:
    """The name of the attention for a class of transformers: this one, if the class leaves the choice to its caller.

    Some classes look the name up in a table of their own, or do something else for another name than `sdpa`.
    """
    if not getattr(model_class, "_supports_sdpa", False):
        return "eager"
    source = inspect.getsource(sys.modules[model_class.__module__])
    if not getattr(model_class, "_supports_attention_backend", False) or '"sdpa"' in source:
        return "sdpa"
    AttentionInterface.register(NAME, decoding_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def decoding_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend from one token per sequence: the query heads that share a key head become rows of one product.

    Everything else is left to transformers' own function.
    """
    rows, heads, length, width = query.shape
    shared = key.shape[1]
    one_mask = attention_mask is None or attention_mask.shape[1] == 1
    if length != 1 or heads == shared or position_bias is not None or not one_mask or others.get("softcap"):
        given = {} if position_bias is None else {"position_bias": position_bias}
        found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **given, **others
        )
        return found
    grouped = query.reshape(rows, shared, heads // shared, width)
    output = nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of the KV cache that writes new tokens into free room behind the others."""

    keys: Tensor
    values: Tensor
    _key_buffer: Tensor | None = None
    _value_buffer: Tensor | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values. Return all of them."""
        used, new = self.keys.shape[-2], key_states.shape[-2]
        if self._key_buffer is None or self._key_buffer.shape[-2] < used + new:
            self._key_buffer = _with_room(self.keys, new)
            self._value_buffer = _with_room(self.values, new)
        assert self._value_buffer is not None
        self._key_buffer[:, :, used : used + new] = key_states
        self._value_buffer[:, :, used : used + new] = value_states
        self.keys = self._key_buffer[:, :, : used + new]
        self.values = self._value_buffer[:, :, : used + new]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these rows."""
        super().reorder_cache(beam_idx)
        self._key_buffer = self._value_buffer = None

    def join(self, other: GrowingLayer) -> None:
        """Add the rows of another layer."""
        self.keys = torch.cat(_padded(self.keys, other.keys))
        self.values = torch.cat(_padded(self.values, other.values))
        self._key_buffer = self._value_buffer = None

    def remove_first(self, tokens: int) -> None:
        """Remove the first tokens of every row."""
        self.keys, self.values = self.keys[:, :, tokens:], self.values[:, :, tokens:]
        self._key_buffer = self._value_buffer = None

    @classmethod
    def of(cls, layer: Any) -> Any:
        """Return a layer with the same keys and values. Layers of other kinds, such as sliding windows, stay."""
        if type(layer) is not DynamicLayer or layer.keys is None:
            return layer
        growing = cls()
        growing.__dict__.update(layer.__dict__)
        return growing


def without_copies(cache: Any) -> Any:
    """Return a cache to which tokens are added in place."""
    if hasattr(cache, "layers"):
        cache.layers = [GrowingLayer.of(layer) for layer in cache.layers]
    return cache


def can_join(cache: Any) -> bool:
    """Whether rows of another cache can be added: no layer forgets tokens, or keeps anything else."""
    layers = getattr(cache, "layers", None)
    return layers is not None and all(type(layer) is GrowingLayer for layer in layers)


def joined(first: Any, second: Any) -> Any:
    """Return a cache with the rows of both, padded on the left."""
    for mine, other in zip(first.layers, second.layers, strict=True):
        mine.join(other)
    return first


def without_padding(cache: Any, mask: Tensor) -> Tensor:
    """Remove the tokens in front that are padding in every row. Return the mask of the others.

    Rows that join are padded to the length of the others. Without this, the length would grow for as long as there is
    work.
    """
    first = int(mask.any(dim=0).long().argmax())
    if not first or not can_join(cache):
        return mask
    for layer in cache.layers:
        layer.remove_first(first)
    return mask[:, first:]


def joined_masks(first: Tensor, second: Tensor) -> Tensor:
    """Return the masks of the rows of both."""
    return torch.cat(_padded(first[..., None], second[..., None])).squeeze(-1)


def _padded(first: Tensor, second: Tensor) -> list[Tensor]:
    """Pad tensors of shape [..., tokens, width] on the left, so that both have as many tokens."""
    length = max(first.shape[-2], second.shape[-2])
    return [nn.functional.pad(each, (0, 0, length - each.shape[-2], 0)) for each in (first, second)]


def _with_room(states: Tensor, new: int) -> Tensor:
    rows, heads, used, width = states.shape
    buffer = states.new_empty(rows, heads, used + new + ROOM, width)
    buffer[:, :, :used] = states
    return buffer
