"""Comparisons: paired statistics by an independent calculation, disagreements, costs, the command and the page."""

from __future__ import annotations

import json
import shlex
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401
from helpers.serving import served
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.comparison import mcnemar

if TYPE_CHECKING:
    from playwright.sync_api import Page

NASTY = "<script>document.title='taken'</script>&amp; <extra_0>"


def rows(count: int = 80) -> list[dict[str, Any]]:
    """Solutions with the scores of two models, of which the second sees more errors."""
    generator = np.random.default_rng(7)
    found = []
    for number in range(count):
        length = 2 + number % 3
        label = -1 if number % 3 == 0 else int(generator.integers(0, length))
        row: dict[str, Any] = {
            "id": f"x-{number}",
            "problem": f"Problem {number}: how many?",
            "steps": [f"Step {at} of solution {number}." for at in range(length)],
            "label": label,
            "split": ("gsm8k", "math")[number % 2],
        }
        for name, sight in (("weak", 0.4), ("strong", 0.8)):
            low = [(at == label and generator.random() < sight) or generator.random() < 0.08 for at in range(length)]
            row[name] = [round(float(generator.beta(2, 6) if bad else generator.beta(6, 2)), 2) for bad in low]
        found.append(row)
    found[4]["weak"] = [None] * len(found[4]["steps"])
    found[10]["strong"][0] = None
    found[8] |= {
        "problem": NASTY,
        "steps": [NASTY, " ", "end"],
        "label": 2,
        "weak": [0.9, None, 0.1],
        "strong": [0.9, None, 0.9],
    }
    return found


@pytest.fixture(scope="module")
def comparison() -> evaluate.Comparison:
    return evaluate.compare([], rows(), scores=["weak", "strong"], draws=120, seed=3)


# --- an independent calculation ------------------------------------------------------------------------------------


def predict(row: dict[str, Any], name: str) -> int | None:
    for at, score in enumerate(row[name]):
        if row["steps"][at].strip():
            if score is None:
                return None
            if score <= 0.5:
                return at
    return -1


def measure(sample: list[dict[str, Any]], name: str) -> dict[str, float]:
    """The metrics of one scorer on the solutions that both have a prediction for."""
    both = [row for row in sample if predict(row, "weak") is not None and predict(row, "strong") is not None]
    wrong = [predict(row, name) == row["label"] for row in both if row["label"] != -1]
    right = [predict(row, name) == row["label"] for row in both if row["label"] == -1]
    error, correct = float(np.mean(wrong)), float(np.mean(right))
    return {"error": error, "correct": correct, "F1": 2 * error * correct / (error + correct)}


def area(sample: list[dict[str, Any]], name: str) -> float:
    """The share of pairs of a correct and an incorrect step in the right order, over steps that both scored."""
    good: list[float] = []
    bad: list[float] = []
    for row in sample:
        last = len(row["steps"]) - 1 if row["label"] == -1 else row["label"]
        for at in range(last + 1):
            if row["weak"][at] is not None and row["strong"][at] is not None:
                (bad if at == row["label"] else good).append(row[name][at])
    order = np.sign(np.subtract.outer(good, bad))
    return float((order + 1).mean() / 2)


def test_paired_intervals_equal_an_independent_computation(comparison: evaluate.Comparison) -> None:
    """Resample the solutions of each split as the documentation says, and compute everything again from the data."""
    data = rows()
    splits = {name: [row for row in data if row["split"] == name] for name in ("gsm8k", "math")}
    generators = {name: np.random.default_rng([3, crc32(name.encode())]) for name in splits}
    drawn: dict[tuple[str, str], list[float]] = {}
    for _ in range(120):
        samples = {}
        for name, members in splits.items():
            picks = generators[name].integers(0, len(members), len(members))
            samples[name] = [members[pick] for pick in picks]
        measured = {name: [measure(sample, each) for each in ("weak", "strong")] for name, sample in samples.items()}
        for metric in ("F1", "error", "correct"):
            for name, (first, second) in measured.items():
                drawn.setdefault((metric, name), []).append(second[metric] - first[metric])
            mean = np.mean([second[metric] - first[metric] for first, second in measured.values()])
            drawn.setdefault((metric, "average"), []).append(float(mean))
        for name, sample in {**samples, "average": samples["gsm8k"] + samples["math"]}.items():
            drawn.setdefault(("step AUC", name), []).append(area(sample, "strong") - area(sample, "weak"))
    assert len(drawn) == 12 == len(comparison.pair().differences)
    for (metric, group), values in drawn.items():
        found = comparison.pair().find(metric, group)
        assert found.interval is not None
        assert tuple(found.interval) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=1e-12), (metric, group)


def test_differences_and_discordant_pairs(comparison: evaluate.Comparison) -> None:
    data = [row for row in rows() if row["split"] == "gsm8k"]
    first, second = measure(data, "weak"), measure(data, "strong")
    pair = comparison.pair()
    for metric in ("F1", "error", "correct"):
        found = pair.find(metric, "gsm8k")
        assert (found.first, found.second) == pytest.approx((first[metric], second[metric]))
        assert found.value == pytest.approx(second[metric] - first[metric])
    hits = [
        (predict(row, "weak") == row["label"], predict(row, "strong") == row["label"])
        for row in data
        if row["label"] != -1 and None not in (predict(row, "weak"), predict(row, "strong"))
    ]
    found = pair.find("error", "gsm8k")
    assert (found.won, found.lost, found.total) == (hits.count((False, True)), hits.count((True, False)), len(hits))
    assert found.p_value == pytest.approx(mcnemar(found.won or 0, found.lost or 0))
    assert pair.differences[0].group == "average"
    assert pair.find("F1").p_value is None, "F1 is not an accuracy"


# The binomial distribution by hand: 2 * P(X <= min) for X ~ B(won + lost, 1/2), at most 1.
@pytest.mark.parametrize(
    ("won", "lost", "p_value"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (0, 6, 2 / 64), (8, 2, 112 / 1024), (5, 5, 1.0), (2000, 1500, None)],
)
def test_mcnemar(won: int, lost: int, p_value: float | None) -> None:
    found = mcnemar(won, lost)
    if p_value is None:  # too many for floating-point factorials; a normal approximation gives 8.4 standard errors
        assert 0 < found < 1e-15
    else:
        assert found == pytest.approx(p_value)


def test_no_interval_where_nothing_differs() -> None:
    row = {"problem": "p", "steps": ["a"], "a": [0.9], "b": [0.8]}
    found = evaluate.compare([], [row | {"label": -1}, row | {"label": 0}], scores=["a", "b"]).pair().find("error")
    assert (found.value, found.interval, found.better, found.p_value) == (0.0, None, None, 1.0)


# --- what is never counted -----------------------------------------------------------------------------------------


def test_an_unscored_solution_is_in_no_difference_and_never_right(comparison: evaluate.Comparison) -> None:
    agreement = comparison.pair().agreement
    assert agreement.excluded == 2
    assert agreement.both + agreement.first_only + agreement.second_only + agreement.neither == 78
    assert not comparison.complete
    unscored = [each for each in comparison.disagreements if None in each.predicted_indices]
    assert {each.id for each in unscored} == {"x-4", "x-10"}
    for each in unscored:
        assert each.size is None
        assert each.right[each.predicted_indices.index(None)] is None
    assert list(comparison.disagreements[-2:]) == unscored
    assert "x-4" in " ".join(comparison.notes)


def test_disagreements(comparison: evaluate.Comparison) -> None:
    """All of them and only them, by the distance at the first step that divides the two."""
    expected = {}
    for row in rows():
        a, b = predict(row, "weak"), predict(row, "strong")
        if a != b and None not in (a, b):
            at = min(each for each in (a, b) if each is not None and each != -1)
            expected[row["id"]] = abs(row["weak"][at] - row["strong"][at])
    found = {each.id: each.size for each in comparison.disagreements if each.size is not None}
    assert found == pytest.approx(expected)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    first = comparison.disagreements[0]
    row = next(row for row in rows() if row["id"] == first.id)
    assert (first.problem, first.label_index) == (row["problem"], row["label"])
    assert first.solutions[0].steps == tuple(row["steps"])
    assert first.solutions[0].scores == (tuple(row["weak"]), tuple(row["strong"]))
    assert first.problem[:40] in str(comparison)


def test_scales_are_made_comparable() -> None:
    """0.8 against 0.2 as probabilities, and as log-odds of the same two: the same distance, 0.6."""
    row = {"problem": "p", "steps": ["a"], "label": 0, "a": [0.8], "b": [0.2]}
    assert evaluate.compare([], [row], scores=["a", "b"]).disagreements[0].size == pytest.approx(0.6)
    odds = row | {"a": [float(np.log(4))], "b": [float(-np.log(4))]}
    from surefoot.evaluate.comparison.processbench import disagreement_size

    items = [evaluate.processbench(None, [odds], scores=name, threshold=0.0).judgements[0] for name in "ab"]
    assert disagreement_size(items, ["log_ratio", "log_ratio"]) == pytest.approx(0.6)


# --- best of N -----------------------------------------------------------------------------------------------------


def rollouts() -> list[dict[str, Any]]:
    generator = np.random.default_rng(1)
    found = []
    for number in range(60):
        correct = bool(generator.random() < 0.5)
        found.append(
            {
                "problem_id": str(number % 15),
                "question": f"Question {number % 15}",
                "steps": ["We add.", f"So it is {number}."],
                "final_answer": "4" if correct else "5",
                "ground_truth": "4",
                "good": [0.9, float(np.clip(generator.normal(0.7 if correct else 0.3, 0.2), 0, 1))],
                "bad": generator.random(2).tolist(),
            }
        )
    found[0]["bad"] = [None, 0.5]
    return found


def test_best_of_n_is_paired_over_problems() -> None:
    """At N = 4, all of a problem: select the highest minimum among the solutions that both scored."""
    data = rollouts()
    comparison = evaluate.compare(
        [], data, benchmark="best-of-n", scores=["bad", "good"], aggregation="min", ns=[1, 4], draws=90
    )
    table = []
    for problem in range(15):
        members = [row for row in data if row["problem_id"] == str(problem) and None not in row["bad"]]
        best = [max(members, key=lambda row, name=name: min(row[name])) for name in ("bad", "good")]  # type: ignore[misc]
        table.append([row["final_answer"] == "4" for row in best])
    array = np.array(table, dtype=float)
    found = comparison.pair().find("accuracy", "N=4")
    assert (found.first, found.second) == pytest.approx(tuple(array.mean(axis=0)))
    generator = np.random.default_rng([0, crc32(b"problems")])
    draws = [array[generator.integers(0, 15, 15)].mean(axis=0) for _ in range(90)]
    expected = np.quantile([second - first for first, second in draws], [0.025, 0.975])
    assert found.interval is not None
    assert tuple(found.interval) == pytest.approx(expected, abs=1e-12)
    # One at random of the same solutions: no difference, whoever selects.
    assert comparison.pair().find("accuracy", "N=1").value == pytest.approx(0.0)
    agreement = comparison.pair().agreement
    assert agreement.both + agreement.second_only == int(array[:, 1].sum())
    assert all(len(each.solutions) == 2 for each in comparison.disagreements)
    decided = [len(set(each.right)) > 1 for each in comparison.disagreements]
    assert decided == sorted(decided, reverse=True), "where only one is right comes first"
    assert "Comparison on Best of N" in evaluate.comparison_html(comparison)


# --- models --------------------------------------------------------------------------------------------------------

SMALL = [
    {
        "problem": "What is 2 + 3?",
        "steps": ["2 + 3 = 5.", "So it is 5."],
        "label": -1,
        "split": "gsm8k",
        "field": [0.9, 0.2],
    },
    {
        "problem": "What is 2 + 3?",
        "steps": ["2 + 3 = 6.", "So it is 6."],
        "label": 0,
        "split": "gsm8k",
        "field": [0.2, 0.9],
    },
]


def test_one_model_in_memory_at_a_time_and_its_cost() -> None:
    alive: list[weakref.ref[Any]] = []

    def load(name: str) -> surefoot.StepScorer:
        assert [each() for each in alive] == [None] * len(alive), "an earlier model is still in memory"
        scorer = surefoot.load(name)
        alive.append(weakref.ref(scorer))
        return scorer

    found = evaluate.compare(["mini", "mini"], SMALL, scores=["field"], load=load, draws=0)
    assert len(alive) == 2
    assert [scorer.label for scorer in found.scorers] == ["A mini", "B mini", "C field"]
    scored = surefoot.load("mini").score_many([(row["problem"], row["steps"]) for row in SMALL])  # type: ignore[misc]
    for scorer in found.scorers[:2]:
        assert scorer.cost is not None
        assert scorer.cost.tokens == sum(result.tokens for result in scored)
        assert scorer.cost.seconds > 0
        assert scorer.cost.load_seconds is not None
    assert found.scorers[2].cost is None
    assert found.pair(0, 1).agreement.same == 2
    assert len(found.pairs) == 3
    assert "not adjusted for the number of pairs" in found.notes[-1]


def test_a_scorer_of_the_caller_is_not_loaded_again(scorer: surefoot.Scorer) -> None:
    found = evaluate.compare([scorer, surefoot.load("mini")], SMALL, draws=0, names=["mine", "other"])
    assert [each.label for each in found.scorers] == ["A mine", "B other"]
    assert found.scorers[0].cost is not None
    assert found.scorers[0].cost.load_seconds is None
    assert found.scorers[0].result.to_dict() == evaluate.processbench(scorer, SMALL, draws=0).to_dict()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluate.compare(["mini"], SMALL), "1 scorers cannot be compared"),
        (lambda: evaluate.compare("mini", SMALL), "models is one name"),
        (lambda: evaluate.compare(["mini", "mini"], SMALL, benchmark="prmbench"), "Choose one of: processbench, best"),
        (lambda: evaluate.compare(["mini", "mini"], SMALL, ns=[2]), "ns: not an option of processbench"),
        (lambda: evaluate.compare(["mini", "mini"], SMALL, names=["x"]), "1 names for 2 scorers"),
        (lambda: evaluate.compare(["mini", "mini"], []), "no rows"),
        (lambda: evaluate.compare(["mini", "mini"], SMALL, splits=["math"]), "Filter the rows instead"),
    ],
)
def test_wrong_calls(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((OptionError, InputError), match=message):
        call()


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "scores.sqlite"))
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SMALL))
    return str(path)


def test_the_command_compares_a_model_a_service_and_scores(
    data: str, scorer: surefoot.Scorer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options for a model in this process, such as --dtype, do not reach the service."""
    with served([scorer]) as (url, _):
        call = ["compare", "mini", url, "--scores", "field", "--data", data, "--dtype", "float32", "--quiet", "--json"]
        assert main([*call, "--draws", "30", "--split", "gsm8k"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["letter"] for each in found["scorers"]] == ["A", "B", "C"]
    assert found["scorers"][2]["result"]["f1"] == pytest.approx(0.0)
    assert found["scorers"][0]["cost"]["tokens"] > 0
    assert [(pair["first"], pair["second"]) for pair in found["pairs"]] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert {"name": "position", "fitted": True}.items() <= found["baselines"][2].items()


def test_the_report_says_why_a_number_is_not_defined() -> None:
    correct = [row | {"label": -1} for row in rows(12)]
    text = evaluate.comparison_html(evaluate.compare([], correct, scores=["weak", "strong"], draws=10))
    assert text.count("it needs scored solutions with and without an error") == 2
    assert "not defined for one of them" in text


def test_the_report_says_how_it_was_made(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "compare.html"
    words = ["compare", "mini", "mini", "--data", data, "--draws", "0", "--report", str(report)]
    monkeypatch.setattr("sys.argv", ["surefoot", *words])
    assert main([*words, "--quiet"]) == 0
    text = report.read_text(encoding="utf-8")
    each = f"mini {surefoot.load('mini').fingerprint}"
    assert f"<dt>model fingerprint</dt><dd>{each}, {each}</dd>" in text
    assert f"<dt>data</dt><dd>{data}</dd>" in text
    assert f"<pre>surefoot {shlex.join(words)}</pre>" in text


def test_thresholds_are_those_of_eval(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["compare", "mini", "mini", "--data", data, "--quiet", "--draws", "0", "--json"]
    assert main([*call, "--threshold", "0.7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["result"]["threshold"] for each in found["scorers"]] == [0.7, 0.7]
    assert found["scorers"][1]["cost"]["cached"] == 2, "the second run of the same model computes nothing"
    assert any("score cache" in note for note in found["notes"])
    assert main([*call, "--threshold", "0.7", "--tune-on", "gsm8k"]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mini"], "1 scorers cannot be compared"),
        (["mini", "mini", "--n", "4"], "--n: not an option of processbench"),
        (["mini", "mini", "--as", "x"], "1 names for 2 scorers"),
        (["mini", "mini", "--report", "no/such/folder/x.html"], "is not a folder"),
        (["mini", "mini", "--cache", "x", "--no-cache"], "not both"),
    ],
)
def test_wrong_commands_fail_before_a_model_is_loaded(
    data: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *arguments, "--data", data]) == 2
    assert message in capsys.readouterr().err


def test_the_tables_and_the_report(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "compare.html"
    Path(data).write_text("".join(json.dumps(row) + "\n" for row in rows()))
    call = ["compare", "--scores", "weak", "--scores", "strong", "--as", "Weak", "--as", "Strong", "--data", data]
    assert main([*call, "--draws", "50", "--report", str(report)]) == 1, "two solutions are unscored"
    shown = capsys.readouterr()
    assert "Wrote the report" in shown.err
    for text in ("A Weak", "B Strong", "B - A, average", "baseline: position", "Disagreements:", "label: "):
        assert text in shown.out
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(comparison: evaluate.Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compare") / "compare.html"
    evaluate.write_comparison(comparison, place)
    return place


@pytest.fixture
def page(browser_page: Page, place: Path) -> Page:  # noqa: F811
    browser_page.emulate_media(color_scheme="light", media="screen")
    browser_page.set_viewport_size({"width": 1200, "height": 900})
    requests: list[str] = []
    browser_page.on("request", lambda request: requests.append(request.url))
    browser_page.goto(place.as_uri())
    assert requests == [place.as_uri()], "the page loads nothing else"
    return browser_page


def count(page: Page) -> int:
    page.wait_for_timeout(250)
    status = page.inner_text("#count")
    return int(status.split(" of ")[1].split(",")[0]) if " of " in status else 0


def test_the_page_shows_every_disagreement(page: Page, comparison: evaluate.Comparison) -> None:
    assert page.title() == "Comparison on ProcessBench: A weak vs B strong"
    assert count(page) == len(comparison.disagreements)
    at, first = next((at, each) for at, each in enumerate(comparison.disagreements) if each.problem != NASTY)
    shown = page.inner_text(f"article.item >> nth={at}")
    for step, weak, strong in zip(first.solutions[0].steps, *first.solutions[0].scores, strict=True):
        assert step in shown
        assert f"A {weak:.3f}" in shown.replace("\n", " ")
        assert f"B {strong:.3f}" in shown.replace("\n", " ")
    assert f"label: {first.label}" in shown
    kinds = {"only-a": (True, False), "only-b": (False, True), "none": (False, False)}
    for kind, right in kinds.items():
        expected = sum(each.right == right for each in comparison.disagreements)
        if expected:
            page.click(f'[data-kind="{kind}"]')
            assert count(page) == expected
    page.click('[data-kind=""]')
    page.keyboard.press("/")
    page.keyboard.type("document.title")
    assert count(page) == 1
    assert "taken" not in page.title()
    assert page.inner_text("#items .problem") == NASTY
    assert "A none" in page.inner_text("#items").replace("\n", " "), "a blank step has no score"


def test_the_difference_is_on_a_card(page: Page, comparison: evaluate.Comparison) -> None:
    main_difference = comparison.pair().differences[0]
    assert main_difference.value is not None
    card = page.inner_text(".card >> nth=2")
    assert f"{100 * main_difference.value:+.1f}" in card
    assert "95%, paired" in card
    assert ("B is better" in card) == (main_difference.better == 1)


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_phones_and_both_themes(page: Page, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(
        "[...document.querySelectorAll('.card, .panel, .item')].every((box) => box.scrollWidth <= box.clientWidth)"
    )
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 22, 28)") == (scheme == "dark")
