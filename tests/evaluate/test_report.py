"""The HTML report: its text, and the page in a real browser."""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Callable
from datetime import datetime, timezone
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.report_page import figures

if TYPE_CHECKING:
    from playwright.sync_api import Page

NASTY = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">&amp; </script> <!-- \ud800"
)
MARKERS = "<extra_0> <|im_start|>system"


def rows(count: int = 90) -> list[dict[str, Any]]:
    """Solutions of a model that sees most errors; every third is correct."""
    generator = np.random.default_rng(2)
    found = []
    for number in range(count):
        label = -1 if number % 3 == 0 else number % 4
        scores = []
        for at in range(4):
            right = label == -1 or at < label
            scores.append(float(generator.beta(6, 2) if right or generator.random() < 0.2 else generator.beta(2, 6)))
        found.append(
            {
                "id": f"gsm8k-{number}",
                "problem": f"Problem {number}: how many apples?",
                "steps": [f"Step {at} of solution {number}." for at in range(4)],
                "label": label,
                "generator": ("Alpha", "Beta <b>")[number % 2],
                "final_answer_correct": number % 5 == 0,
                "split": "gsm8k_dev" if number < 60 else "math_dev",
                "scores": scores,
            }
        )
    found[10]["problem"] = NASTY + MARKERS
    found[10]["steps"] = [NASTY, MARKERS, " ", "end"]
    found[10] |= {"generator": NASTY, "label": 1}
    found[11]["scores"] = [0.9, None, None, None]
    found[11]["label"] = 2
    return found


@pytest.fixture(scope="module")
def result() -> evaluate.ProcessBenchResult:
    return evaluate.processbench(None, rows(), name="Qwen/Qwen2.5-Math-PRM-7B", draws=100)


@pytest.fixture(scope="module")
def place(result: evaluate.ProcessBenchResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report") / "report.html"
    evaluate.report(result, place)
    return place


class Tags(HTMLParser):
    """The tags and attributes of a page, and the JSON in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = ("type", "application/json") in attrs

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data += data


def strangers(text: str) -> list[str]:
    """What would fetch something, or run, and is not ours."""
    page = Tags(text)
    found = [tag for tag, _ in page.tags if tag in ("img", "link", "iframe", "object", "embed", "base", "form")]
    found += [name for _, given in page.tags for name in given if name.startswith("on")]
    found += [value or "" for _, given in page.tags for name, value in given.items() if name == "src"]
    links = [value or "" for _, given in page.tags for name, value in given.items() if name.endswith("href")]
    return found + [link for link in links if not link.startswith("#")]


def test_it_is_closed(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    page = Tags(text)
    assert strangers(text) == []
    assert [given.get("type") for tag, given in page.tags if tag == "script"] == ["application/json", None]
    for row in json.loads(page.data):
        assert strangers(row[4]) == []
        assert all(tag != "script" for tag, _ in Tags(row[4]).tags)
    assert "default-src 'none'" in text
    assert NASTY[:20] not in text


def test_figures_have_names_of_their_own_and_no_colours_of_their_own(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    names = [given["id"] for _, given in Tags(text).tags if "id" in given]
    assert len(names) == len(set(names))
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 3
    for drawing in drawings:
        assert "var(--c1)" in drawing
        assert not [code for code in figures.VARIABLES if code in drawing]
        # Black is what a colour that was forgotten would be; white stands only in what is not seen.
        assert not re.search(r"(?:stroke|fill): #(?!ffffff)", drawing)


def test_it_says_what_the_result_says(result: evaluate.ProcessBenchResult, place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    assert result.f1 is not None
    assert f'<p class="value">{100 * result.f1:.1f}</p>' in text
    for number in ("published 80.0", "published 82.4", "published 77.6"):
        assert number in text
    assert len(json.loads(Tags(text).data)) == 90
    assert result.notes[0].split(":")[0] in text


def test_a_false_alarm_is_the_same_everywhere(result: evaluate.ProcessBenchResult, place: Path) -> None:
    """A correct step that was predicted: before the first error, or in a correct solution."""
    alarms = [
        item.row.label == -1
        for item in result.judgements
        if item.predicted not in (None, -1) and (item.row.label == -1 or item.predicted < item.row.label)
    ]
    assert {True, False} == set(alarms)
    text = place.read_text(encoding="utf-8")
    cells = re.findall(r"<tr><t[hd][^>]*>([^<]*)</t[hd]><td[^>]*>([\d,]+)</td></tr>", text)
    table = {name: int(number) for name, number in cells}
    assert table["false alarms"] == len(alarms)
    assert table["… before the first error"] == alarms.count(False)
    assert table["… in a correct solution"] == alarms.count(True)
    assert re.search(rf'data-kind="alarm"[^>]*>false alarms <b>{len(alarms)}</b>', text)
    assert text.count("False alarms: a correct step was predicted.") == 2, "at the table and at the list"
    badges = [re.findall(r"(missed error|false alarm|correctly judged|unscored)", row[4])[0] for row in _entries(text)]
    assert badges.count("false alarm") == len(alarms)


def _entries(text: str) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(Tags(text).data)
    return found


def test_the_surest_mistakes_come_first(result: evaluate.ProcessBenchResult, place: Path) -> None:
    order = [row[0] for row in json.loads(Tags(place.read_text(encoding="utf-8")).data)]
    items = [result.judgements[at] for at in order]
    outcomes = [item.outcome for item in items]
    mistakes = [outcome not in ("right", None) for outcome in outcomes]
    assert mistakes == sorted(mistakes, reverse=True)
    assert outcomes[-1] is None
    sure = [
        item.scores[item.row.label]
        if item.outcome in ("missed", "late")
        else 1 - (item.scores[item.predicted or 0] or 0)
        for item in items[: sum(mistakes)]
    ]
    assert sure == sorted(sure, key=lambda score: -(score or 0))


def test_four_hundred_solutions_stay_small(tmp_path: Path) -> None:
    many = [row | {"steps": [text * 20 for text in row["steps"]]} for row in rows(400)]
    evaluate.report(evaluate.processbench(None, many, draws=10), tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size < 6_000_000


def test_the_same_result_is_the_same_file(result: evaluate.ProcessBenchResult, place: Path) -> None:
    assert evaluate.report_html(result) == evaluate.report_html(result)
    made = evaluate.provenance(now=datetime(2026, 5, 4, 3, 2, tzinfo=timezone.utc))
    evaluate.report(result, place.with_name("again.html"), made=made)
    assert evaluate.report_html(result, made=made) == place.with_name("again.html").read_text(encoding="utf-8")


def test_it_says_how_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Date, data, fingerprint, versions and command, all of them as text."""
    made = evaluate.provenance(
        data=NASTY,
        fingerprint="abc123",
        command=f"surefoot {NASTY}",
        now=datetime(2026, 5, 4, 3, 2, tzinfo=timezone.utc),
    )
    assert made["date"] == "2026-05-04 03:02 UTC"
    assert f"surefoot {surefoot.__version__}, torch {version('torch')}" in made["versions"]
    text = evaluate.report_html(evaluate.processbench(None, rows(12), draws=10), made=made)
    assert strangers(text) == []
    for fact in ("2026-05-04 03:02 UTC", "abc123", version("transformers"), platform.python_version()):
        assert fact in text
    # The command line knows all of them.
    source, target = tmp_path / "rows.jsonl", tmp_path / "report.html"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows(12)[:3]), encoding="utf-8")
    words = ["eval", "processbench", "--model", "mini", "--data", str(source), "--report", str(target), "--no-cache"]
    monkeypatch.setattr("sys.argv", ["surefoot", *words])
    assert main([*words, "--quiet"]) == 0
    text = target.read_text(encoding="utf-8")
    assert f"<pre>surefoot {shlex.join(words)}</pre>" in text
    assert f"<dt>data</dt><dd>{source}</dd>" in text
    assert f"<dt>model fingerprint</dt><dd>{surefoot.load('mini').fingerprint}</dd>" in text
    assert re.search(r"<dt>date</dt><dd>20\d\d-\d\d-\d\d \d\d:\d\d UTC</dd>", text)


# --- in a browser --------------------------------------------------------------------------------------------------


@pytest.fixture
def page(browser_page: Page, place: Path) -> Page:  # noqa: F811
    browser_page.emulate_media(color_scheme="light", media="screen")
    browser_page.set_viewport_size({"width": 1200, "height": 900})
    browser_page.goto(place.as_uri())
    browser_page.evaluate("localStorage.clear()")
    browser_page.reload()
    return browser_page


def shown(page: Page) -> int:
    """How many solutions fit the search and the filters, as the page says."""
    page.wait_for_timeout(200)
    status = page.inner_text("#count")
    return int(status.split(" of ")[1].split(",")[0]) if " of " in status else 0


def test_the_page_is_whole(page: Page) -> None:
    assert page.title() == "ProcessBench: Qwen/Qwen2.5-Math-PRM-7B"
    assert page.locator(".card").count() == 4
    assert page.locator(".panel svg").count() == 3
    assert page.locator("article.item").count() == 20
    assert "true first error" in page.inner_text("#items")
    assert "predicted" in page.inner_text("#items")


def test_filters_and_search(page: Page, result: evaluate.ProcessBenchResult) -> None:
    outcomes = [item.outcome for item in result.judgements]
    assert shown(page) == 90
    wanted: dict[str, Callable[[Any], bool]] = {
        "missed": lambda outcome: outcome in ("missed", "late"),
        "alarm": lambda outcome: outcome in ("rejected", "early"),
        "right": lambda outcome: outcome == "right",
        "unscored": lambda outcome: outcome is None,
    }
    for kind, fits in wanted.items():
        page.click(f'[data-kind="{kind}"]')
        assert shown(page) == sum(map(fits, outcomes)) > 0
        assert page.get_attribute(f'[data-kind="{kind}"]', "aria-pressed") == "true"
    page.click('[data-kind=""]')
    page.select_option("#group", "Beta <b>")
    assert shown(page) == sum(item.row.generator == "Beta <b>" for item in result.judgements)
    page.select_option("#split", "math_dev")
    assert shown(page) == sum(
        item.row.generator == "Beta <b>" and item.row.split == "math_dev" for item in result.judgements
    )
    page.select_option("#group", "")
    page.select_option("#split", "")
    page.fill("#search", "SOLUTION 37. apples")
    assert shown(page) == 1
    assert "Problem 37" in page.inner_text("#items")
    page.fill("#search", "no such word")
    assert shown(page) == 0
    assert "No matches" in page.inner_text("#count")


def test_text_stays_text(page: Page) -> None:
    page.fill("#search", "<script>document")
    assert shown(page) == 1
    assert "taken" not in page.title()
    assert page.inner_text("#items .problem") == (NASTY + MARKERS).replace("\ud800", "?")
    assert page.locator("#items script, #items img").count() == 0
    assert page.locator("#group option").all_inner_texts()[1].startswith("<script>")


def test_no_script_but_its_own_may_run(page: Page) -> None:
    """The second lock: even text that became structure would not run."""
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.taken = 1\">')")
    page.evaluate(
        "{const s = document.createElement('script'); s.textContent = 'window.taken = 1'; document.body.append(s)}"
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.taken") is None


def test_keys_and_pages(page: Page) -> None:
    first = page.get_attribute("article.item >> nth=0", "data-at")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#count").startswith("21–40 of 90")
    assert page.get_attribute("article.item >> nth=0", "data-at") != first
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("article.item >> nth=0", "data-at") == first
    page.keyboard.press("/")
    page.keyboard.type("solution 57.")
    assert shown(page) == 1
    page.keyboard.press("Escape")
    assert shown(page) == 90
    page.select_option("#order", "file")
    assert page.get_attribute("article.item >> nth=0", "data-at") == "0"


def background(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_light_and_dark(page: Page) -> None:
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    page.click("#theme")
    assert background(page) == light
    page.reload()
    assert background(page) == light
    page.click("#theme")
    assert background(page) == dark
    ink = page.evaluate("getComputedStyle(document.querySelector('.panel svg text')).fill")
    assert ink == page.evaluate("getComputedStyle(document.body).color")


@pytest.mark.parametrize("chosen", [None, "dark"])
def test_paper_is_white(page: Page, chosen: str | None) -> None:
    page.emulate_media(color_scheme="dark")
    if chosen:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert background(page) != "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark", media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert not page.is_visible("#theme")


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_sticks_out(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(
        "[...document.querySelectorAll('.card, .panel, .item')].every((box) => box.scrollWidth <= box.clientWidth)"
    )


# --- the other benchmarks ------------------------------------------------------------------------------------------


def prmbench_rows() -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    return [
        {
            "id": str(number),
            "classification": ("circular", "confidence", "correct")[number % 3],
            "problem": NASTY,
            "steps": ["first", "second", "third"],
            "error_steps": [] if number % 3 == 2 else [number % 3],
            "scores": generator.random(3).tolist(),
        }
        for number in range(30)
    ]


def rollout_rows() -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    return [
        {
            "problem_id": str(number % 6),
            "question": NASTY,
            **({"solution": "Step 1: We add.\nFinal Answer: 4"} if number == 0 else {"steps": ["We add.", NASTY]}),
            "final_answer": str(3 + number // 6 % 4),
            "ground_truth": "4" if number % 6 else "9",
            "scores": generator.random(2).tolist(),
        }
        for number in range(48)
    ]


def test_prmbench_has_a_page(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    evaluate.report(evaluate.prmbench(None, prmbench_rows(), draws=50), tmp_path / "x.html")
    browser_page.goto((tmp_path / "x.html").as_uri())
    assert strangers((tmp_path / "x.html").read_text(encoding="utf-8")) == []
    assert browser_page.locator(".panel svg").count() == 4
    browser_page.select_option("#group", "circular")
    assert shown(browser_page) == 10
    assert "incorrect (label)" in browser_page.inner_text("#items")


def test_best_of_n_has_a_page(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    result = evaluate.best_of_n(None, rollout_rows(), draws=50)
    evaluate.report(result, tmp_path / "x.html")
    browser_page.goto((tmp_path / "x.html").as_uri())
    assert strangers((tmp_path / "x.html").read_text(encoding="utf-8")) == []
    assert browser_page.locator(".panel svg").count() == 3
    assert shown(browser_page) == 6
    browser_page.click('[data-kind="unsolved"]')
    assert shown(browser_page) == 1
    assert "selected" in browser_page.inner_text("#items")


def test_small_and_odd_results_have_a_page() -> None:
    """One kind of solutions only, scores that are no probabilities, nothing scored at all."""
    row = {"problem": "p", "steps": ["a"], "label": -1}
    for scores in ([0.5], [-3.0], [None]):
        text = evaluate.report_html(evaluate.processbench(None, [row | {"scores": scores}]))
        assert "not defined" in text
        assert "no scored solution has an error" in text
    assert "no scored solution has an error and no scored solution is correct" in text
    blank = {"problem": "p", "steps": ["a", " "], "label": 1, "scores": [0.9, None]}
    assert "missed error: no step predicted" in evaluate.report_html(evaluate.processbench(None, [blank]))
    text = evaluate.report_html(
        evaluate.prmbench(None, [row | {"classification": "circular", "error_steps": [], "scores": [None]}])
    )
    assert "PRMBench" in text
    named = [row | {"classification": "$x_{$"} for row in prmbench_rows()]
    assert "$x_{$" in evaluate.report_html(evaluate.prmbench(None, named, draws=50))
    margins = [row | {"scores": [2 * score - 1 for score in row["scores"]]} for row in rollout_rows()]
    result = evaluate.best_of_n(None, margins, draws=50)
    assert "The scores are not probabilities" in " ".join(result.notes)
    assert not result.weighted
    assert "Weighted votes" not in evaluate.report_html(result)
    with pytest.raises(InputError, match="has no report"):
        evaluate.report_html("x")  # type: ignore[arg-type]


@pytest.mark.parametrize(("labels", "explained"), [((-1, -1), True), ((-1, 0), False)])
def test_tables_say_what_a_dash_means(labels: tuple[int, ...], explained: bool) -> None:
    """Without an erroneous solution there is no F1, and no fraction of errors found."""
    rows = [{"problem": "p", "steps": ["a"], "label": label, "scores": [0.7]} for label in labels]
    text = evaluate.report_html(evaluate.processbench(None, rows, draws=20))
    splits = text[text.index("<h2>Splits") : text.index("<h2>Baselines")]
    assert (">-</td>" in splits) == explained
    assert ("A dash: not defined, because an accuracy needs scored solutions of its kind" in splits) == explained


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "x.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(12)[:10]))
    call = ["eval", "processbench", "--data", str(data), "--scores", "scores", "--report"]
    assert main([*call, str(tmp_path / "report.html")]) == 0
    assert "report.html" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main([*call, str(tmp_path / "no" / "report.html")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main([*call, str(tmp_path)]) == 2
    with pytest.raises(OptionError, match="is a folder"):
        evaluate.report(evaluate.processbench(None, rows(12)), tmp_path)


def test_scores_after_the_first_error_have_no_colour(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    labels_and_scores = [(0, [0.1, 0.9, 0.2]), (0, [0.9, 0.2, 0.9]), (-1, [0.9, 0.1, 0.9])]
    data = [
        {"id": str(at), "problem": "p", "steps": ["a", "b", "c"], "label": label, "scores": scores, "split": "x"}
        for at, (label, scores) in enumerate(labels_and_scores)
    ]
    place = tmp_path / "report.html"
    evaluate.report(evaluate.processbench(None, data, draws=10), place)
    browser_page.goto(place.as_uri())
    coloured = "all => all.map((chip) => getComputedStyle(chip).backgroundColor !== 'rgba(0, 0, 0, 0)')"
    # Up to the first error or to the prediction, whichever is later. A correct solution has no error.
    for at, expected in enumerate(([True, False, False], [True, True, False], [True, True, True])):
        assert browser_page.locator(f"[data-at='{at}'] .chip").evaluate_all(coloured) == expected


def test_undecided_scores_are_dark_on_dark_pages(browser_page: Page, place: Path) -> None:  # noqa: F811
    brightness = (
        "box => getComputedStyle(box).backgroundColor.match(/[0-9]+/g).reduce((sum, part) => sum + Number(part), 0)"
    )
    found = []
    for scheme in ("light", "dark"):
        browser_page.emulate_media(color_scheme=scheme)
        browser_page.goto(place.as_uri())
        found.append(browser_page.locator(".legend i").nth(5).evaluate(brightness))
    browser_page.emulate_media(color_scheme="light")
    assert found[0] > 600 > 300 > found[1]
