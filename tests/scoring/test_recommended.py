"""The makers' aggregation: from the catalog into every result, over HTTP, and into best of N."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.serving import served
from helpers.small import CASES
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.core.aggregation import AGGREGATIONS
from surefoot.display.terminal import show
from surefoot.errors import OptionError
from surefoot.families import FAMILIES, MakersCode, recommended_aggregation, registry, with_options
from surefoot.families.catalog import CATALOG
from surefoot.scoring.local import load_local

QUESTION, STEPS = "How much is 2 + 2?", ["2 + 2 = 4.", "So it is 4."]
ROLLOUTS: list[dict[str, Any]] = [
    {"problem_id": "1", "problem": QUESTION, "steps": STEPS, "is_correct": True},
    {"problem_id": "1", "problem": QUESTION, "steps": ["2 + 2 = 5.", "So it is 5."], "is_correct": False},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (case,) = (case for case in CASES if case.model.endswith("PURE-PRM-7B"))
    return case.make(tmp_path_factory.mktemp("recommended") / "PURE-PRM-7B")


@pytest.fixture
def pure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> surefoot.Scorer:
    """A small model whose row in the catalog names soft_min, whatever the row names now."""
    use_aggregations(monkeypatch, **{"PURE-PRM-7B": "soft_min"})
    return load_local(folder)


def use_aggregations(monkeypatch: pytest.MonkeyPatch, **aggregations: str | None) -> None:
    """Make the catalog name these aggregations, by the names of jinachris' models, and no others."""
    names = {f"jinachris/{name}": aggregation for name, aggregation in aggregations.items()}
    rows = tuple(
        replace(row, makers=MakersCode("a test", names[row.id]) if row.id in names else None) for row in CATALOG
    )
    monkeypatch.setattr(registry, "CATALOG", rows)


def test_the_catalog_names_aggregations_that_exist_and_apply() -> None:
    for row in CATALOG:
        if row.makers is not None and row.makers.aggregation is not None:
            assert row.makers.aggregation in AGGREGATIONS, row.id
            family = with_options(FAMILIES[row.family], row.options)
            assert recommended_aggregation(row.id, family) == row.makers.aggregation


@pytest.mark.parametrize(
    ("model", "family", "found"),
    [
        ("jinachris/PURE-PRM-7B", "trl", "soft_min"),
        ("/models/pure-prm-7b/", "trl", "soft_min"),
        ("axolotl-ai-co/Qwen2.5-Math-PRM-7B", "trl", None),
        # Two models have this name; the family tells them apart.
        ("/models/Qwen2.5-Math-7B-PRM800K", "trl", "min"),
        ("/models/Qwen2.5-Math-7B-PRM800K", "qwen", None),
        ("my/own", "trl", None),
    ],
)
def test_the_row_of_the_model_decides(
    monkeypatch: pytest.MonkeyPatch, model: str, family: str, found: str | None
) -> None:
    use_aggregations(monkeypatch, **{"PURE-PRM-7B": "soft_min", "Qwen2.5-Math-7B-PRM800K": "min"})
    assert recommended_aggregation(model, FAMILIES[family]) == found


def test_an_aggregation_of_probabilities_does_not_apply_to_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    use_aggregations(monkeypatch, **{"PURE-PRM-7B": "product"})
    for margin, found in ((False, "product"), (True, None)):
        family = with_options(FAMILIES["trl"], {"margin": margin})
        assert recommended_aggregation("jinachris/PURE-PRM-7B", family) == found


def test_every_result_names_it(pure: surefoot.Scorer) -> None:
    broken: list[Any] = [(QUESTION, 3), (QUESTION, STEPS)]
    results = [pure.score(QUESTION, STEPS), *pure.score_stream(broken), *pure.session(QUESTION).score([STEPS])]
    assert [result.recommended for result in results] == ["soft_min"] * 4
    scored = results[0]
    assert scored.aggregate() == scored.aggregate("soft_min") != scored.min
    assert f"soft_min {scored.aggregate():.3f}" in repr(scored)
    assert f"soft min {scored.aggregate():.3f}" in show(scored)
    again = surefoot.SolutionScore.from_dict(json.loads(scored.to_json()))
    assert again == scored
    unknown = replace(scored, recommended=None)
    assert unknown.aggregate() == unknown.min
    assert "soft" not in repr(unknown) + show(unknown)


def test_a_service_passes_it_on(pure: surefoot.Scorer) -> None:
    with served([pure]) as (url, _):
        client = surefoot.connect(url)
        assert [card["recommended"] for card in client.models()] == ["soft_min"]
        broken: list[Any] = [(QUESTION, 3), (QUESTION, STEPS)]
        assert [result.recommended for result in client.score_stream(broken)] == ["soft_min"] * 2
        assert evaluate.best_of_n(client, ROLLOUTS, correct_by="label", draws=0).aggregation == "soft_min"


def test_best_of_n_uses_it(pure: surefoot.Scorer) -> None:
    result = evaluate.best_of_n(pure, ROLLOUTS, correct_by="label", draws=0)
    assert (result.aggregation, result.aggregation_reason) == ("soft_min", "makers")
    assert list(result.best) == ["mean", "min", "final", "soft_min"]
    assert (result.to_dict()["aggregation"], result.to_dict()["aggregation_reason"]) == ("soft_min", "makers")
    for text in (str(result), evaluate.report_html(result).replace("&#39;", "'")):
        assert "soft min (the makers' aggregation)" in text
    first, second = (pure.score(row["problem"], row["steps"]).aggregate("soft_min") for row in ROLLOUTS)
    assert first is not None
    assert second is not None
    assert result.best["soft_min"][2].value == float(first > second)


def test_best_of_n_with_another_aggregation(pure: surefoot.Scorer) -> None:
    given = evaluate.best_of_n(pure, ROLLOUTS, aggregation="first", correct_by="label", draws=0)
    assert (given.aggregation, given.aggregation_reason) == ("first", "given")
    assert list(given.best) == ["mean", "min", "final", "first"]
    assert "Aggregation: first (as requested)" in str(given)
    with pytest.raises(OptionError, match="'product' needs probabilities"):
        evaluate.best_of_n(pure, ROLLOUTS, aggregation="product", correct_by="label")
    with pytest.raises(OptionError, match="There is no aggregation 'median'"):
        evaluate.best_of_n(pure, ROLLOUTS, aggregation="median", correct_by="label")


def test_best_of_n_without_a_known_aggregation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only `final` selects the correct solution: it is the most accurate."""
    rows = [row | {"prm": scores} for row, scores in zip(ROLLOUTS, ([0.1, 0.9], [0.9, 0.8]), strict=True)]
    result = evaluate.best_of_n(None, rows, correct_by="label", scores="prm", draws=0)
    assert (result.aggregation, result.aggregation_reason) == ("final", "most accurate")
    assert "Aggregation: final (default: the most accurate on these data)" in str(result)
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["eval", "best-of-n", "--data", str(file), "--scores", "prm", "--correct-by", "label", "--json"]
    assert main([*call, "--aggregation", "clip"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["aggregation"], found["aggregation_reason"]) == ("clip", "given")
    assert "clip" in found["best"]
    # Weights below zero would turn votes around.
    assert "clip" not in found["weighted_vote"]
    assert main([*call, "--aggregation", "median"]) == 2
