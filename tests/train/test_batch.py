"""Batches: what they hold, in which order, and what they leave out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from surefoot.errors import InputError
from surefoot.families import FAMILIES, PromptTokenizer
from surefoot.families.mini.family import STEP
from surefoot.testing import byte_tokenizer_json, write_base
from surefoot.train.batch import Encoded, Mixture, Shape, collate, draw, draw_questions, encode, merge, plan
from surefoot.train.example import Example, from_label
from surefoot.train.model import make_trainee

MINI = FAMILIES["mini"]


@pytest.fixture(scope="module")
def bytes_encoder() -> PromptTokenizer:
    return PromptTokenizer(json.loads(byte_tokenizer_json(*MINI.added_tokens)))


def some(count: int, wrong: int, source: str, length: int = 10) -> list[Encoded]:
    return [Encoded((1,) * length, (length - 1,), (float(at >= wrong),), source, at < wrong) for at in range(count)]


def test_an_example_ends_with_its_last_target(bytes_encoder: PromptTokenizer) -> None:
    encoded, left_out = encode([from_label("qq", ["aa", "bbb", "cc"], 1)], MINI, bytes_encoder, 100)
    assert left_out == 0
    # two of the question, the solution token, then each step and its marker; nothing of the third step
    assert len(encoded[0].ids) == 2 + 1 + 3 + 4
    assert encoded[0].reads == (5, 9)
    assert encoded[0].targets == (1.0, 0.0)
    assert encoded[0].wrong
    assert [encoded[0].ids[at] for at in encoded[0].reads] == [bytes_encoder.token(STEP)] * 2


def test_targets_past_the_limit_are_left_out(bytes_encoder: PromptTokenizer) -> None:
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


@pytest.mark.parametrize("draw", [draw, draw_questions])
def test_a_weight_for_nothing_is_a_mistake(draw: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="a weight for typo"):
        draw(some(3, 1, "a"), Mixture({"typo": 2.0}), 0, 0)


def test_collated_ids_are_what_was_encoded(bytes_encoder: PromptTokenizer) -> None:
    encoded, _ = encode([from_label("q", ["step"], 0)], MINI, bytes_encoder, 100)
    batch = collate(encoded, Shape(64, 16))
    assert torch.equal(batch.ids[0, : len(encoded[0].ids)], torch.tensor(encoded[0].ids))


def test_merged_examples_get_the_scores_they_get_alone(tmp_path: Path) -> None:
    trainee = make_trainee(write_base(tmp_path / "base"))
    steps = ["3 * 4 = 12.", "12 + 5 = 17.", "So it is 17."]
    found = [
        from_label("How much is 3 * 4 + 5?", steps, -1),
        from_label("How much is 3 * 4 + 5?", [steps[0], "12 - 5 = 7."], 1),
        from_label("How much is 3 * 4 + 5?", ["3 + 4 = 7."], 0),
        from_label("Another question?", ["It is another."], -1),
    ]
    examples, _ = encode(found, trainee.family, trainee.tokenizer, 500)
    shape = Shape(2048, 16)
    rows = merge(examples, range(4), 500, 0, 0)
    assert sorted(len(row.reads) for row in rows) == [1, 5], "a step that two of them share is read once"
    assert sum(len(row.ids) for row in rows) < sum(len(example.ids) for example in examples)
    with torch.no_grad():
        alone = {
            (example.ids[: read + 1]): float(score)
            for example in examples
            for read, score in zip(example.reads, trainee.model(collate([example], shape)), strict=True)
        }
        together = trainee.model(collate(rows, shape)).tolist()
    paths = [path for row in rows for path in _paths(row)]
    assert together == pytest.approx([alone[path] for path in paths], abs=1e-5)
    targets = [target for row in rows for target in row.targets]
    assert sorted(targets) == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def _paths(row: Encoded) -> list[tuple[int, ...]]:
    """What stands before each place to read, itself included."""
    return [(*_before(row, read), row.ids[read]) for read in row.reads]


def test_tokens_of_correct_solutions_follow_those_they_follow_alone(bytes_encoder: PromptTokenizer) -> None:
    found = [
        from_label("qq", ["a b", "c"], -1),
        from_label("qq", ["a b", "d"], 1),
        from_label("qq", ["a x", "e"], -1),
        from_label("qq", ["f"], 0),
        from_label("other", ["g"], -1),
    ]
    examples, _ = encode(found, MINI, bytes_encoder, 500)
    rows = merge(examples, range(5), 500, 0, 0)
    batch = collate(rows, Shape(2048, 16), language=True)
    assert batch.continuations is not None
    learned = [
        ((*_before(rows[row], column), rows[row].ids[column]), following)
        for row, column, following in batch.continuations.T.tolist()
    ]
    correct = [example for example in examples if not example.wrong]
    expected = {
        (example.ids[:at], example.ids[at]) for example in correct for at in range(example.prefix, len(example.ids))
    }
    assert len(learned) == len(expected), "shared tokens are predicted once"
    assert set(learned) == expected


def test_without_a_language_loss_nothing_is_prepared_for_it() -> None:
    assert collate(some(2, 0, "a"), Shape(64, 16)).continuations is None
    only_wrong = collate(some(2, 2, "a"), Shape(64, 16), language=True).continuations
    assert only_wrong is not None
    assert only_wrong.shape == (3, 0)


def _before(row: Encoded, token: int) -> tuple[int, ...]:
    """What stands before a token of a row."""
    ends = row.tree.ends if row.tree else (len(row.ids),) * len(row.ids)
    return tuple(row.ids[at] for at in range(token) if token < ends[at])


def test_rows_keep_to_the_limit() -> None:
    examples = [Encoded((1, 2, *range(at, at + 10)), (5,), (1.0,), "s", False, 2) for at in range(10, 60, 10)]
    rows = merge(examples, range(5), 24, 0, 0)
    assert sorted(len(row.ids) for row in rows) == [12, 22, 22]


def test_questions_bring_as_many_right_solutions_as_wrong_ones() -> None:
    kinds = [("a", True), ("a", True), *[("a", False)] * 8, *[("b", False)] * 5, ("c", True)]
    examples = [
        Encoded((ord(name), at), (1,), (0.0 if wrong else 1.0,), "s", wrong, 1)
        for at, (name, wrong) in enumerate(kinds)
    ]
    (drawn,) = draw_questions(examples, Mixture({"s": 1.0}), 0, 0)
    assert Counter(kinds[at] for at in drawn) == {("a", True): 2, ("a", False): 2, ("b", False): 1, ("c", True): 1}
    first, second = draw_questions(examples, Mixture({"s": 2.0}), 0, 0)
    assert len(first) == len(second) == 6
    assert first != second, "other right solutions the second time"
    half = [
        at for epoch in range(40) for layer in draw_questions(examples, Mixture({"s": 0.5}), 0, epoch) for at in layer
    ]
    assert 80 <= len(half) <= 160
