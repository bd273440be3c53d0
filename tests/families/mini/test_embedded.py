"""The embedded model: it is included, fast, an ordinary checkpoint, and better than chance."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import surefoot
from surefoot.cli import score as score_command
from surefoot.cli.main import main
from surefoot.errors import CalibrationError
from surefoot.families import find_models
from surefoot.families import mini as package
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

FOUR_STEPS = [
    "The rolls bring 12 * 2 = 24 dollars.",
    "The loaves bring 5 * 4 = 20 dollars.",
    "Together that is 24 + 20 = 44 dollars.",
    "After paying for the flour she has 44 - 9 = 35 dollars left. The answer is 35.",
]
BAKER = "A baker sells 12 rolls at $2 each and 5 loaves at $4 each. She spends $9 on flour. What is left?"


def test_it_is_the_default_model(mini: surefoot.Scorer) -> None:
    assert mini.name == "mini"
    assert mini.family.name == "mini"
    assert mini.scale == "probability"
    assert surefoot.load("mini").fingerprint == mini.fingerprint


def test_a_folder_of_that_name_does_not_replace_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_qwen_checkpoint(tmp_path / "mini")
    monkeypatch.chdir(tmp_path)
    assert load_local("mini").family.name == "mini"
    assert load_local("./mini").family.name == "qwen"


def test_its_calibration_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mini: surefoot.Scorer) -> None:
    """Platt scaling: the file has the slope and the bias. A file or folder of the name `mini` does not replace it."""
    (tmp_path / "mini").write_text("not a calibration")
    monkeypatch.chdir(tmp_path)
    found = surefoot.load("mini", calibration="mini").score(BAKER, FOUR_STEPS)
    raw = mini.score(BAKER, FOUR_STEPS)
    given = json.loads((package.FOLDER / "calibration.json").read_text())["parameters"]
    for step, before in zip(found.steps, raw.steps, strict=True):
        assert step.score is not None
        assert before.score is not None
        assert step.raw == pytest.approx(before.score, abs=1e-6)
        logit = given["slope"] * math.log(before.score / (1 - before.score)) + given["bias"]
        assert step.score == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)
    with pytest.raises(CalibrationError, match="Cannot read ./mini as a calibration"):
        surefoot.load("mini", calibration="./mini")


def test_the_command_line_knows_its_calibration(capsys: pytest.CaptureFixture[str]) -> None:
    solution = "\n".join(FOUR_STEPS)
    call = ["score", "--question", BAKER, "--solution", solution, "--split", "lines", "--json", "--calibration", "mini"]
    assert main(call) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["calibration"].startswith("temperature-")
    assert main([*call, "--quantize", "int8"]) == 2
    assert "depends on dtype and quantization" in capsys.readouterr().err


def test_the_card_names_the_threshold_of_calibrated_scores() -> None:
    """The calibrated value of 0.5, by the formula of Platt scaling."""
    given = json.loads((package.FOLDER / "calibration.json").read_text())["parameters"]
    threshold = 1 / (1 + math.exp(-given["bias"]))
    assert f"`threshold={threshold:.2f}`" in (package.FOLDER / "README.md").read_text()


def test_the_catalog_has_its_size() -> None:
    (row,) = find_models("mini")
    config = json.loads((package.FOLDER / "config.json").read_text())
    shape = (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"])
    assert (row.size.hidden, row.size.inner, row.size.layers) == shape
    assert row.size.vocabulary == pytest.approx(config["vocab_size"], rel=0.02)
    assert find_models("./mini") == ()


def test_it_is_small() -> None:
    """`bench/mini.py` measures its speed: a time limit here fails on a busy machine."""
    assert sum(file.stat().st_size for file in package.FOLDER.iterdir() if file.is_file()) < 55e6


def test_what_is_said_about_its_length_agrees(mini: surefoot.Scorer, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((package.FOLDER / "config.json").read_text())
    (row,) = find_models("mini")
    assert row.context == config["trained_tokens"] == mini.info["trained_tokens"] == 768
    assert mini.max_tokens == mini.info["max_tokens"] == config["max_position_embeddings"] == 8192
    assert main(["models", "--family", "mini", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["context"] == 768
    assert main(["check", "mini"]) == 0
    assert "prompts of up to 8192 tokens, trained on up to 768." in capsys.readouterr().out
    assert "prompts of up to 768 tokens and accepts 8,192" in (package.FOLDER / "README.md").read_text()


def test_a_prompt_longer_than_those_in_training_gets_a_warning(mini: surefoot.Scorer) -> None:
    steps = ["We count."]
    while mini.pipeline.prepare([("How many?", steps)])[0].tokens < 769:  # type: ignore[union-attr]
        steps.append("We count.")
    short, long = mini.score_many([("How many?", steps[:-1]), ("How many?", steps)])
    assert short.tokens <= 768 < long.tokens
    assert short.warnings == ()
    assert long.warnings == (
        f"The prompt has {long.tokens} tokens, and the model was trained on at most 768. Scores of later steps are "
        "less reliable.",
    )
    assert long.status == "scored"
    (cut,) = load_local("mini", max_tokens=100).score_many([("How many?", steps)])
    assert (cut.status, cut.warnings) == ("partial", ())


ROOT = Path(__file__).parents[3]
FALSE = ("18 + 36 = 64", "2 + 3 = 6")
"""The false calculations in our examples."""


def documented_examples() -> list[tuple[str, str | list[str]]]:
    """Every question and solution that the documentation and the help pass to `surefoot score` or to a service."""
    found: list[tuple[str, str | list[str]]] = []
    for file in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "examples/demo.py",
        Path(score_command.__file__),
    ]:
        text = file.read_text()
        found += re.findall(r'--question "([^"]+)"\s+--solution "([^"]+\w[^"]*)"', text)
        for body in re.findall(r"-d '(\{[^']*\})'", text):
            found += [(item["question"], item["steps"]) for item in json.loads(body).get("items", [])]
    return found


def test_it_calls_no_correct_example_of_the_documentation_wrong(mini: surefoot.Scorer) -> None:
    examples = documented_examples()
    assert len(examples) >= 6
    assert any(isinstance(solution, list) for _, solution in examples), "the request to the service"
    for question, solution in examples:
        wrong = any(each in str(solution) for each in FALSE)
        assert (mini.score(question, solution).first_error() != -1) is wrong, (question, solution)


def test_the_model_card_says_what_it_makes_of_bare_sums(mini: surefoot.Scorer) -> None:
    """A weakness, stated plainly. If a new checkpoint mends it, the card has to change."""
    card = " ".join((package.FOLDER / "README.md").read_text().split())
    for question, step, said in (
        ("What is 2 + 2?", "2 + 2 = 4", "at 0.39, below the threshold"),
        ("What is 12 * 13?", "12 * 13 = 156", "at 0.27"),
        ("What is 2 + 2?", "2 + 2 = 5", "`2 + 2 = 5` gets 0.01"),
    ):
        found = mini.score(question, [step]).final
        assert found is not None
        assert f"{found:.2f}" in said
        assert said in card


def test_alone_or_together(mini: surefoot.Scorer) -> None:
    items = [(question, [*steps[:at], wrong]) for question, steps, at, wrong in SPOILED]
    together = mini.score_many(items)
    for item, result in zip(items[::3], together[::3], strict=True):
        assert mini.score(*item).step_scores == pytest.approx(result.step_scores, abs=1e-5)


SPOILED: list[tuple[str, list[str], int, str]] = [
    (BAKER, FOUR_STEPS, 0, "The rolls bring 12 * 2 = 26 dollars."),
    (BAKER, FOUR_STEPS, 1, "The loaves bring 5 * 4 = 25 dollars."),
    (BAKER, FOUR_STEPS, 3, "After paying for the flour she has 44 + 9 = 53 dollars left. The answer is 53."),
    (
        "Tom has 3 boxes with 8 pencils each. He gives 5 pencils to his sister. How many pencils does he have?",
        ["There are 3 * 8 = 24 pencils in the boxes.", "After giving 5 away he has 24 - 5 = 19 pencils."],
        0,
        "There are 3 + 8 = 11 pencils in the boxes.",
    ),
    (
        "Tom has 3 boxes with 8 pencils each. He gives 5 pencils to his sister. How many pencils does he have?",
        ["There are 3 * 8 = 24 pencils in the boxes.", "After giving 5 away he has 24 - 5 = 19 pencils."],
        1,
        "After giving 5 away he has 24 - 5 = 18 pencils.",
    ),
    (
        "A train travels at 60 miles per hour for 3 hours, then at 40 miles per hour for 2 hours. How far does it go?",
        [
            "First it goes 60 * 3 = 180 miles.",
            "Then it goes 40 * 2 = 80 miles.",
            "In all it goes 180 + 80 = 260 miles.",
        ],
        2,
        "In all it goes 180 - 80 = 100 miles.",
    ),
    (
        "Lisa reads 20 pages a day from Monday to Friday and 35 pages on Saturday. How many pages does she read?",
        ["From Monday to Friday she reads 20 * 5 = 100 pages.", "In all she reads 100 + 35 = 135 pages."],
        0,
        "From Monday to Friday she reads 20 * 6 = 120 pages.",
    ),
    (
        "Lisa reads 20 pages a day from Monday to Friday and 35 pages on Saturday. How many pages does she read?",
        ["From Monday to Friday she reads 20 * 5 = 100 pages.", "In all she reads 100 + 35 = 135 pages."],
        1,
        "In all she reads 100 + 35 = 145 pages.",
    ),
    (
        "A shirt costs $40. It is sold at 25% off. What do 3 shirts cost?",
        [
            "The discount is 40 * 0.25 = 10 dollars.",
            "A shirt costs 40 - 10 = 30 dollars.",
            "3 shirts cost 3 * 30 = 90.",
        ],
        1,
        "A shirt costs 40 + 10 = 50 dollars.",
    ),
    (
        "A shirt costs $40. It is sold at 25% off. What do 3 shirts cost?",
        [
            "The discount is 40 * 0.25 = 10 dollars.",
            "A shirt costs 40 - 10 = 30 dollars.",
            "3 shirts cost 3 * 30 = 90.",
        ],
        0,
        "The discount is 40 * 0.25 = 15 dollars.",
    ),
    (
        "Anna is 12 years old. Her brother is twice as old. How old will he be in 5 years?",
        ["Her brother is 2 * 12 = 24 years old.", "In 5 years he will be 24 + 5 = 29 years old."],
        0,
        "Her brother is 12 / 2 = 6 years old.",
    ),
    (
        "Anna is 12 years old. Her brother is twice as old. How old will he be in 5 years?",
        ["Her brother is 2 * 12 = 24 years old.", "In 5 years he will be 24 + 5 = 29 years old."],
        1,
        "In 5 years he will be 24 - 5 = 19 years old.",
    ),
]


def test_it_prefers_correct_steps(mini: surefoot.Scorer) -> None:
    """Written for this test, not part of any training data. It may miss an error, but must beat chance clearly."""
    right = mini.score_many([(question, steps[: at + 1]) for question, steps, at, _ in SPOILED])
    wrong = mini.score_many([(question, [*steps[:at], bad]) for question, steps, at, bad in SPOILED])
    gaps = [(a.final or 0.0) - (b.final or 0.0) for a, b in zip(right, wrong, strict=True)]
    assert sum(gap > 0 for gap in gaps) >= len(gaps) - 2, gaps
    assert all(gap > 0.2 for gap, (*_, bad) in zip(gaps, SPOILED, strict=True) if "26" in bad or "18 pencils" in bad)


def test_the_command_line_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--question", BAKER, "--solution", "\n".join(FOUR_STEPS), "--json"]) == 0
    assert '"model": "mini"' in capsys.readouterr().out
    assert main(["models"]) == 0
    assert any(line.startswith("  mini ") for line in capsys.readouterr().out.splitlines())
