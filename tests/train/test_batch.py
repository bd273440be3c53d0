"""Batches: what they hold, in which order, and what they leave out."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch

from surefoot.errors import InputError
from surefoot.family import FAMILIES, TextEncoder
from surefoot.family.mini import STEP
from surefoot.testing import byte_tokenizer_json
from surefoot.train.batch import Encoded, Mixture, Shape, collate, draw, encode, plan
from surefoot.train.example import Example, from_label

MINI = FAMILIES["mini"]


@pytest.fixture(scope="module")
def bytes_encoder() -> TextEncoder:
    return TextEncoder(json.loads(byte_tokenizer_json(*MINI.own_tokens)))


def some(count: int, wrong: int, source: str, length: int = 10) -> list[Encoded]:
    return [Encoded((1,) * length, (length - 1,), (float(at >= wrong),), source, at < wrong) for at in range(count)]


def test_an_example_ends_with_its_last_target(bytes_encoder: TextEncoder) -> None:
    encoded, left_out = encode([from_label("qq", ["aa", "bbb", "cc"], 1)], MINI, bytes_encoder, 100)
    assert left_out == 0
    # two of the question, the solution token, then each step and its marker; nothing of the third step
    assert len(encoded[0].ids) == 2 + 1 + 3 + 4
    assert encoded[0].reads == (5, 9)
    assert encoded[0].targets == (1.0, 0.0)
    assert encoded[0].wrong
    assert [encoded[0].ids[at] for at in encoded[0].reads] == [bytes_encoder.token(STEP)] * 2


def test_targets_past_the_limit_are_left_out(bytes_encoder: TextEncoder) -> None:
    example = from_label("qq", ["aa", "bbb"], -1)
    encoded, left_out = encode([example, Example("q", ("a",), (None,))], MINI, bytes_encoder, 9)
    assert [one.reads for one in encoded] == [(5,)]
    assert left_out == 1
    assert encode([example], MINI, bytes_encoder, 5) == ([], 1)


def test_padding_and_places() -> None:
    batch = collate(
        [Encoded((5, 6, 7), (1, 2), (1.0, 0.25), "s", True), Encoded((8, 9), (1,), (0.5,), "s", False)], Shape(64, 4)
    )
    assert batch.ids.tolist() == [[5, 6, 7, 0], [8, 9, 0, 0]]
    assert batch.ids[batch.rows, batch.columns].tolist() == [6, 7, 9]
    assert batch.targets.tolist() == [1.0, 0.25, 0.5]
    assert batch.tokens == 8


def test_fixed_rows_fill_a_batch_up() -> None:
    batch = collate([Encoded((5, 6, 7), (2,), (1.0,), "s", False)], Shape(64, 4, fixed_rows=True))
    assert batch.ids.shape == (16, 4)
    assert batch.rows.tolist() == [0]


def test_a_plan_holds_everything_once_within_the_budget() -> None:
    examples = [Encoded((1,) * (1 + at * 7 % 90), (0,), (1.0,), "s", False) for at in range(500)]
    batches = plan(examples, range(500), Shape(256, 8), seed=0, epoch=0)
    assert sorted(at for batch in batches for at in batch) == list(range(500))
    for batch in batches:
        length = max(-(-len(examples[at].ids) // 8) * 8 for at in batch)
        assert len(batch) * length <= 256
    waste = sum(len(b) * max(len(examples[at].ids) for at in b) for b in batches) / sum(len(e.ids) for e in examples)
    assert waste < 1.15
    assert batches == plan(examples, range(500), Shape(256, 8), seed=0, epoch=0)
    assert batches != plan(examples, range(500), Shape(256, 8), seed=0, epoch=1)


def test_an_example_longer_than_the_budget_stands_alone() -> None:
    examples = [Encoded((1,) * 100, (0,), (1.0,), "s", False)] * 2
    assert sorted(plan(examples, [0, 1], Shape(64, 8), 0, 0)) == [[0], [1]]


def test_weights_say_how_often() -> None:
    examples = some(100, 10, "a") + some(100, 10, "b")
    drawn = Counter(draw(examples, Mixture({"a": 0.5, "b": 2.0}), 0, 0))
    assert sum(count for at, count in drawn.items() if at < 100) == 50
    assert {count for at, count in drawn.items() if at >= 100} == {2}


def test_wrong_examples_can_be_balanced_but_not_for_ever() -> None:
    examples = some(100, 20, "a") + some(100, 5, "b")
    drawn = draw(examples, Mixture({}, wrong_share=0.5, most_repeats=4), 0, 0)
    counts = Counter((examples[at].source, examples[at].wrong) for at in drawn)
    assert counts == {("a", False): 50, ("a", True): 50, ("b", False): 50, ("b", True): 20}
    assert max(Counter(drawn).values()) <= 4


def test_the_seed_and_the_epoch_decide() -> None:
    examples = some(100, 20, "a")
    mixture = Mixture({}, wrong_share=0.3)
    assert draw(examples, mixture, 1, 2) == draw(examples, mixture, 1, 2)
    assert draw(examples, mixture, 1, 2) != draw(examples, mixture, 1, 3)
    assert draw(examples, mixture, 1, 2) != draw(examples, mixture, 2, 2)


def test_a_weight_for_nothing_is_a_mistake() -> None:
    with pytest.raises(InputError, match="weight is given for typo"):
        draw(some(3, 1, "a"), Mixture({"typo": 2.0}), 0, 0)


def test_collated_ids_are_what_was_encoded(bytes_encoder: TextEncoder) -> None:
    encoded, _ = encode([from_label("q", ["step"], 0)], MINI, bytes_encoder, 100)
    batch = collate(encoded, Shape(64, 16))
    assert torch.equal(batch.ids[0, : len(encoded[0].ids)], torch.tensor(encoded[0].ids))
