"""Quantize a backbone to 8 bits, block by block, with the inputs that a sample of prompts gives each layer.

One pass over the sample does it all: each block is loaded in float right before it runs and quantized right after, so
no more than one block is in memory in float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from surefoot.core.prompt import Prompt
from surefoot.engine.int8 import Int8Linear
from surefoot.engine.runner import Runner
from surefoot.engine.trie import build_trie

ReadTensors = Callable[[str], Mapping[str, Tensor]]
"""Maps the path of a layer to its weight and bias as stored."""


def quantize_blocks(
    backbone: nn.Module,
    prompts: Sequence[Prompt],
    read: ReadTensors,
    *,
    dtype: torch.dtype,
    device: torch.device,
    attention: str,
) -> None:
    """Replace the linear layers, which are still empty, by quantized ones. All other tensors are loaded already."""
    layers = {path: module for path, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    peaks: dict[str, Tensor] = {}
    hooks = []

    def replace(paths: Iterable[str]) -> None:
        for path in paths:
            tensors = read(path)
            layer = Int8Linear(tensors["weight"], tensors.get("bias"), dtype, device, peaks.get(path))
            backbone.set_submodule(path, layer)

    for at, block in enumerate(backbone.get_submodule("layers").children()):
        own = {path: layer for path, layer in layers.items() if path.startswith(f"layers.{at}.")}
        hooks.append(block.register_forward_pre_hook(lambda *_, own=own: _fill(own, read, dtype, device)))
        hooks.append(block.register_forward_hook(lambda *_, own=own: replace(own)))
        hooks += [
            layer.register_forward_pre_hook(lambda _, inputs, path=path: _observe(peaks, path, inputs[0]))
            for path, layer in own.items()
        ]
    readable = [prompt for prompt in prompts if prompt.reads]
    budget = sum(len(prompt.ids) for prompt in readable)
    runner = Runner(
        backbone,
        lambda states, _: states[:, 0],
        device=device,
        dtype=dtype,
        attention_name=attention,
        budget=max(1, budget),
    )
    if readable:
        (pack,) = build_trie(readable, budget).packs()
        runner.run(pack, None)
    for hook in hooks:
        hook.remove()
    # Without a prompt, or outside the blocks, layers are quantized as they are.
    replace({path for path in layers if path not in peaks})


def _fill(layers: Mapping[str, nn.Module], read: ReadTensors, dtype: torch.dtype, device: torch.device) -> None:
    for path, layer in layers.items():
        for name, tensor in read(path).items():
            setattr(layer, name, nn.Parameter(tensor.to(device, dtype), requires_grad=False))


def _observe(peaks: dict[str, Tensor], path: str, inputs: Tensor) -> None:
    peaks[path] = inputs.flatten(0, -2).float().abs().amax(0)
