"""Quantize a backbone to 8 bits, block by block, with the inputs that a sample of prompts gives each layer.

One pass over the sample does it all: each block is loaded in float right before it runs and quantized right after, so
no more than one block is in memory in float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import torch
from torch import Tensor, nn

from surefoot.core.prompt import Prompt
from surefoot.engine.int8 import Int8Linear, JointInt8Linear
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
    waiting: dict[str, Tensor] = {}  # the inputs of the layers of the current block
    hooks = []

    def quantize(path: str) -> None:
        tensors = read(path)
        backbone.set_submodule(path, Int8Linear(tensors["weight"], tensors.get("bias"), dtype, device))

    def replace(own: Set[str]) -> None:
        for path in own - waiting.keys():
            quantize(path)  # as it is, because it read nothing
        for paths, inputs in _groups(waiting):
            tensors = [read(path) for path in paths]
            peaks = inputs.flatten(0, -2).float().abs().amax(0)
            weights, biases = [each["weight"] for each in tensors], [each.get("bias") for each in tensors]
            parts: Sequence[nn.Module]
            if len(paths) == 1:
                parts = [Int8Linear(weights[0], biases[0], dtype, device, peaks)]
            else:
                parts = JointInt8Linear(weights, biases, dtype, device, peaks).parts()
            for path, part in zip(paths, parts, strict=True):
                backbone.set_submodule(path, part)
        waiting.clear()

    for at, block in enumerate(backbone.get_submodule("layers").children()):
        own = {path: layer for path, layer in layers.items() if path.startswith(f"layers.{at}.")}
        hooks.append(block.register_forward_pre_hook(lambda *_, own=own: _fill(own, read, dtype, device)))
        hooks.append(block.register_forward_hook(lambda *_, own=own: replace(own.keys())))
        hooks += [
            layer.register_forward_pre_hook(lambda _, inputs, path=path: waiting.update({path: inputs[0]}))
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
    for path, module in list(backbone.named_modules()):
        if isinstance(module, nn.Linear):
            quantize(path)


def _fill(layers: Mapping[str, nn.Module], read: ReadTensors, dtype: torch.dtype, device: torch.device) -> None:
    for path, layer in layers.items():
        for name, tensor in read(path).items():
            setattr(layer, name, nn.Parameter(tensor.to(device, dtype), requires_grad=False))


def _groups(inputs: Mapping[str, Tensor]) -> list[tuple[list[str], Tensor]]:
    """The paths of layers that read the same tensor, and that tensor."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for path, tensor in inputs.items():
        found.setdefault(id(tensor), ([], tensor))[0].append(path)
    return list(found.values())
