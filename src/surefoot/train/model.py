"""The model in training: a stock transformers decoder with a two-class head, under the checkpoint's tensor names.

Invariant: the base is read and validated by the code that loads a PRM for scoring, so every trained backbone can be
scored with. Weights are float32 during training; autocast makes matrix products cheaper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, pad

from surefoot.engine.checkpoint import Checkpoint, open_checkpoint
from surefoot.engine.weights import load_weights
from surefoot.errors import CheckpointError, LoadError, OptionError
from surefoot.families import PromptTokenizer, all_families, find_family
from surefoot.families.heads import TwoClassFamily
from surefoot.families.mini import locate
from surefoot.families.mini.family import Mini
from surefoot.families.mini.surprise import DIGITS, INTERCEPT, SURPRISE, MiniLM, digit_tokens, kinds, token_features
from surefoot.train.attention import NAME, choose_attention
from surefoot.train.batch import Batch
from surefoot.train.pruning import OUTPUT_WEIGHT, prune_feed_forward
from surefoot.train.vocabulary import cut_vocabulary

OLD_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Config entries that refer to the full vocabulary and are dropped when it is cut."""
NOT_EXPORTED = ("_model_name_or_path", "auto_map", "dtype", "torch_dtype", "transformers_version")
"""Config entries that describe the base's files."""
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>")
OWN = (SURPRISE, INTERCEPT, DIGITS)
"""What the head of a PRM of the family `mini` lacks to become one of `mini-lm`."""
INITIAL = ((0.0, 0.2), (0.0, 0.01))
"""The weights of the constant and of the log-probability before training, for digits and for other tokens."""


class Surprise(nn.Module):
    """What a token adds to the logit of its step (see `families.mini.surprise`).

    In training, the log-probabilities judge alone. Most steps are correct, so they need an intercept then. Without one,
    each token would raise the score, and long steps would count as correct.
    """

    digits: Tensor

    def __init__(self, vocabulary: int, digits: Sequence[int] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(INITIAL))
        self.intercept = nn.Parameter(torch.zeros(1))
        self.register_buffer("digits", torch.zeros(vocabulary))
        self.digits[list(digits)] = 1.0

    @property
    def factors(self) -> Tensor:
        """The weights of the sums, and the intercept after them."""
        return torch.cat([self.weight.flatten(), self.intercept])

    def sums(self, features: Tensor, tokens: Tensor, steps: Tensor, count: int) -> Tensor:
        """Return for each of `count` steps what the weights are multiplied by, in their order."""
        sums = features.new_zeros(count, *self.weight.shape)
        return sums.index_put((steps, kinds(self.digits, tokens)), features, accumulate=True).flatten(1)


class RewardModel(nn.Module):
    """Backbone and head. The state dict has the names of the checkpoint: `model.*`, `score.*`, `surprise.*`."""

    def __init__(self, backbone: nn.Module, hidden_size: int, surprise: Surprise | None = None) -> None:
        super().__init__()
        self.model = backbone
        self.score = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 2))
        self.surprise = surprise

    def forward(self, batch: Batch) -> Tensor:
        """Return the logit difference (correct minus incorrect) at each read position. Its sigmoid is the score."""
        return self.margins(self.hidden(batch), batch)

    def hidden(self, batch: Batch) -> Tensor:
        """Return the backbone's output at every position."""
        extra = {} if batch.segments is None else {"segments": batch.segments}
        found = self.model(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.seen, use_cache=False, **extra
        )
        hidden: Tensor = found.last_hidden_state
        return hidden

    def margins(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the logit difference at each read position."""
        return self.parts(hidden, batch).sum(-1)

    def parts(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the summands of the logit difference: that of the MLP and, if tokens are read, that of the tokens."""
        features = self.features(hidden, batch)
        if self.surprise is None:
            return features
        tokens = (features[:, 1:] * self.surprise.weight.flatten()).sum(-1)
        return torch.stack([features[:, 0], tokens + self.surprise.intercept], -1)

    def features(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the MLP's logit difference at each read position and, if tokens are read, sums of their features."""
        reads = hidden[batch.rows, batch.columns]
        with torch.autocast(hidden.device.type, enabled=False):
            wrong, right = self.score(reads.float()).unbind(-1)
        margin: Tensor = right - wrong
        if self.surprise is None:
            return margin[:, None]
        if batch.predicted is None:
            return pad(margin[:, None], (0, self.surprise.weight.numel()))
        rows, columns, following, steps = batch.predicted
        logprobs = -cross_entropy(self._logits(hidden[rows, columns]), following, reduction="none")
        sums = self.surprise.sums(token_features(logprobs), following, steps, len(margin))
        return torch.cat([margin[:, None], sums], -1)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Predict the next token. The embeddings are the output matrix, as in models with tied embeddings.

        They do not learn from this: most users freeze them, and the gradient of a whole vocabulary costs as much as
        several layers.
        """
        table = self.model.get_submodule("embed_tokens").get_parameter("weight").detach()
        return linear(hidden, table.to(hidden.dtype)).float()

    def language_loss(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the sum of the cross-entropies of the tokens of correct solutions."""
        if batch.continuations is None:
            return hidden.new_zeros(())
        rows, columns, following = batch.continuations
        return cross_entropy(self._logits(hidden[rows, columns]), following, reduction="sum")

    @property
    def attends_by_segments(self) -> bool:
        """Whether batches need segments instead of a mask."""
        config: Any = self.model.config
        return bool(config._attn_implementation == NAME)

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder's layers."""
        layers = self.model.get_submodule("layers")
        if not isinstance(layers, nn.ModuleList):
            raise CheckpointError("The layers of the base are not a ModuleList called `layers`. Use a stock decoder.")
        return layers


@dataclass(frozen=True)
class Trainee:
    """A model to train, and everything that is exported with its weights."""

    model: RewardModel
    family: TwoClassFamily
    tokenizer: PromptTokenizer
    config: dict[str, Any]
    tokenizer_json: dict[str, Any]
    """The content of tokenizer.json, including our own tokens."""
    context: int
    solved: frozenset[str] = frozenset()
    """Weights that pruning solved for. Their last bits depend on the number of threads."""


def make_trainee(
    base: str | Path,
    *,
    layers: int | None = None,
    family: str | None = None,
    vocabulary: tuple[int, Iterable[str]] | None = None,
    units: tuple[int, Iterable[str]] | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Trainee:
    """Prepare a base model, or a PRM of one of our families, for training.

    `layers` keeps only the first N layers. `family` determines the prompt; by default a Qwen2 model with chat tokens
    becomes `qwen`, any other base `mini`. `vocabulary` is a pair (N, texts) that cuts the vocabulary to the N most
    frequent tokens and those that the texts use. `units` is a pair (N, texts) that keeps, in every feed-forward block,
    the N units that matter most for the texts, and solves for their output weights.
    """
    checkpoint = open_checkpoint(locate(base))
    tokenizer = _read_tokenizer(checkpoint.folder)
    kind = _choose_family(checkpoint, tokenizer, family)
    checkpoint, prefix = _prepare(checkpoint, layers)
    shapes = kind.head_shapes(checkpoint.config)
    if SURPRISE not in checkpoint.tensors:
        # A PRM of the family `mini` keeps its head when it becomes one of `mini-lm`.
        shapes = {name: shape for name, shape in shapes.items() if name not in OWN}
    is_prm = all(name in checkpoint.tensors for name in shapes)
    hidden_size = int(checkpoint.setting("hidden_size"))
    weights = load_weights(
        checkpoint,
        prefix=prefix,
        head_shapes=shapes if is_prm else {},
        unused=("lm_head.",),
        dtype=torch.float32,
        device=torch.device("cpu"),
        attention="sdpa",
    )
    backbone: Any = weights.backbone
    backbone.config._attn_implementation = "sdpa"
    backbone.float()
    for parameter in backbone.parameters():
        parameter.requires_grad_(True)
    if vocabulary is not None:
        if not isinstance(kind, Mini):
            raise OptionError(f"The vocabulary of the family {kind.name!r} cannot be cut: its token ids are fixed.")
        if is_prm:
            raise OptionError(
                f"{base} is already a PRM, and cutting its vocabulary would remove tokens it was trained with. "
                "Keep the vocabulary."
            )
        tokenizer, kept = cut_vocabulary(tokenizer, vocabulary[1], vocabulary[0])
        embedding = backbone.get_submodule("embed_tokens")
        embedding.weight = nn.Parameter(embedding.weight.data[kept])
        embedding.padding_idx = None  # that id now belongs to another token or does not exist
    if units is not None:
        prune_feed_forward(backbone, units[0], PromptTokenizer(tokenizer).encode(*units[1]))
    generator = torch.Generator().manual_seed(seed)
    size = _add_tokens(backbone, tokenizer, kind.added_tokens, generator)
    digits = digit_tokens(PromptTokenizer(tokenizer))
    model = RewardModel(backbone, hidden_size, Surprise(size, digits) if isinstance(kind, MiniLM) else None)
    _fill_head(model, weights.head, generator)
    config = _exported_config(checkpoint.config, kind, size)
    if units is not None:
        config["intermediate_size"] = units[0]
    if vocabulary is not None:
        config = {name: value for name, value in config.items() if name not in OLD_IDS}
    backbone.config._attn_implementation = choose_attention(backbone.config, torch.device(device))
    solved = frozenset(name for name in model.state_dict() if units is not None and name.endswith(OUTPUT_WEIGHT))
    return Trainee(model.to(device), kind, PromptTokenizer(tokenizer), config, tokenizer, weights.context, solved)


@torch.no_grad()
def average(trainee: Trainee, others: Sequence[Trainee]) -> None:
    """Replace the weights of a trainee by the mean of its own and those of others, such as of later runs."""
    mean = trainee.model.state_dict()
    for other in others:
        same_shapes = {name: each.shape for name, each in mean.items()} == {
            name: each.shape for name, each in other.model.state_dict().items()
        }
        if not same_shapes or other.tokenizer_json != trainee.tokenizer_json or other.family != trainee.family:
            raise OptionError(
                "The models to average differ in their shapes, tokenizers or families. Only models that were trained "
                "from the same base can be averaged."
            )
    for name, tensor in mean.items():
        tensor.copy_(torch.stack([tensor, *(other.model.state_dict()[name] for other in others)]).float().mean(0))


def _read_tokenizer(folder: Path) -> dict[str, Any]:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise LoadError(f"{folder} has no tokenizer.json. Save the fast tokenizer of the base there first.")
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        content["added_tokens"]
        content["model"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{file} is not a tokenizer ({error}). Download it again.") from error
    return content


def _choose_family(checkpoint: Checkpoint, tokenizer: dict[str, Any], name: str | None) -> TwoClassFamily:
    known = {architecture for family in all_families().values() for architecture in family.architectures}
    architectures = checkpoint.config.get("architectures") or []
    if name is None and known.isdisjoint(architectures):
        names = {token["content"] for token in tokenizer["added_tokens"]}
        name = "qwen" if checkpoint.config.get("model_type") == "qwen2" and names.issuperset(CHAT_TOKENS) else "mini"
    family = find_family(architectures, name)
    if not isinstance(family, TwoClassFamily):
        raise OptionError(f"The family {family.name!r} cannot be trained: it does not have a two-class head.")
    return family


def _prepare(checkpoint: Checkpoint, layers: int | None) -> tuple[Checkpoint, str]:
    """Return the checkpoint cut to its first layers, and the prefix of the backbone's tensor names."""
    config = dict(checkpoint.config)
    prefix = "model." if any(name.startswith("model.") for name in checkpoint.tensors) else ""
    count = int(checkpoint.setting("num_hidden_layers"))
    if layers is None:
        return checkpoint, prefix
    if not 1 <= layers <= count:
        raise OptionError(f"layers={layers}, but the base has {count}. Choose a number from 1 to {count}.")
    config["num_hidden_layers"] = layers
    if isinstance(config.get("layer_types"), list):
        config["layer_types"] = config["layer_types"][:layers]
    gone = tuple(f"{prefix}layers.{number}." for number in range(layers, count))
    tensors = {name: place for name, place in checkpoint.tensors.items() if not gone or not name.startswith(gone)}
    return replace(checkpoint, config=config, tensors=tensors), prefix


def _add_tokens(backbone: Any, tokenizer: dict[str, Any], names: tuple[str, ...], generator: torch.Generator) -> int:
    """Add each missing token with the next free id and an embedding; return the new size of the vocabulary."""
    added = tokenizer["added_tokens"]
    known = {token["content"] for token in added}
    vocabulary = tokenizer["model"].get("vocab", {})
    used = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    free = max([*used, *(token["id"] for token in added)], default=-1) + 1
    table = backbone.get_submodule("embed_tokens").weight.data
    rows = [table]
    size = len(table)
    for name in names:
        if name in known:
            continue
        added.append({
            "id": free, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        })  # fmt: skip
        # Close to the mean of all embeddings, but distinct.
        noise = torch.randn(table.shape[1], generator=generator) * table.std() * 0.1
        row = (table.mean(0) + noise).to(table.dtype)
        if free < size:
            table[free] = row
        else:
            filler = [torch.zeros_like(row)[None]] * (free - size)
            rows += [*filler, row[None]]
            size = free + 1
        free += 1
    backbone.get_submodule("embed_tokens").weight = nn.Parameter(torch.cat(rows))
    backbone.get_submodule("embed_tokens").num_embeddings = size
    backbone.config.vocab_size = size
    return size


def _fill_head(model: RewardModel, head: Any, generator: torch.Generator) -> None:
    if head:
        own = {name: tensor for name, tensor in head.items() if not name.startswith("model.")}
        model.load_state_dict(own, strict=False)
        return
    # The inputs of the head are as large as the weights of the last norm, which differ between bases (Qwen2.5: 7).
    norm = model.model.get_submodule("norm").get_parameter("weight")
    size = float(norm.detach().square().mean().sqrt())
    with torch.no_grad():
        for layer, inputs in ((model.score[0], size), (model.score[2], 1.0)):
            if isinstance(layer, nn.Linear):
                spread = layer.in_features**-0.5 / max(inputs, 1e-3)
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * spread)
                layer.bias.zero_()


def _exported_config(base: dict[str, Any], family: TwoClassFamily, vocabulary: int) -> dict[str, Any]:
    kept = {name: value for name, value in base.items() if name not in NOT_EXPORTED}
    if theta := (kept.get("rope_parameters") or {}).get("rope_theta"):
        kept["rope_theta"] = theta  # where transformers 4 looks for it
    return kept | {
        "architectures": [family.architectures[0]],
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
