"""Two engines for the same prompts, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

import surefoot
from surefoot.core.prompt import Prompt
from surefoot.scoring.engines import joined_packs
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint


def test_two_engines_yield_between_the_packs_of_both(scorer: surefoot.Scorer, tmp_path: Path) -> None:
    other = load_local(write_qwen_checkpoint(tmp_path / "other", seed=5))
    prompts = [
        *(scorer.family.render(scorer.tokenizer, f"What is {n}?", [f"It is {n}."] * 5 * n) for n in (1, 8, 3)),
        Prompt((), (), 0),
    ]
    before = [each.engine.budget for each in (scorer, other)]
    scorer.engine.budget = other.engine.budget = 64
    try:
        expected = [each.engine.scores(prompts) for each in (scorer, other)]
        results = list(joined_packs([scorer.engine, other.engine], prompts))
        single = list(scorer.engine.packs(prompts))
    finally:
        scorer.engine.budget, other.engine.budget = before
    assert len(results) == 2 * len(single) > 10
    rows = dict(pair for result in results for pair in result.completed)
    assert sum(len(result.completed) for result in results) == len(rows) == len(prompts)
    for index, columns in enumerate(zip(*expected, strict=True)):
        for number, column in enumerate(columns):
            assert rows[index][:, number].tolist() == pytest.approx(column.tolist(), abs=1e-5)
    # A token counts once. Half a token per pack may be lost by rounding.
    counted = sum(result.tokens for result in results)
    assert 0 <= sum(result.tokens for result in single) - counted <= len(single)
    assert rows[0][:, 0].tolist() != pytest.approx(rows[0][:, 1].tolist(), abs=1e-4)
