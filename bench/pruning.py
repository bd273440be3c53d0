"""Measure what a language model loses if its feed-forward blocks become narrower, or if layers are left out.

    python bench/pruning.py FOLDER --data gsm8k/test.jsonl --sample gsm8k/train.jsonl --units 3648 2432 1824 --skip 6

The loss is the mean cross-entropy per token of GSM8K's solutions, given their questions. The units to keep are chosen
on other questions (`--sample`). `--skip N` leaves out N layers of full width: every second one, counted from the second
last. Nothing is trained.
"""

from __future__ import annotations

import argparse
import copy
import json
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from surefoot.train.example import strip_marks
from surefoot.train.pruning import prune_feed_forward

Pairs = list[tuple[list[int], list[int]]]


def read(path: Path, count: int, tokenizer: Any) -> Pairs:
    """The token ids of questions and of their solutions."""
    with path.open() as file:
        rows = [json.loads(line) for line in islice(file, count)]
    return [
        (tokenizer(row["question"] + "\n").input_ids, tokenizer(strip_marks(row["answer"])).input_ids) for row in rows
    ]


@torch.no_grad()
def loss(model: Any, pairs: Pairs) -> float:
    total = tokens = 0.0
    for question, solution in pairs:
        ids = torch.tensor([question + solution])
        logits = model(ids).logits[0, len(question) - 1 : -1].float()
        total += float(nn.functional.cross_entropy(logits, ids[0, len(question) :], reduction="sum"))
        tokens += len(solution)
    return total / tokens


def without_layers(model: Any, count: int) -> Any:
    layers = list(model.model.layers)
    gone = range(len(layers) - 2, -1, -2)[:count]
    model.model.layers = nn.ModuleList(layer for number, layer in enumerate(layers) if number not in gone)
    return model


def count_weights(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.model.layers.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sample", type=Path, required=True)
    parser.add_argument("--units", type=int, nargs="*", default=[])
    parser.add_argument("--skip", type=int, nargs="*", default=[])
    parser.add_argument("--count", type=int, default=30)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    whole: Any = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).eval()
    pairs = read(options.data, options.count, tokenizer)
    sample = [question + solution for question, solution in read(options.sample, 60, tokenizer)]
    weights = count_weights(whole)
    print(f"{weights / 1e6:.0f} million weights in layers: loss {loss(whole, pairs):.2f}")
    for units in options.units:
        model = copy.deepcopy(whole)
        prune_feed_forward(model.model, units, sample)
        print(f"{units} units, {count_weights(model) / weights:.0%} of the weights: loss {loss(model, pairs):.2f}")
    for count in options.skip:
        model = without_layers(copy.deepcopy(whole), count)
        print(
            f"{count} layers less, {count_weights(model) / weights:.0%} of the weights: loss {loss(model, pairs):.2f}"
        )


if __name__ == "__main__":
    main()
