"""From a name to a family, and what its scale means for the command line and the benchmarks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.small import CASES
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.core.options import ReadOptions
from surefoot.core.result import SolutionScore, StepScore
from surefoot.display.terminal import show
from surefoot.errors import CheckpointError, LoadError, OptionError
from surefoot.families import FAMILIES, Golden, find_family, find_models, with_options
from surefoot.families.catalog import CATALOG
from surefoot.families.goldens import FILE, find_goldens, read_goldens
from surefoot.scoring.check import check
from surefoot.scoring.local import load_local

QUESTION, STEPS = "How much is 2 + 2?", ["2 + 2 = 4.", "So it is 4."]


def make(model: str, folder: Path) -> Path:
    (case,) = (case for case in CASES if case.model.endswith(model))
    return case.make(folder / model)


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("PURE-PRM-7B", tmp_path_factory.mktemp("known"))


def test_every_row_has_a_valid_family_and_options() -> None:
    for row in CATALOG:
        with_options(FAMILIES[row.family], row.options)
        assert row.bytes(nf4=True) < row.bytes(nf4=False)
    assert len({row.id.lower() for row in CATALOG}) == len(CATALOG)
    # The sizes are the published ones: 7.6 billion weights with the output layer, 15.25 GB of files.
    (seven,) = find_models("Qwen/Qwen2.5-Math-PRM-7B")
    whole = seven.size.linear + 2 * seven.size.embeddings
    assert whole * 2 == pytest.approx(15.23e9, rel=0.01)
    unpublished = {"mini-lm"}  # only `surefoot train` makes such models
    assert {family.name for family in FAMILIES.values()} - unpublished == {row.family for row in CATALOG}


@pytest.mark.parametrize(
    ("model", "architecture", "family", "options"),
    [
        ("Gen-Verse/ReasonFlux-PRM-7B", "Anything", "qwen", {"system_from_template": True}),
        ("axolotl-ai-co/Qwen2.5-Math-PRM-7B", "Qwen2ForTokenClassification", "trl", {"margin": False}),
        ("/models/Qwen2.5-Math-PRM-7B", "Qwen2ForTokenClassification", "trl", {}),
        ("/models/Qwen2.5-Math-PRM-7B/", "Qwen2ForProcessRewardModel", "qwen", {}),
        ("C:\\models\\PURE-PRM-7B", "Qwen2ForTokenClassification", "trl", {"margin": True}),
        ("Qwen2.5-Math-7B-PRM800K", "Qwen2ForProcessRewardModel", "qwen", {}),
        ("Qwen2.5-Math-7B-PRM800K", "Qwen2ForTokenClassification", "trl", {"margin": True}),
        ("openreasoner/math-PSA", "Qwen2ForCausalLM", "math-psa", {}),
        ("my/own", "Qwen2ForPrmModel", "skywork", {}),
        ("my/own", "Qwen2ForEnsemblePRM", "actprm", {}),
        ("my/own", "LlamaForTokenClassification", "trl", {"margin": False}),
    ],
)
def test_the_name_decides_before_the_architecture(
    model: str, architecture: str, family: str, options: dict[str, Any]
) -> None:
    found = find_family([architecture], model=model)
    assert found.name == family
    assert all(getattr(found, name) == value for name, value in options.items())


def test_an_unknown_model_needs_a_family() -> None:
    with pytest.raises(
        CheckpointError, match=r"Qwen2ForCausalLM.*my/own is not in the catalog.*one of: actprm, .*versa"
    ):
        find_family(["Qwen2ForCausalLM"], model="my/own")
    assert find_family(["Qwen2ForCausalLM"], "versa", model="my/own").name == "versa"
    with pytest.raises(OptionError, match="known to belong to the family 'shepherd'"):
        find_family(["MistralForCausalLM"], "llemma", model="peiyi9979/math-shepherd-mistral-7b-prm")
    given = find_family([], model="jinachris/PURE-PRM-7B", options={"separator": "\n\n"})
    assert given == with_options(FAMILIES["trl"], {"separator": "\n\n", "margin": True})


def test_options_reach_the_model(pure: Path) -> None:
    one = load_local(pure)
    other = load_local(pure, family_options={"separator": "\n\n"})
    assert one.score(QUESTION, STEPS).step_scores != other.score(QUESTION, STEPS).step_scores
    assert one.fingerprint != other.fingerprint
    with pytest.raises(OptionError, match="no option 'seperator'"):
        load_local(pure, family_options={"seperator": "\n"})


def test_models_lists_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert all(row.id in text for row in CATALOG)
    assert "about" in text
    assert main(["models", "--json"]) == 0
    rows = {row["id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["Qwen/Qwen2.5-Math-PRM-7B"]["processbench_f1"] == 73.5
    assert rows["PRIME-RL/EurusPRM-Stage2"]["scale"] == "log_ratio"
    assert rows["axolotl-ai-co/Qwen2.5-Math-PRM-7B"]["processbench_f1"] is None
    assert 12e9 < rows["Qwen/Qwen2.5-Math-PRM-7B"]["bf16_bytes_about"] < 16e9


def test_the_command_line_supports_scales_and_options(pure: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["score", "--model", str(pure), "--question", QUESTION, "--solution", "\n".join(STEPS)]
    assert main([*call, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["scale"], row["product"]) == ("margin", None)
    scores = [step["score"] for step in row["steps"]]
    assert row["first_error"] == next((at for at, score in enumerate(scores) if score <= 0), -1)
    assert main([*call, "--json", "--family-option", "margin=false", "--family-option", "separator=###"]) == 0
    assert json.loads(capsys.readouterr().out)["scale"] == "probability"
    assert main(call) == 0
    assert "product" not in capsys.readouterr().out
    assert main([*call, "--family-option", "nonsense=1"]) == 2
    assert "no option 'nonsense'" in capsys.readouterr().err
    assert main([*call, "--family", "skywork"]) == 2
    assert main([*call, "--family-option", "nonsense"]) == 2
    assert "--family-option: 'nonsense' is not NAME=VALUE" in capsys.readouterr().err


def test_check_compares_every_published_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("math-shepherd-mistral-7b-prm", tmp_path)
    assert main(["check", str(folder)]) == 1
    text = capsys.readouterr().out
    assert text.count("DO NOT AGREE") == 2
    assert "0.0240" in text
    scorer = load_local(folder)
    report = check(scorer)
    assert [each.golden.scores[-1] for each in report.comparisons if each.golden] == [0.9957, 0.0240]
    assert not report.passed
    unnamed = check(scorer, "another")
    assert unnamed.passed
    assert unnamed.comparisons[0].golden is None


@pytest.mark.parametrize("golden", read_goldens(FILE), ids=lambda golden: golden.models[0])
def test_published_scores_belong_to_one_model(golden: Golden) -> None:
    (row,) = [row for row in CATALOG if row.id.lower().endswith(golden.models) and row.family == golden.family]
    assert golden in find_goldens(FAMILIES[golden.family], row.id)
    assert golden in find_goldens(FAMILIES[golden.family])
    assert all(golden not in find_goldens(each) for name, each in FAMILIES.items() if name != golden.family)
    assert re.search(r"model card|repository|^[\w-]+/[\w-]+, [\w./-]+", golden.source)
    assert 0 < golden.tolerance < 0.3
    lowest = {"probability": 0, "margin": -1}[with_options(FAMILIES[row.family], row.options).scale]
    assert all(lowest <= score <= 1 for score in golden.scores)
    assert all(text.strip() for text in (golden.question, *golden.steps))


def test_published_scores_are_found_by_name() -> None:
    """The numbers are those of the model cards."""
    (card,) = find_goldens(FAMILIES["qwen"], "/models/Qwen2.5-Math-PRM-7B/")
    assert card.scores == (1.0, 0.1904296875, 0.9765625, 1.0)
    assert find_goldens(FAMILIES["shepherd"], "Qwen/Qwen2.5-Math-PRM-7B") == ()
    assert len(find_goldens(FAMILIES["reasoneval"])) == 2
    (act,) = find_goldens(FAMILIES["actprm"], "sail/ActPRM")
    assert act.scores == (0.9993686676025391, 0.2316841036081314, 0.7311716079711914, 0.8314468264579773)
    assert act.system == "Please reason step by step, and put your final answer within \\boxed{}."
    assert find_goldens(FAMILIES["actprm"], "sail/ActPRM-X") == ()
    assert (act.question, act.steps) == (card.question, card.steps)
    (pure,) = find_goldens(FAMILIES["trl"], "jinachris/PURE-PRM-7B")
    assert pure.scores == (0.796875, 0.185546875, -0.0625, 0.078125)


@pytest.mark.parametrize(
    ("model", "examples", "lowest"),
    [("ryokamoi/Llama-3.1-8B-FoVer-PRM", 8, 0.62109375), ("ryokamoi/Qwen-2.5-7B-FoVer-PRM", 8, 0.65234375)],
)
def test_all_steps_that_fover_published_scores_for(model: str, examples: int, lowest: float) -> None:
    found = [golden for golden in find_goldens(FAMILIES["fover"], model) if "quickstart" in golden.source]
    scores = [score for golden in found for score in golden.scores]
    assert (len(found), len(scores), min(scores)) == (examples, 29, lowest)


def test_check_uses_the_published_system_message(tmp_path: Path) -> None:
    scorer = load_local(make("sail/ActPRM", tmp_path), family_options={"default_system": "Be strict."})
    (golden,) = find_goldens(FAMILIES["actprm"])
    (compared,) = check(scorer).comparisons
    expected = scorer.score(golden.question, golden.steps, ReadOptions(system=golden.system))
    assert compared.golden == golden
    assert compared.example.step_scores == expected.step_scores
    assert compared.example.step_scores != scorer.score(golden.question, golden.steps).step_scores
    (other,) = check(scorer, "another").comparisons
    assert other.example.step_scores == scorer.score(golden.question, golden.steps).step_scores


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.5]}, "4 steps and 1 scores"),
        ({"tolerence": 0.1}, "the fields .*'tolerence'"),
        ({"sytem": "s"}, "the fields .*'sytem'"),
    ],
)
def test_an_invalid_file_of_published_scores_is_reported(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = json.loads(FILE.read_text(encoding="utf-8"))[0]
    file = tmp_path / "goldens.json"
    file.write_text(json.dumps([row | change]))
    with pytest.raises(LoadError, match=f"goldens.json: a row has {message}"):
        read_goldens(file)


def test_benchmarks_use_the_natural_threshold(pure: Path) -> None:
    scorer = load_local(pure)
    rows = [{"problem": QUESTION, "steps": STEPS, "label": -1, "split": "gsm8k"}]
    result = evaluate.processbench(scorer, rows, draws=0)
    assert result.threshold == 0.0
    assert evaluate.processbench(scorer, rows, draws=0, threshold=0.25).threshold == 0.25
    rollouts = [
        {"question": QUESTION, "steps": steps, "ground_truth": "4", "is_correct": True}
        for steps in (STEPS, ["It is \\boxed{4}."])
    ]
    best = evaluate.best_of_n(scorer, rollouts, draws=0, correct_by="label")
    assert set(best.best) - {best.aggregation} <= {"min", "mean", "final"} <= set(best.best)
    assert best.weighted == {}
    assert "not probabilities" in best.notes[-1]
    assert "best by mean" in str(best)


@pytest.mark.parametrize(("scale", "natural"), [("probability", 0.5), ("margin", 0.0), ("log_ratio", 0.0)])
def test_results_of_every_scale(scale: Any, natural: float) -> None:
    def step(score: float | None) -> StepScore:
        return StepScore("a", 0, 1, score, "scored" if score is not None else "over_length", 0)

    result = SolutionScore((step(0.7), step(0.2), step(-0.3)), "m", scale=scale)
    assert result.natural_threshold == natural
    assert result.first_error() == {0.5: 1, 0.0: 2}[natural]
    assert result.first_error(0.1) == 2
    assert result.correct_prefix() == result.correct_prefix(natural)
    assert (result.product is None) == (scale != "probability")
    row = result.to_dict()
    assert row["first_error"] == result.first_error()
    assert row["scale"] == scale
    for shown in (result, SolutionScore((step(None),), "m", scale=scale)):
        assert show(shown, width=80)
    wild = SolutionScore((step(-1234.5), step(99.0)), "m", scale="log_ratio")
    assert "-1234.500000" in show(wild, width=80)
