"""Small checkpoints of every family, true in architecture and tensor names, and the same models written plainly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from helpers import vocabulary
from surefoot.core.prompt import Prompt
from surefoot.testing import qwen_config, qwen_shapes, qwen_tokenizer_json, random_tensor

HIDDEN = 32
GRANITE_Y, GRANITE_ROLE_END = 56, 151653
SIZES = {
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "torch_dtype": "float32",
}
BASES: dict[str, dict[str, Any]] = {
    "qwen2": {"vocab_size": 152064},
    "llama": {
        "vocab_size": 128256,
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "mistral": {"vocab_size": 32000, "sliding_window": 4096, "max_position_embeddings": 32768},
    "deepseek": {"vocab_size": 100003},
    "granite": {
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
        "rope_theta": 10000000.0,
        "tie_word_embeddings": True,
        "embedding_multiplier": 12.0,
        "attention_multiplier": 1 / 16,
        "residual_multiplier": 0.22,
        "logits_scaling": 16.0,
    },
    "qwen3": {"vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000.0, "head_dim": 16},
}
MODEL_TYPES = {"deepseek": "llama"}
TOKENIZERS = {
    "qwen2": qwen_tokenizer_json,
    "llama": vocabulary.llama_tokenizer_json,
    "mistral": vocabulary.mistral_tokenizer_json,
    "deepseek": vocabulary.pqm_tokenizer_json,
    "granite": vocabulary.granite_tokenizer_json,
    "qwen3": qwen_tokenizer_json,
}
Head = dict[str, tuple[int, ...]]
Values = list[float]
Read = Callable[[Mapping[str, Tensor], Tensor], Tensor]


def shapes(model_type: str, config: dict[str, Any], head: Head, *, lm_head: bool) -> Head:
    """Every tensor of a checkpoint: the decoder's, the head's, the output layer."""
    names = {name: shape for name, shape in qwen_shapes(config).items() if not name.startswith(("score.", "lm_head."))}
    if model_type != "qwen2":
        names = {name: shape for name, shape in names.items() if not name.endswith("proj.bias")}
    if model_type == "qwen3":
        for layer in range(config["num_hidden_layers"]):
            for part in ("q_norm", "k_norm"):
                names[f"model.layers.{layer}.self_attn.{part}.weight"] = (config["head_dim"],)
    if lm_head:
        names["lm_head.weight"] = (config["vocab_size"], config["hidden_size"])
    return names | head


def write(
    folder: Path,
    model_type: str,
    architecture: str,
    head: Head | None = None,
    *,
    lm_head: bool = True,
    tokenizer: str | None = None,
    quiet: Sequence[int] = (),
    seed: int = 0,
    **settings: Any,
) -> Path:
    """A whole checkpoint. Embeddings of the tokens in `quiet`, where reads stand, are made small: see `testing`."""
    folder.mkdir(parents=True)
    config = qwen_config(**SIZES, **BASES[model_type], **settings)
    del config["auto_map"]
    if model_type != "qwen2":
        for name in ("use_sliding_window", *(["sliding_window"] if model_type != "mistral" else [])):
            config.pop(name)
    config |= {"architectures": [architecture], "model_type": MODEL_TYPES.get(model_type, model_type)}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tokenizer or TOKENIZERS[model_type]())
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: random_tensor(name, shape, generator, torch.float32)
        for name, shape in shapes(model_type, config, head or {}, lm_head=lm_head).items()
    }
    tensors["model.embed_tokens.weight"][list(quiet)] *= 0.01
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, and those of a separate head with its name in front."""
    tensors = load_file(folder / "model.safetensors")
    if (folder / "reward_head.pt").is_file():
        head = torch.load(folder / "reward_head.pt", weights_only=True)
        tensors |= {f"reward_head.{name}": value for name, value in head.items()}
    return tensors


def change(folder: Path, update: Callable[[dict[str, Tensor]], object]) -> None:
    """Changes the tensors of a checkpoint."""
    tensors = read_tensors(folder)
    update(tensors)
    names = [name for name in tensors if name.startswith("reward_head.")]
    head = {name.removeprefix("reward_head."): tensors.pop(name) for name in names}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if head or (folder / "reward_head.pt").is_file():
        torch.save(head, folder / "reward_head.pt")


@cache
def plain(folder: Path) -> tuple[nn.Module, dict[str, Tensor]]:
    """transformers' own decoder with the checkpoint's weights, and all tensors."""
    from transformers import CONFIG_MAPPING, AutoModel

    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder)
    body = AutoModel.from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config), dtype=torch.float32).eval()
    plainly = {name.removeprefix("pretrained_model."): value for name, value in tensors.items()}
    names = {name.removeprefix("model."): value for name, value in plainly.items() if name.startswith("model.")}
    body.load_state_dict(names)
    return body, tensors


@torch.no_grad()
def states(folder: Path, ids: Sequence[int]) -> Tensor:
    """The last hidden state of every token, from one forward over the whole prompt."""
    body, _ = plain(folder)
    hidden: Tensor = body(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return hidden


@dataclass(frozen=True)
class Case:
    """A family, its checkpoint, and how a person would read it."""

    name: str
    model: str
    """A name from the table of known models."""
    make: Callable[[Path], Path]
    read: Read | None = None
    """From all tensors and the hidden states at the reads to the scores."""
    options: dict[str, Any] = field(default_factory=dict)

    def scores(self, folder: Path, prompts: Sequence[Prompt]) -> Values:
        """What a plain forward gives for each prompt, one after the other."""
        assert self.read is not None
        _, tensors = plain(folder)
        found: Values = []
        for prompt in prompts:
            hidden = states(folder, prompt.ids)[list(prompt.reads)]
            found += self.read(tensors, hidden).tolist()
        return found


def words(good: int, bad: int, name: str = "lm_head.weight") -> Read:
    def read(tensors: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        logits = hidden @ tensors[name].T
        return logits[:, [good, bad]].softmax(-1)[:, 0]

    return read


def linear(tensors: Mapping[str, Tensor], hidden: Tensor, name: str) -> Tensor:
    weight = tensors[f"{name}.weight"]
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=f"{name}.bias" in tensors)
    layer.load_state_dict({part: tensors[f"{name}.{part}"] for part in layer.state_dict()})
    with torch.no_grad():
        out: Tensor = layer(hidden)
    return out


def ensemble(tensors: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    votes = []
    for number in range(32):
        inner = hidden
        for name in ("nn1", "nn2", "nn_out"):
            inner = inner @ tensors[f"score.model.{name}.weight"][number] + tensors[f"score.model.{name}.bias"][number]
            inner = inner.relu() if name != "nn_out" else inner
        votes.append(inner[:, 0].sigmoid())
    return torch.stack(votes).mean(0)


def make_llemma(folder: Path) -> Path:
    write(folder, "mistral", "LlamaForCausalLM", quiet=[13])
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "llama", "max_position_embeddings": 4096}
    del config["sliding_window"]
    (folder / "config.json").write_text(json.dumps(config))
    row = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(7))
    change(folder, lambda tensors: tensors.update({"lm_head.weight": row.repeat(32000, 1)}))
    return folder


def make_reasonflux(folder: Path) -> Path:
    """The head is a file of its own."""
    write(folder, "qwen2", "Qwen2ForCausalLM", lm_head=False, tie_word_embeddings=True)
    weight = torch.randn(1, HIDDEN, generator=torch.Generator().manual_seed(7))
    change(folder, lambda t: t.update({"reward_head.weight": weight, "reward_head.bias": torch.tensor([0.1])}))
    return folder


def make_pqm(folder: Path) -> Path:
    """The state of the makers' wrapper, in which the language model is a member."""
    write(folder, "deepseek", "LlamaForCausalLM", quiet=[100002])

    def wrap(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[f"pretrained_model.{name}"] = tensors.pop(name)
        weight = torch.randn(1, HIDDEN, generator=torch.Generator().manual_seed(7))
        tensors.update({"v_head.summary.weight": weight, "v_head.summary.bias": torch.tensor([0.1])})

    change(folder, wrap)
    return folder


def make_granite(folder: Path) -> Path:
    """A model in which `Y` is among the likely tokens: its embedding points where that of the token before it does."""
    write(folder, "granite", "GraniteForCausalLM", lm_head=False)
    direction = torch.nn.functional.normalize(torch.randn(HIDDEN, generator=torch.Generator().manual_seed(7)), dim=0)

    def update(tensors: dict[str, Tensor]) -> None:
        embeddings = tensors["model.embed_tokens.weight"]
        embeddings[GRANITE_ROLE_END] = 0.1 * direction
        embeddings[GRANITE_Y] = 58.0 * direction

    change(folder, update)
    return folder


ENSEMBLE: Head = {
    f"score.{part}.{name}.{kind}": (32, *size) if kind == "weight" else (32, size[1])
    for part in ("model", "reg_model")
    for name, size in {"nn1": (HIDDEN, 128), "nn2": (128, 128), "nn_out": (128, 1)}.items()
    for kind in ("weight", "bias")
}
MLP: Head = {"score.0.weight": (HIDDEN, HIDDEN), "score.0.bias": (HIDDEN,)}
VALUE: Head = MLP | {"score.2.weight": (1, HIDDEN), "score.2.bias": (1,)}
CLASSES: Head = MLP | {"score.2.weight": (2, HIDDEN), "score.2.bias": (2,)}
LINEAR: Head = {"score.weight": (2, HIDDEN), "score.bias": (2,)}


def mlp(tensors: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    return linear(tensors, linear(tensors, hidden, "score.0").relu(), "score.2")


def margin(tensors: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    both = linear(tensors, hidden, "score").softmax(-1)
    return both[:, 1] - both[:, 0]


CASES = [
    Case(
        "qwen",
        "Gen-Verse/ReasonFlux-PRM-7B",
        lambda f: write(f, "qwen2", "Qwen2ForProcessRewardModel", CLASSES, quiet=[151651]),
        lambda t, h: mlp(t, h).softmax(-1)[:, 1],
    ),
    Case(
        "trl",
        "trl-lib/Qwen2-0.5B-Reward-Math-Sheperd",
        lambda f: write(f, "qwen2", "Qwen2ForTokenClassification", LINEAR, lm_head=False, quiet=[198]),
        lambda t, h: linear(t, h, "score").softmax(-1)[:, 1],
    ),
    Case(
        "trl",
        "jinachris/PURE-PRM-7B",
        lambda f: write(f, "qwen2", "Qwen2ForTokenClassification", LINEAR, lm_head=False, quiet=[198]),
        margin,
    ),
    Case(
        "shepherd",
        "peiyi9979/math-shepherd-mistral-7b-prm",
        lambda f: write(f, "mistral", "MistralForCausalLM", quiet=[12902]),
        words(648, 387),
    ),
    Case(
        "trl",
        "plaguss/Llama-3.1-8B-Math-Shepherd-PRM-0.2",
        lambda f: write(f, "llama", "LlamaForTokenClassification", LINEAR, lm_head=False, quiet=[198]),
        lambda t, h: linear(t, h, "score").softmax(-1)[:, 1],
    ),
    Case(
        "openrlhf",
        "OpenRLHF/Mistral-7b-PRM-Math-Shepherd",
        lambda f: write(f, "mistral", "MistralForCausalLM", quiet=[12902]),
        words(648, 387),
    ),
    Case(
        "er-prm",
        "HanningZhang/Llama3.1-Math-PRM",
        lambda f: write(f, "llama", "LlamaForCausalLM", quiet=[116624]),
        words(489, 482),
    ),
    Case(
        "versa",
        "UW-Madison-Lee-Lab/Qwen-PRM800K",
        lambda f: write(f, "qwen2", "Qwen2ForCausalLM", lm_head=False, quiet=[22701], tie_word_embeddings=True),
        words(10, 12, "model.embed_tokens.weight"),
    ),
    Case(
        "rlhflow",
        "RLHFlow/Llama3.1-8B-PRM-Mistral-Data",
        lambda f: write(f, "llama", "LlamaForCausalLM", quiet=[271]),
        words(10, 12),
    ),
    Case(
        "fover",
        "ryokamoi/Qwen-2.5-7B-FoVer-PRM",
        lambda f: write(f, "qwen2", "Qwen2ForCausalLM", quiet=[198]),
        words(19928, 61954),
    ),
    Case(
        "skywork",
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B",
        lambda f: write(
            f,
            "qwen2",
            "Qwen2ForPrmModel",
            {"v_head.summary.weight": (1, HIDDEN), "v_head.summary.bias": (1,)},
            lm_head=False,
            quiet=[198],
            tie_word_embeddings=True,
        ),
        lambda t, h: linear(t, h, "v_head.summary").sigmoid()[:, 0],
    ),
    Case(
        "actprm",
        "sail/ActPRM",
        lambda f: write(
            f,
            "qwen2",
            "Qwen2ForEnsemblePRM",
            ENSEMBLE,
            tokenizer=vocabulary.actprm_tokenizer_json(),
            quiet=[151665],
            num_ensemble=32,
        ),
        ensemble,
    ),
    Case(
        "llemma",
        "ScalableMath/llemma-7b-prm-prm800k-level-1to3-hf",
        make_llemma,
        lambda t, h: (h @ t["lm_head.weight"].T).mean(-1).sigmoid(),
    ),
    Case(
        "reasoneval",
        "GAIR/ReasonEval-7B",
        lambda f: write(
            f,
            "mistral",
            "ReasonEval_7B",
            {"score_head.weight": (3, HIDDEN), "score_head.bias": (3,)},
            lm_head=False,
            use_bias=True,
            score_dimension=3,
        ),
        lambda t, h: 1 - linear(t, h, "score_head").softmax(-1)[:, 0],
    ),
    Case(
        "universal",
        "infly/Universal-PRM-7B",
        lambda f: write(f, "qwen2", "Qwen2ForRewardModel", VALUE, quiet=[151645]),
        lambda t, h: mlp(t, h).sigmoid()[:, 0],
    ),
    Case(
        "babelscape",
        "Babelscape/Llama-3.1-8B-PRM800k-r",
        lambda f: write(
            f, "llama", "LlamaForPRM", {"score.weight": (1, HIDDEN), "score.bias": (1,)}, lm_head=False, quiet=[17165]
        ),
        lambda t, h: linear(t, h, "score").sigmoid()[:, 0],
    ),
    Case(
        "pqm",
        "Windy0822/PQM",
        make_pqm,
        lambda t, h: linear(t, h, "v_head.summary")[:, 0],
    ),
    Case(
        "granite",
        "ibm-granite/granite-3.3-8b-math-prm-v2",
        make_granite,
        lambda t, h: (h @ t["model.embed_tokens.weight"].T / 16).softmax(-1)[:, GRANITE_Y],
    ),
    Case(
        "pathfinder",
        "declare-lab/PathFinder-PRM-7B",
        lambda f: write(f, "qwen2", "Qwen2ForCausalLM", tokenizer=vocabulary.pathfinder_tokenizer_json(), quiet=[220]),
        lambda t, h: words(151652, 151653)(t, h).min()[None],
    ),
    Case(
        "versa",
        "dongboklee/dPRM-8B",
        lambda f: write(
            f, "llama", "LlamaForCausalLM", tokenizer=vocabulary.deepseek_llama_tokenizer_json(), quiet=[23535]
        ),
        words(10, 12),
    ),
    Case(
        "versa",
        "dongboklee/dORM-qwen",
        lambda f: write(f, "qwen3", "Qwen3ForCausalLM", quiet=[22701]),
        words(10, 12),
    ),
    Case(
        "reasonflux",
        "Gen-Verse/ReasonFlux-PRM-1.5B",
        make_reasonflux,
        lambda t, h: linear(t, h, "reward_head").sigmoid()[:, 0],
    ),
    Case(
        "spare",
        "UKPLab/Llama-3-8b-spare-prm-math",
        lambda f: write(f, "llama", "LlamaForCausalLM", quiet=[116624]),
        words(10, 12),
    ),
    Case(
        "spare",
        "UKPLab/Qwen2.5-3b-spare-prm-math",
        lambda f: write(f, "qwen2", "Qwen2ForCausalLM", lm_head=False, quiet=[1802], tie_word_embeddings=True),
        words(10, 12, "model.embed_tokens.weight"),
    ),
]
