"""The feed-forward block of the last layer runs only for the tokens that are read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.reference import Reference
from surefoot.core.prompt import Prompt
from surefoot.engine.runner import MIN_ROWS
from surefoot.engine.unread_rows import LastFeedForward, leave_out_unread_rows, reading_only
from surefoot.scoring.local import load_local

STEPS = [f"Then {number} + {number} = {2 * number} apples are in the basket." for number in range(40)]


class RowCounter:
    """Counts the tokens that go through a module."""

    def __init__(self, module: nn.Module) -> None:
        self.rows = 0
        module.register_forward_pre_hook(self._count)

    def _count(self, module: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        self.rows += inputs[0].flatten(0, -2).shape[0]


@pytest.mark.parametrize("options", [{}, {"quantize": "int8"}, {"attention": "eager"}], ids=str)
def test_the_last_block_computes_what_is_read(checkpoint: Path, options: dict[str, Any]) -> None:
    scorer = load_local(checkpoint, **options)
    first, *_, last = vars(scorer.engine.backbone)["_modules"]["layers"]
    before, after = RowCounter(first.mlp), RowCounter(last.mlp.block)
    prompt = scorer.family.render(scorer.tokenizer, "How many apples are there?", STEPS)
    scorer.engine.scores([prompt])
    assert before.rows == len(prompt.ids)
    assert after.rows < before.rows / 5
    assert after.rows >= len(STEPS)


@pytest.mark.parametrize("budget", [16, 40, 512])
@pytest.mark.parametrize("steps", [STEPS, STEPS[:1], ["a"] * 30], ids=["many", "one", "short"])
def test_scores_are_those_of_transformers(checkpoint: Path, steps: list[str], budget: int) -> None:
    """With small packs, some have no read at all, and some are little more than reads."""
    scorer = load_local(checkpoint)
    scorer.engine.budget = budget
    prompt = scorer.family.render(scorer.tokenizer, "How many apples are there?", steps)
    (found,) = scorer.engine.scores([prompt])
    assert found.tolist() == pytest.approx(Reference(checkpoint).scores(prompt), abs=1e-5)


def test_a_prompt_that_is_read_everywhere(checkpoint: Path) -> None:
    scorer = load_local(checkpoint)
    rendered = scorer.family.render(scorer.tokenizer, "How many?", STEPS[:3])
    everywhere = Prompt(rendered.ids, tuple(range(len(rendered.ids))), 0)
    (found,) = scorer.engine.scores([everywhere])
    (few,) = scorer.engine.scores([rendered])
    assert found[list(rendered.reads)].tolist() == pytest.approx(few.tolist(), abs=1e-5)


def test_other_threads_and_other_forward_passes_compute_everything() -> None:
    block = LastFeedForward(nn.Linear(4, 4))
    inputs = torch.randn(1, 6, 4)
    expected = block.block(inputs)
    found: list[torch.Tensor] = []
    with reading_only(torch.tensor([1])):
        thread = threading.Thread(target=lambda: found.append(block(inputs)))
        thread.start()
        thread.join()
        few = block(inputs)
    assert torch.equal(found[0], expected)
    assert torch.equal(block(inputs), expected)
    torch.testing.assert_close(few[0, 1], expected[0, 1])
    assert not few[0, [0, 2, 3, 4, 5]].any()
    with pytest.raises(ValueError, match="stop"), reading_only(torch.tensor([1])):
        raise ValueError("stop")
    assert torch.equal(block(inputs), expected), "an error ends it, too"


def test_a_block_that_nobody_reads_is_not_computed() -> None:
    block = LastFeedForward(nn.Linear(4, 4))
    counter = RowCounter(block.block)
    with reading_only(torch.empty(0, dtype=torch.long)):
        assert not block(torch.randn(1, MIN_ROWS, 4)).any()
    assert counter.rows == 0


def test_only_gated_blocks_are_replaced_and_only_once(checkpoint: Path) -> None:
    backbone: Any = load_local(checkpoint).engine.backbone
    before = backbone.layers[-1].mlp
    leave_out_unread_rows(backbone)
    assert backbone.layers[-1].mlp is before
    assert isinstance(before, LastFeedForward)
    assert not isinstance(backbone.layers[0].mlp, LastFeedForward)
    other = nn.Module()
    other.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2)])
    leave_out_unread_rows(other)
    assert not [module for module in other.modules() if isinstance(module, LastFeedForward)]
