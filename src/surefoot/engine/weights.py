"""Load a checkpoint into memory and verify the result.

The backbone is a stock transformers class, filled tensor by tensor. The checkpoint must contain every tensor that the
backbone and the head expect, with the right shape, and no other tensors except those that the family declares unused.
What transformers derives from the config (rotary frequencies, norm epsilon) is recomputed and compared, because an
error in either gives finite but wrong scores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from surefoot.core.options import Quantization
from surefoot.engine.attention import register
from surefoot.engine.checkpoint import Checkpoint
from surefoot.engine.forks import use_own_threads
from surefoot.engine.int8 import is_quantized, quantize_layers
from surefoot.engine.prepacked import PrepackedLinear, can_prepack, fuse_feed_forward
from surefoot.engine.quantization import NF4Linear, nf4_linear
from surefoot.engine.quantized_cache import QuantizedCache
from surefoot.engine.tensor_files import FLOATING
from surefoot.errors import CheckpointError, SurefootError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

logger = logging.getLogger("surefoot")

IGNORED = (
    # These refer to code, in the repository or as kernels on the hub, which is never run.
    "auto_map",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
    # These change the form of the output, which `Runner` reads.
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_return_dict",
    "torchscript",
)
"""Values of config.json that are not used."""


@dataclass(frozen=True)
class Weights:
    """A backbone that is ready to run, and the head's tensors."""

    backbone: nn.Module
    head: Mapping[str, Tensor]
    context: int
    """The maximum number of tokens in a prompt."""

    @property
    def bytes(self) -> int:
        """The memory that all weights take."""
        tensors = [*self.backbone.parameters(), *self.backbone.buffers(), *self.head.values()]
        packed = sum(getattr(module, "packed_bytes", 0) for module in self.backbone.modules())
        return packed + sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def load_weights(
    checkpoint: Checkpoint,
    *,
    prefix: str,
    head_shapes: Mapping[str, Sequence[int]],
    unused: Sequence[str],
    dtype: torch.dtype,
    device: torch.device,
    attention: str,
    quantize: Quantization | None = None,
    quantized: QuantizedCache | None = None,
    reduce_head: Callable[[str, Tensor], Tensor] | None = None,
    head_dtype: torch.dtype = torch.float32,
    prepack: bool = False,
) -> Weights:
    """Build the backbone that config.json describes, load it and the head from the checkpoint, and verify both.

    `reduce_head` maps a head tensor's name and value to the part to keep in memory; by default everything is kept. A
    head tensor may also be a tensor of the backbone. Quantized weights come from `quantized` if they are there.
    Embeddings keep their stored dtype and are cast after lookup, so no larger copy of them is made. `prepack` stores
    the weights of linear layers for faster products, where that works. They are then not parameters, and can be neither
    trained nor compiled.
    """
    use_own_threads()
    _check_attention_kind(checkpoint)
    if checkpoint.setting("num_hidden_layers") > len(checkpoint.tensors):
        raise CheckpointError(
            f"config.json sets num_hidden_layers to {checkpoint.setting('num_hidden_layers')}, but {checkpoint.folder} "
            f"has only {len(checkpoint.tensors)} tensors. They do not belong together."
        )
    with _config_errors(checkpoint):
        config = _transformers_config(checkpoint.config)
        context = _context(checkpoint, config)
        backbone = _empty_backbone(config, attention)
    expected = {prefix + name: tuple(tensor.shape) for name, tensor in backbone.state_dict().items()}
    expected |= {name: tuple(shape) for name, shape in head_shapes.items()}
    _check_tensors(checkpoint, expected, unused)

    def read(path: str) -> dict[str, Tensor]:
        parameters = backbone.get_submodule(path).named_parameters(recurse=False)
        return {name: checkpoint.read(f"{prefix}{path}.{name}") for name, _ in parameters}

    backbone.eval()
    prepack = prepack and quantize != "nf4" and can_prepack(dtype, device)
    embedding = backbone.get_submodule("embed_tokens")
    for path, module in list(backbone.named_modules()):
        if quantize == "int8" and is_quantized(path, module):
            continue  # below
        if quantize == "nf4" and isinstance(module, nn.Linear):
            bias = None if module.bias is None else checkpoint.read(f"{prefix}{path}.bias")
            cached = None if quantized is None else quantized.get(path, (module.out_features, module.in_features))
            weight = checkpoint.read(f"{prefix}{path}.weight") if cached is None else cached
            layer = nf4_linear(weight, bias, dtype, device)
            if quantized is not None and isinstance(layer, NF4Linear):
                quantized.add(path, layer.stored)
            backbone.set_submodule(path, layer)
            continue
        if prepack and isinstance(module, nn.Linear):
            tensors = {name: tensor.to(dtype) for name, tensor in read(path).items()}
            backbone.set_submodule(path, PrepackedLinear(tensors["weight"], tensors.get("bias")))
            continue
        for name, tensor in read(path).items():
            wanted = tensor.dtype if module is embedding else dtype
            # Without the copy, a tensor that needs no conversion would stay mapped to the file.
            value = tensor.to(device, wanted) if tensor.dtype != wanted or device.type != "cpu" else tensor.clone()
            setattr(module, name, nn.Parameter(value, requires_grad=False))
    if prepack:
        fuse_feed_forward(backbone)
    if quantize == "int8":
        quantize_layers(backbone, read, dtype=dtype, device=device)
    if quantized is not None:
        quantized.write()
    head = {}
    for name in head_shapes:
        tensor = checkpoint.read(name)
        needed = tensor if reduce_head is None else reduce_head(name, tensor)
        head[name] = needed.to(device, head_dtype, copy=True)

    with _config_errors(checkpoint):
        _rebuild_rotary(backbone, config, device)
    with _config_errors(checkpoint):
        _check_derived(backbone, checkpoint, dtype)
    return Weights(backbone, head, context)


@contextmanager
def _config_errors(checkpoint: Checkpoint) -> Iterator[None]:
    """Name config.json where transformers fails with what it says."""
    try:
        yield
    except (SurefootError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        problem = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"transformers cannot build the model that {checkpoint.folder / 'config.json'} describes "
            f"({type(error).__name__}: {problem}). Copy config.json from the model's repository."
        ) from error


def _transformers_config(raw: Mapping[str, Any]) -> PretrainedConfig:
    from transformers import CONFIG_MAPPING
    from transformers.activations import ACT2FN

    kind = raw.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise CheckpointError(f"config.json has model_type {kind!r}, which this transformers version does not support.")
    activation = raw.get("hidden_act")
    if activation is not None and (not isinstance(activation, str) or activation not in ACT2FN):
        raise CheckpointError(f"config.json has hidden_act {activation!r}, which is not an activation function.")
    config: PretrainedConfig = CONFIG_MAPPING[kind].from_dict({k: v for k, v in raw.items() if k not in IGNORED})
    return config


def _check_attention_kind(checkpoint: Checkpoint) -> None:
    """Reject what a trie cannot express: sliding windows, and rotary angles that depend on the prompt length."""
    if checkpoint.config.get("use_sliding_window"):
        raise CheckpointError(f"{checkpoint.folder} uses sliding-window attention, which is not supported.")
    if _rope(checkpoint)[0] in ("dynamic", "longrope"):
        raise CheckpointError(
            f"{checkpoint.folder} uses {_rope(checkpoint)[0]} rotary embeddings, which are not supported."
        )


def _context(checkpoint: Checkpoint, config: Any) -> int:
    """The maximum prompt length. Up to its width, a sliding window equals full attention; models that have one are
    limited to that length."""
    context = int(checkpoint.setting("max_position_embeddings"))
    window = getattr(config, "sliding_window", None)
    if window is None:
        return context
    config.sliding_window = None
    return min(context, int(window))


def _rope(checkpoint: Checkpoint) -> tuple[str, float]:
    """The type and base of the rotary embeddings, from the old or the new layout of config.json."""
    parameters = checkpoint.config.get("rope_parameters") or checkpoint.config.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    return str(kind), float(parameters.get("rope_theta") or checkpoint.setting("rope_theta"))


def _empty_backbone(config: PretrainedConfig, attention: str) -> nn.Module:
    from transformers import AutoModel

    with torch.device("meta"):
        backbone: nn.Module = AutoModel.from_config(config, attn_implementation=register(attention))
    return backbone


def _check_tensors(checkpoint: Checkpoint, expected: Mapping[str, tuple[int, ...]], unused: Sequence[str]) -> None:
    found = checkpoint.tensors
    missing = [name for name in expected if name not in found]
    shapes = [
        f"{name} has shape {found[name].shape}, not {shape}"
        for name, shape in expected.items()
        if name in found and found[name].shape != shape
    ]
    dtypes = [f"{name} is {found[name].dtype}" for name in expected if name in found and not found[name].is_floating]
    left_over = [name for name in found if name not in expected and not name.startswith(tuple(unused) or "\0")]
    problems = [
        f"{title}: {', '.join(names[:10])}{f' and {len(names) - 10} more' if len(names) > 10 else ''}"
        for title, names in (
            ("missing", missing),
            ("wrong shape", shapes),
            (f"not weights in {', '.join(FLOATING.values())}", dtypes),
            ("unexpected", left_over),
        )
        if names
    ]
    if problems:
        raise CheckpointError(
            f"The tensors in {checkpoint.folder} do not match this family. {'; '.join(problems)}. Check that this is "
            "the PRM's own checkpoint, not its base model and not a quantized copy, and that it is complete."
        )


def _rebuild_rotary(backbone: nn.Module, config: PretrainedConfig, device: torch.device) -> None:
    """Compute the rotary frequencies, which are derived rather than stored and so missing in the empty backbone."""
    for path, module in list(backbone.named_modules()):
        if "inv_freq" in dict(module.named_buffers(recurse=False)):
            rotary: Any = type(module)
            backbone.set_submodule(path, rotary(config=config).to(device))


def _check_derived(backbone: nn.Module, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    left = [name for name, tensor in (*backbone.named_parameters(), *backbone.named_buffers()) if tensor.is_meta]
    if left:
        raise CheckpointError(f"Still empty after loading: {', '.join(left[:10])}.")
    for path, module in backbone.named_modules():
        epsilon = getattr(module, "variance_epsilon", None)
        if epsilon is not None and epsilon != (stated := checkpoint.setting("rms_norm_eps")):
            raise CheckpointError(f"{path} has norm epsilon {epsilon}, but config.json says {stated}.")
        if "inv_freq" in dict(module.named_buffers(recurse=False)):
            _check_rotary(module, checkpoint, dtype)


def _check_rotary(rotary: Any, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    """Compare the frequencies, and the angles at the last position, with the formula in float64."""
    kind, theta = _rope(checkpoint)
    if kind != "default":
        return
    heads = checkpoint.setting("num_attention_heads")
    size = checkpoint.config.get("head_dim") or checkpoint.setting("hidden_size") // heads
    expected = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    found = rotary.inv_freq.to("cpu", torch.float64)
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-5, atol=0.0):
        raise CheckpointError(
            f"The rotary frequencies do not match config.json (rope_theta {theta}); scores would be wrong. "
            "Please report this with your transformers version."
        )
    last = int(checkpoint.setting("max_position_embeddings")) - 1
    probe = torch.zeros(1, dtype=dtype, device=rotary.inv_freq.device)
    cosine, _ = rotary(probe, torch.tensor([[last]], device=probe.device))
    wanted = (last * expected).cos().repeat(2)
    tolerance = 2e-3 if dtype == torch.float32 else 2e-2
    if not torch.allclose(cosine[0, 0].to("cpu", torch.float64), wanted, rtol=0.0, atol=tolerance):
        raise CheckpointError(
            f"The rotary angles lose precision near position {last}; scores of long solutions would be wrong. "
            "Please report this with your transformers version."
        )
