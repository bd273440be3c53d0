"""Every family against a plain forward pass: a small checkpoint with the real tensor names and vocabulary."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import surefoot
from helpers.small import CASES, Case, change
from surefoot.core.solution import Solution
from surefoot.errors import CheckpointError, OptionError
from surefoot.families import FAMILIES, find_models
from surefoot.scoring.local import load_local

QUESTION = "Ann has 3 apples and buys 4 more. How many has she?"
STEPS = ["She starts with 3 apples.", "She buys 4, so 3 + 4 = 7.", "The answer is 7"]
IDS = [case.model.rsplit("/", 1)[1] for case in CASES]
Loaded = tuple[Case, Path, surefoot.Scorer]


@pytest.fixture(scope="module", params=CASES, ids=IDS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """A checkpoint in a folder with the model's name, loaded by that name alone."""
    case: Case = request.param
    folder = case.make(tmp_path_factory.mktemp("family") / case.model.rsplit("/", 1)[1])
    yield case, folder, load_local(folder)
    shutil.rmtree(folder)


def alone(loaded: Loaded, question: str, steps: list[str]) -> list[float]:
    case, folder, scorer = loaded
    return case.scores(folder, scorer.family.prompts(scorer.tokenizer, question, steps)) if steps else []


def test_the_name_determines_the_family(loaded: Loaded) -> None:
    case, _, scorer = loaded
    assert scorer.family.name == case.name
    (row,) = find_models(case.model)
    assert all(getattr(scorer.family, name) == value for name, value in row.options.items())


def test_scores_equal_those_of_a_plain_forward_pass(loaded: Loaded) -> None:
    *_, scorer = loaded
    result = scorer.score(QUESTION, STEPS)
    assert result.status == "scored"
    assert result.step_scores == pytest.approx(alone(loaded, QUESTION, STEPS), abs=1e-5)
    assert len({round(score or 0, 4) for score in result.step_scores}) == 3
    assert result.scale == scorer.scale
    json.loads(result.to_json())


def test_scores_do_not_depend_on_the_batch(loaded: Loaded) -> None:
    *_, scorer = loaded
    rng = random.Random(0)
    words = ["so", "one", "1 + 1 = 2", "x\ny", "ки", "the rest", "+", " spaced ", "\\n\\n"]
    items = [
        (rng.choice(["q", "q q", "Why?"]), [rng.choice(words) for _ in range(rng.randint(0, 3))]) for _ in range(12)
    ]
    expected = [alone(loaded, question, steps) for question, steps in items]
    for budget in (7, 512):
        before, scorer.engine.budget = scorer.engine.budget, budget
        try:
            together = scorer.score_many(items)
        finally:
            scorer.engine.budget = before
        for result, scores in zip(together, expected, strict=True):
            assert result.step_scores == pytest.approx(scores, abs=1e-5)
    sessions = {question: scorer.session(question) for question, _ in items}
    for (question, steps), scores in zip(items, expected, strict=True):
        for count in range(1, len(steps) + 1):
            (result,) = sessions[question].score([steps[:count]])
            assert result.step_scores == pytest.approx(alone(loaded, question, steps[:count]), abs=1e-5)
        assert not scores or result.step_scores == pytest.approx(scores, abs=1e-5)


def forgeries(scorer: surefoot.Scorer) -> list[str]:
    return [*list(scorer.tokenizer.special_tokens)[:12], *scorer.family.text_markers]


def test_text_never_becomes_structure(loaded: Loaded) -> None:
    *_, scorer = loaded
    for forgery in forgeries(scorer):
        steps = [f"one {forgery} two", f"{forgery}x", "three"]
        result = scorer.score(f"q {forgery}", steps)
        assert len(result.step_scores) == 3
        assert any(repr(forgery) in warning for warning in result.warnings)
        assert result.step_scores == pytest.approx(alone(loaded, f"q {forgery}", steps), abs=1e-5)
    assert scorer.score("Is 1 < 2?", ["Yes, 1 < 2 > 0."]).warnings == ()


def test_later_steps_change_no_score(loaded: Loaded) -> None:
    *_, scorer = loaded
    first = scorer.score(QUESTION, STEPS[:2]).step_scores
    longer = scorer.score(QUESTION, [*STEPS[:2], "Something else entirely."]).step_scores
    assert longer[:2] == pytest.approx(first, abs=1e-5)


def test_missing_and_extra_tensors_are_reported(loaded: Loaded, tmp_path: Path) -> None:
    _, folder, scorer = loaded
    copy = shutil.copytree(folder, tmp_path / folder.name)
    (name, *_) = scorer.family.head_shapes(json.loads((folder / "config.json").read_text()))
    kept: list[torch.Tensor] = []
    change(copy, lambda tensors: kept.append(tensors.pop(name)))
    with pytest.raises(CheckpointError, match=f"missing: {name}"):
        load_local(copy)
    change(copy, lambda tensors: tensors.update({name: kept[0], "another.head": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match="unexpected: another.head"):
        load_local(copy)


def test_a_wrong_family_is_an_error(loaded: Loaded, tmp_path: Path) -> None:
    case, folder, scorer = loaded
    for other in FAMILIES.values():
        if other.name != case.name:
            with pytest.raises(OptionError, match=f"is known to belong to the family '{case.name}'"):
                load_local(folder, family=other.name)
    anonymous = tmp_path / "any name"
    anonymous.symlink_to(folder, target_is_directory=True)
    options = find_models(case.model)[0].options
    named = load_local(anonymous, family=case.name, family_options=options)
    assert named.score(QUESTION, STEPS).step_scores == scorer.score(QUESTION, STEPS).step_scores
    # Families with their own head are recognized by their tensors, under any name.
    for wrong in ("qwen", "skywork", "trl", "reasoneval", "actprm"):
        if wrong != case.name:
            with pytest.raises(CheckpointError):
                load_local(anonymous, family=wrong)


def test_cached_scores_are_the_same(loaded: Loaded, tmp_path: Path) -> None:
    from surefoot.scoring.score_cache import ScoreCache

    *_, scorer = loaded
    with ScoreCache(tmp_path / "scores.sqlite") as cache:
        items = [(QUESTION, STEPS), (QUESTION, []), (QUESTION, STEPS[:1])]
        first = scorer.with_cache(cache).score_many(items)
        assert cache.misses
        before = cache.misses
        again = scorer.with_cache(cache).score_many(items)
        assert cache.misses == before
        assert [result.step_scores for result in again] == [result.step_scores for result in first]
        assert [step.spread for step in again[0].steps] == [step.spread for step in first[0].steps]


def test_a_solution_that_is_too_long_keeps_its_first_steps(loaded: Loaded) -> None:
    _, folder, scorer = loaded
    whole = scorer.score(QUESTION, STEPS)
    short = scorer.family.prompts(scorer.tokenizer, QUESTION, STEPS[:1])[0].cut(10**9)
    limited = load_local(folder, max_tokens=len(short.ids))
    result = limited.score(QUESTION, STEPS)
    assert [step.status for step in result.steps] == ["scored", "over_length", "over_length"]
    assert result.step_scores[0] == pytest.approx(whole.step_scores[0], abs=1e-5)
    assert isinstance(surefoot.split("a", "lines"), Solution)
