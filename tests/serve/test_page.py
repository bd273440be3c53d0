"""The page, in a real browser."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401  (a fixture)
from helpers.contrast import LOW_CONTRAST
from helpers.search_records import random_records
from helpers.serving import QUESTION, SOLUTION, served
from helpers.small import LINEAR, write
from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.calibration import Calibration, FittedOn, Logistic
from surefoot.core.search_result import SearchRecord
from surefoot.scoring.ensemble import Ensemble
from surefoot.scoring.local import load_local
from surefoot.serve import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Page

EVIL = "<img src=x onerror=document.title='gone'>\n<script>document.title='gone'</script>\nFinal Answer: <b>4</b>"


@pytest.fixture(scope="module")
def url(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer]) as (url, _):
        yield url


@pytest.fixture(scope="module")
def mini_url(mini: surefoot.Scorer) -> Iterator[str]:
    with served([mini]) as (url, _):
        yield url


@pytest.fixture
def page(url: str, browser_page: Page) -> Page:  # noqa: F811
    return opened(browser_page, url)


@pytest.fixture
def mini_page(mini_url: str, browser_page: Page) -> Page:  # noqa: F811
    return opened(browser_page, mini_url)


def opened(page: Page, url: str) -> Page:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(reduced_motion="reduce")
    page.goto(url)
    page.wait_for_selector(".state.ready")
    return page


def score(page: Page, question: str, *solutions: str) -> None:
    page.get_by_label("Question").fill(question)
    for number, solution in enumerate(solutions):
        if number:
            page.get_by_role("button", name="+ Compare with another solution").click()
        page.locator("#solutions textarea").nth(number).fill(solution)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(f"article:nth-of-type({len(solutions)})")


def assert_side_by_side(page: Page) -> None:
    """Both solutions start at the same height. One call reads both: the layout may change between two calls."""
    tops = page.locator("article").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert len(tops) == 2
    assert tops[0] == tops[1]


def until(page: Page, expression: str, argument: str = "") -> None:
    """Playwright's own wait evaluates text in the page, which its content security policy forbids."""
    for _ in range(250):
        if page.evaluate(expression, argument):
            return
        page.wait_for_timeout(20)
    raise AssertionError(expression)


def copied(page: Page, what: str) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_role("button", name=f"Copy {what}").click()
    until(page, "navigator.clipboard.readText().then(Boolean)")
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_the_steps_and_their_scores(page: Page, scorer: surefoot.Scorer) -> None:
    score(page, QUESTION, SOLUTION)
    expected = scorer.score(QUESTION, SOLUTION)
    assert page.locator(".step").count() == len(expected.steps)
    for row, step in zip(page.locator(".step").all(), expected.steps, strict=True):
        text, box, _ = step.text.partition("\\boxed{14}")
        assert text.strip() in row.inner_text()
        assert row.locator("menclose").all_text_contents() == (["14"] if box else [])
        assert float(row.locator(".value").inner_text()) == pytest.approx(step.score, abs=6e-4)
    assert expected.first_error() == 0
    assert page.locator(".step.first").count() == 1
    assert "first error" in page.locator(".step").first.inner_text()
    assert float(page.locator(".numbers dd").first.inner_text()) == pytest.approx(expected.mean, abs=6e-4)
    assert page.locator("svg.curve circle").count() == len(expected.steps)
    assert "first error at step 1" in page.locator("#said").inner_text()
    assert "uncertain: above 0.500, up to 0.750" in page.locator("#legend").inner_text()
    page.locator("#threshold").fill("0")
    assert "uncertain: above 0.000, up to 0.500" in page.locator("#legend").inner_text()
    assert page.locator(".verdict").inner_text() == "✓ no error found"


def test_every_scale_has_its_own_threshold_and_curve(
    scorer: surefoot.Scorer,
    browser_page: Page,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "PURE-PRM-7B", "qwen2", "Qwen2ForTokenClassification", LINEAR, lm_head=False, quiet=[198])
    other, reference = (write(tmp_path / name, "qwen2", "Qwen2ForCausalLM", seed=s) for s, name in enumerate("ab"))
    options = {"reference": str(reference), "coefficient": 1.0}
    margins, ratios = load_local(folder), load_local(other, family="implicit", family_options=options)
    limits = []
    with served([scorer, margins, ratios]) as (url, _):
        opened(browser_page, url)
        assert "probability" not in browser_page.locator("body").inner_text()
        for model in (scorer, margins, ratios, scorer):
            browser_page.locator("#model").select_option(model.name)
            score(browser_page, QUESTION, SOLUTION)
            browser_page.wait_for_selector(f".meta:has-text('{model.name}')")
            expected = model.score(QUESTION, SOLUTION)
            field = browser_page.locator("#threshold")
            assert float(field.input_value()) == expected.natural_threshold
            limits.append([float(field.get_attribute(name) or "nan") for name in ("min", "max")])
            legend = browser_page.locator("#legend").inner_text()
            assert ("probability" in legend) == (expected.scale == "probability")
            assert ("uncertain" in legend) == (expected.scale != "log_ratio")
            verdict = browser_page.locator(".verdict").inner_text()
            assert ("no error found" in verdict) == (expected.first_error() == -1)
            # The axis covers all scores: different scores are drawn at different heights.
            heights = [dot.get_attribute("cy") for dot in browser_page.locator("svg.curve circle").all()]
            assert len(set(heights)) == len(set(expected.step_scores))
    far = max(abs(value or 0) for value in ratios.score(QUESTION, SOLUTION).step_scores)
    assert far > 1
    assert limits[:2] == [[0, 1], [-1, 1]]
    assert limits[2] == pytest.approx([-far, far], rel=1e-4)
    assert limits[3] == [0, 1]


def test_two_solutions_are_compared(page: Page, scorer: surefoot.Scorer) -> None:
    other = "Step 1: 2 + 3 = 5.\nStep 2: 5 * 4 = 20.\nFinal Answer: 20"
    score(page, QUESTION, SOLUTION, other)
    assert_side_by_side(page)
    means = [scorer.score(QUESTION, text).mean for text in (SOLUTION, other)]
    rows = page.locator("#overview tbody tr").all()
    assert [float(row.locator("td").first.inner_text()) for row in rows] == pytest.approx(means, abs=6e-4)


def test_solutions_are_added_and_removed(page: Page) -> None:
    page.locator("#solution-0").click()
    page.keyboard.type("first")
    for name in ("B", "C"):
        page.get_by_role("button", name="+ Compare with another solution").click()
        assert page.evaluate("document.activeElement.id") == f"solution-{'ABC'.index(name)}"
        page.keyboard.type(name)
    page.get_by_role("button", name="Remove Solution B").click()
    assert page.evaluate("document.activeElement.value") == "C"
    assert page.get_by_label("Solution B", exact=True).input_value() == "C"
    page.get_by_role("button", name="Remove Solution B").click()
    assert page.evaluate("document.activeElement.value") == "first"
    assert page.get_by_role("button", name="Remove").count() == 0
    page.keyboard.press("Control+z")
    assert page.get_by_label("Solution", exact=True).input_value() == ""


def test_the_labels_of_close_curves_do_not_overlap(page: Page) -> None:
    score(page, QUESTION, *[SOLUTION] * 4)
    for value in ("0.5", "0"):
        page.locator("#threshold").fill(value)
        top, bottom, *letters = page.locator("svg.curve").evaluate(
            """plot => [plot.getBoundingClientRect().top, plot.getBoundingClientRect().bottom,
                        ...[...plot.querySelectorAll('.end')].map((end) => end.getBoundingClientRect().top)]"""
        )
        tops = sorted(letters)
        assert len(tops) == 4
        assert all(below - above >= 12 for above, below in pairwise(tops))
        assert tops[0] >= top
        assert tops[-1] + 15 <= bottom
    assert page.locator("tbody th .sample").count() == 4


def test_the_comparison_fits_the_screen(page: Page) -> None:
    score(page, QUESTION, SOLUTION, f"{SOLUTION} or {'more ' * 20}")
    for width in (1024, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert_side_by_side(page)
    assert page.locator(".scroll").evaluate("box => box.scrollWidth - box.clientWidth") == 0
    assert "more more" in (page.locator("td.answer").last.get_attribute("title") or "")


def test_narrow_screens_compare_in_columns(page: Page) -> None:
    score(page, QUESTION, SOLUTION, SOLUTION)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.locator("#overview .scroll").evaluate("box => box.scrollWidth - box.clientWidth") == 0
    lefts = page.locator("#overview tr").evaluate_all(
        "rows => rows.map((row) => [...row.children].map((cell) => Math.round(cell.getBoundingClientRect().left)))"
    )
    assert [len(set(row)) for row in lefts] == [1, 1, 1]
    assert lefts[0][0] < lefts[1][0] < lefts[2][0]
    tops = page.locator("#overview tr").evaluate_all(
        "rows => rows.map((row) => [...row.children].map((cell) => Math.round(cell.getBoundingClientRect().top)))"
    )
    assert tops[0] == tops[1] == tops[2]
    assert "answer" in page.locator("#overview th").all_inner_texts()


def test_the_star_is_explained(page: Page) -> None:
    score(page, QUESTION, SOLUTION, SOLUTION)
    assert page.locator("#overview td.best").count() > 0
    assert "★ highest value" in page.locator("#overview .meta").inner_text()
    assert page.locator("#overview td.error").all_inner_texts() == ["step 1", "step 1"]


def test_a_resize_redraws_only_the_curve(page: Page) -> None:
    score(page, QUESTION, SOLUTION)
    page.evaluate("window.kept = ['article', '.curve'].map((name) => document.querySelector(name))")
    stays = "['article', '.curve'].map((name, place) => document.querySelector(name) === window.kept[place])"
    page.set_viewport_size({"width": 1280, "height": 600})
    # The resize event comes before the next paint.
    page.evaluate("new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))")
    assert page.evaluate(stays) == [True, True]
    page.set_viewport_size({"width": 700, "height": 600})
    until(page, "document.querySelector('.curve') !== window.kept[1]")
    assert page.evaluate(stays) == [True, False]


def test_one_click_scores_an_example(page: Page) -> None:
    for number in range(page.locator("#examples button").count()):
        page.locator("#said").evaluate("said => { said.textContent = ''; }")
        page.locator("#examples button").nth(number).click()
        page.wait_for_selector("#said:not(:empty)", state="attached")
        assert page.locator(".step").count() >= 3
        assert page.locator("#problem").is_hidden()


def test_the_examples_with_mini(mini_page: Page) -> None:
    def example(name: str) -> list[str]:
        mini_page.locator("#said").evaluate("said => { said.textContent = ''; }")
        mini_page.get_by_role("button", name=name).click()
        mini_page.wait_for_selector("#said:not(:empty)", state="attached")
        return mini_page.locator(".verdict").all_inner_texts()

    assert example("A correct solution") == ["✓ no error found"]
    assert mini_page.locator(".step.is-right").count() == 3
    assert example("An arithmetic error") == ["✗ first error at step 1"]
    assert example("Compare two solutions") == ["✓ no error found", "✗ first error at step 2"]
    # Solution A is better in every aggregation.
    assert mini_page.locator("#overview tbody tr").first.locator("td.best").count() == 5
    assert mini_page.locator("#overview tbody tr").last.locator("td.best").count() == 0
    assert example("A prompt injection") == ["✗ first error at step 1"]
    assert "read as text, not as structure" in mini_page.locator(".notes").inner_text()


def test_input_is_never_markup(page: Page) -> None:
    score(page, EVIL, EVIL)
    assert EVIL.splitlines()[0] in page.locator(".step").first.inner_text()
    assert page.title().startswith("Surefoot")
    assert page.locator("article img, article script, article b").count() == 0


def test_unscored_steps_show_a_reason(page: Page) -> None:
    score(page, QUESTION, "Hello 𝒳.\nStep 1: 3 * 4 = 12.\nFinal Answer: 12\nBye 𝒳 now.")
    order = [part.get_attribute("class") for part in page.locator("article > *").all()]
    assert order.index("notes") < order.index("curve") < order.index("steps")
    notes = page.locator(".notes").inner_text()
    assert "“Hello 𝒳.”" in notes
    assert "“Bye 𝒳 now.”" in notes
    score(page, "x " * 5000, "One.\nTwo.")
    page.wait_for_selector(".verdict:has-text('not scored')")
    assert "question alone takes" in page.locator(".notes").inner_text()
    assert page.locator(".value").all_inner_texts() == ["over the length limit"] * 2
    assert page.locator(".curve").count() == 0


def test_calibrated_scores_are_labelled(scorer: surefoot.Scorer, browser_page: Page) -> None:  # noqa: F811
    found = Calibration(Logistic(0.3, -0.4), scorer.name, scorer.fingerprint, FittedOn(2, 5, "0" * 64))
    with served([load_local(scorer.name, calibration=found)]) as (url, _):
        score(opened(browser_page, url), QUESTION, SOLUTION)
        assert f"calibrated: {found.name}" in browser_page.locator(".notes").inner_text()


def test_an_empty_solution_is_an_error(page: Page) -> None:
    page.get_by_role("button", name="Score", exact=True).click()
    assert "nothing to score" in page.get_by_role("alert").inner_text()


def test_outdated_scores_are_marked(page: Page) -> None:
    age, copy = page.locator("#age"), page.locator("#copy-json")
    score(page, QUESTION, SOLUTION)
    assert age.is_hidden()
    for field, text in (("#question", QUESTION), ("#solution-0", SOLUTION)):
        page.locator(field).fill(f"{text} And?")
        assert "has changed since it was scored" in age.inner_text()
        assert copy.is_disabled()
        page.locator(field).fill(text)
        assert age.is_hidden()
        assert copy.is_enabled()
    page.get_by_label("Split into steps").select_option("lines")
    page.wait_for_selector(".meta:has-text('split by lines')")
    page.wait_for_selector("#age", state="hidden")


def test_an_unreachable_service_is_reported(scorer: surefoot.Scorer, browser_page: Page) -> None:  # noqa: F811
    page = browser_page
    with served([scorer]) as (url, _):
        opened(page, url)
        score(page, QUESTION, SOLUTION)
    page.locator("#solution-0").fill("Two.")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#problem:has-text('is unreachable')")
    assert page.locator("#state.away").inner_text() == "not connected"
    assert page.locator("#age").is_visible()
    assert page.locator("#copy-json").is_disabled()


def test_copied_text_matches_the_page(mini_page: Page, mini_url: str) -> None:
    page = mini_page
    solution = 'Step 1: It\'s 3 * 4 = 12.\nStep 2: So 2 + 12 = "15" \\ $HOME `ls`.\nFinal Answer: 15'
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    score(page, QUESTION, solution)
    errors = []
    for threshold in ("0.5", "0.99", "0"):
        page.locator("#threshold").fill(threshold)
        result = json.loads(copied(page, "JSON"))
        errors.append(result["results"][0]["first_error"])
        command = copied(page, "curl")
        words = shlex.split(command.replace("\\\n", " "))
        assert words[:3] == ["curl", "-s", f"{mini_url}/v1/score"]
        # The shell parses the quotes; printf stands in for curl.
        body = subprocess.run(
            ["bash", "-c", command.replace("curl -s", "printf '%s\\n'", 1)], capture_output=True, text=True, check=True
        ).stdout.split("-d\n", 1)[1]
        reply = httpx.post(f"{mini_url}/v1/score", content=body, headers={"Content-Type": "application/json"}).json()
        for data in (reply, result):
            data["results"][0].pop("seconds")
        assert reply == result
    assert errors == [1, 0, -1]


def test_copying_works_without_https(page: Page) -> None:
    # Like a page that was loaded over plain HTTP from another machine.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    button = page.locator("#copy-curl")
    button.click()
    button.click()
    assert button.inner_text() == "Copied"
    assert page.evaluate("document.activeElement.id") == "copy-curl"
    page.locator("#question").click()
    page.keyboard.press("Control+v")
    assert page.locator("#question").input_value().startswith("curl -s ")
    page.wait_for_selector("#copy-curl:has-text('Copy curl')")


def test_small_screens_scroll_to_the_results(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    seen = (
        "id => { const { top } = document.getElementById(id).getBoundingClientRect(); return top >= 0 && top < 700; }"
    )
    assert not page.evaluate(seen, "results")
    page.get_by_role("button", name="Score", exact=True).click()
    until(page, seen, "problem")
    page.get_by_role("button", name="An arithmetic error").click()
    page.wait_for_selector("article")
    until(page, seen, "results")


def test_small_screens_and_dark_colors(page: Page) -> None:
    score(page, QUESTION, SOLUTION, SOLUTION)
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.get_by_role("button", name="Theme: auto").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    assert page.locator("#theme").inner_text() == "Theme: dark"
    page.get_by_role("button", name="Theme: dark").click()


def test_controls_have_names_and_text_has_contrast(page: Page) -> None:
    score(page, QUESTION, SOLUTION)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, textarea, input")].filter((control) =>
             !(control.labels && control.labels.length) && !control.getAttribute("aria-label")
             && !control.textContent.trim()
           ).map((control) => control.id)"""
    )
    assert nameless == []
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        low = page.evaluate(CONTRAST)
        assert low == [], (theme, low)
    page.emulate_media(color_scheme="light")


def test_the_page_asks_for_the_api_key(
    scorer: surefoot.Scorer,
    mini: surefoot.Scorer,
    browser_page: Page,  # noqa: F811
) -> None:
    page = browser_page
    with served([scorer, mini], Settings(api_key="secret-key")) as (url, _):
        page.goto(url)
        for key, said in (("", "requires an API key"), ("secret", "key is wrong"), ("schlüssel", "key is wrong")):
            if key:
                page.keyboard.type(key)
                page.keyboard.press("Enter")
            page.wait_for_selector(f"#problem:has-text('{said}')")
            assert page.locator("#state").inner_text() == "API key required"
            assert page.evaluate("document.activeElement.id") == "key"
            page.locator("#key").fill("")
        page.keyboard.type("secret-key")
        page.keyboard.press("Enter")
        page.wait_for_selector(".state.ready")
        assert page.locator("#problem").is_hidden()
        assert page.locator("#model option").count() == 2
        # Without Enter, the models are listed before the first scores are requested.
        page.reload()
        page.wait_for_selector("#problem:has-text('requires an API key')")
        page.get_by_label("API key").fill("secret-key")
        score(page, QUESTION, SOLUTION)
        assert page.locator("#state").inner_text() == "ready"
        assert scorer.name in page.locator(".meta").inner_text()


def test_the_page_loads_nothing_from_other_hosts(url: str) -> None:
    page = httpx.get(url)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for name in ("page.html", "page.css", "page.js", "files.js", "searches.js"):
        text = files("surefoot.serve").joinpath("static").joinpath(name).read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
        assert "innerHTML" not in text
        assert not re.search(r"\son\w+=|style=", text) or name == "page.js"
    for name in ("elements.js", "search_tree.css", "search_tree.js", "theme.js"):
        reply = httpx.get(f"{url}/static/{name}")
        assert reply.headers["content-type"].startswith(("text/css", "text/javascript"))
        assert not re.search(r"https?://|innerHTML|insertAdjacent|\beval\b", reply.text)


def test_steps_after_an_error_are_not_called_correct(mini_page: Page) -> None:
    page = mini_page
    page.get_by_role("button", name="An arithmetic error").click()
    page.wait_for_selector("article")
    assert page.locator(".verdict").inner_text() == "✗ first error at step 1"
    kinds = page.locator(".step .mark").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert kinds == ["wrong", "after an error", "after an error", "after an error"]
    assert "Step 3 · after an error" in page.locator(".step").nth(2).inner_text()
    assert page.locator("circle.is-after").count() == 3
    # At a threshold without an error, every step is judged.
    page.locator("#threshold").fill("0")
    assert page.locator(".verdict").inner_text() == "✓ no error found"
    assert page.locator(".step.is-after").count() == 0


def test_results_are_saved_and_opened(mini_page: Page, tmp_path: Path) -> None:
    page = mini_page
    assert page.locator("#save").is_disabled()
    score(page, QUESTION, SOLUTION, EVIL)
    page.locator("#threshold").fill("0.25")
    before = page.locator("#cards").inner_text()
    with page.expect_download() as started:
        page.get_by_role("button", name="Save").click()
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert [item["solution"] for item in saved["request"]["items"]] == [SOLUTION, EVIL]
    page.reload()
    page.wait_for_selector(".state.ready")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.locator("#open-file").set_input_files(path)
    page.wait_for_selector("#opened:has-text('Opened from surefoot-results.json. Scored by mini.')")
    assert page.locator("#cards").inner_text() == before
    assert page.locator("#solution-1").input_value() == EVIL
    assert page.locator("#threshold").input_value() == "0.25"
    assert page.locator("#age").is_hidden()
    assert sent == []
    page.locator("#solution-0").fill("Two.")
    assert page.locator("#age").is_visible()
    # Another model's results stay as they are, although this service could not have made them.
    for result in saved["response"]["results"]:
        result["model"] = "elsewhere"
    saved["request"]["model"] = "elsewhere"
    open_results(page, json.dumps(saved))
    page.wait_for_selector("#opened:has-text('Scored by elsewhere.')")
    assert page.locator("#age").is_hidden()


def open_results(page: Page, text: str) -> None:
    page.locator("#open-file").set_input_files({"name": "file.json", "mimeType": "", "buffer": text.encode()})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "It has neither results nor lines"),
        ("not json", "It has neither results nor lines"),
        ('{"format": "other"}', "its format is not surefoot-results-1"),
        ('{"format": "surefoot-results-1"}', "items and results do not match"),
        ({"request": {"items": []}, "response": {"results": []}}, "it has 0 solutions"),
        ({"request": {"items": [{"question": "x"}]}, "response": {"results": [{}]}}, "no question or no solution"),
        (
            {"request": {"items": [{"question": "x", "solution": "y"}]}, "response": {"results": [{"steps": []}]}},
            "a result has no scale",
        ),
    ],
)
def test_files_that_are_no_results_are_errors(page: Page, content: str | dict[str, object], said: str) -> None:
    text = content if isinstance(content, str) else json.dumps({"format": "surefoot-results-1"} | content)
    open_results(page, text)
    page.wait_for_selector(f"#problem:has-text('{said}')")
    assert page.locator("article").count() == 0


def saved_results(**changes: object) -> dict[str, Any]:
    """A file of results as the page saves it: one solution, with a step for each score."""
    scores = changes.pop("scores", [0.9])
    assert isinstance(scores, list)
    steps = [
        {"text": f"Step {at}", "score": each, "status": "scored", "spread": None, "members": []}
        for at, each in enumerate(scores)
    ]
    texts = {"status": "scored", "model": "m", "split": "lines", "scale": "probability"}
    nothing = dict.fromkeys(["reason", "answer", "calibration", *(each.name for each in AGGREGATIONS.values())])
    result = {**texts, **nothing, "steps": steps, "tokens": 3, "empty_steps": 0, "warnings": [], "outside": []}
    items = [{"question": "Why?", "solution": "So."}]
    response = {"results": [result | changes]}
    return {"format": "surefoot-results-1", "request": {"items": items}, "response": response}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"steps": [{"text": "x", "score": 0.5, "status": "scored", "spread": None}]}, "steps"),  # no members
        ({"steps": [None]}, "steps"),
        ({"scale": "constructor"}, "scale"),
        ({"scale": ["margin"]}, "scale"),
        ({"outside": [3]}, "outside"),
        ({"outside": [[0, -1]]}, "outside"),
        ({"warnings": [{}]}, "warnings"),
        ({"model": None}, "model"),
        ({"min": "0.5"}, "min"),
    ],
)
def test_every_field_of_opened_results_is_checked(page: Page, changes: dict[str, object], name: str) -> None:
    """The page stays as it was."""
    page.locator("#question").fill("Mine")
    open_results(page, json.dumps(saved_results(**changes)))
    page.wait_for_selector(f"#problem:has-text('a result has no {name}')")
    assert page.locator("#question").input_value() == "Mine"
    assert page.locator("article").count() == 0
    open_results(page, json.dumps(saved_results()))
    page.wait_for_selector("article")
    assert page.locator("#problem").is_hidden()


def test_huge_files_are_not_read(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    path.write_bytes(b" " * 20_000_001)
    page.locator("#open-file").set_input_files(path)
    page.wait_for_selector("#problem:has-text('It is larger than 20 MB')")


@pytest.mark.parametrize(
    ("scale", "scores", "expected"),
    [
        ("probability", [0.9, None, 0.2, 0.95], ["correct", "not scored", "wrong", "after an error"]),
        ("margin", [0.9, -0.1, 0.9], ["correct", "wrong", "after an error"]),
        ("log_ratio", [2.0, None, 3.0], ["correct", "not scored", "correct"]),
        ("log_ratio", [1e-320, -7.0, 3.0], ["correct", "wrong", "after an error"]),
    ],
)
def test_what_follows_any_error_is_not_judged(
    page: Page, scale: str, scores: list[float | None], expected: list[str]
) -> None:
    """Also if the first error is unknown, because an earlier step has no score."""
    open_results(page, json.dumps(saved_results(scale=scale, scores=scores)))
    page.wait_for_selector("article")
    kinds = page.locator(".step .mark").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert kinds == expected
    said = page.locator(".verdict").inner_text()
    assert said == ("– first error unknown" if None in scores else "✗ first error at step 2")


def paste(page: Page, text: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    page.locator("#question").click()
    page.keyboard.press("Control+v")


def test_jsonl_can_be_pasted(page: Page, scorer: surefoot.Scorer) -> None:
    lines = [{"question": QUESTION, "solution": f"{SOLUTION} {at}"} for at in range(5)]
    listed = {"question": "What is 2 + 3?", "steps": ["2 + 3 = 5.", "So it is 5."], "id": 7}
    paste(page, "".join(json.dumps(line) + "\n" for line in [*lines, listed]))
    page.wait_for_selector("article:nth-of-type(4)")
    assert page.locator("#question").input_value() == QUESTION
    assert page.locator("#solution-3").input_value() == lines[3]["solution"]
    options = page.locator("#pasted option").all_inner_texts()
    assert [text.rsplit("(")[-1] for text in options] == [
        "solutions 1 to 4 of 5)",
        "solutions 5 to 5 of 5)",
        "1 solution)",
    ]
    page.get_by_label("Pasted items").select_option("2")
    page.wait_for_selector("article:only-of-type")
    until(page, "document.querySelectorAll('.step').length === 2")
    expected = scorer.score("What is 2 + 3?", ["2 + 3 = 5.", "So it is 5."])
    shown = [float(value) for value in page.locator(".step .value").all_inner_texts()]
    assert shown == pytest.approx(expected.step_scores, abs=6e-4)
    # Anything else is pasted as text.
    page.locator("#question").fill("")
    paste(page, '{"question": "x"}')
    assert page.locator("#question").input_value() == '{"question": "x"}'


def test_pasted_lists_of_steps_stay_those_steps(page: Page) -> None:
    """Blank lines in a step, lines that end in CRLF, blank lines between them, and line separators of Unicode."""
    listed = {"question": "Q", "steps": ["a\r\n \r\n\nb\u2028c", "d\n\n", "e"], "solution": "ignored"}
    text = {"question": "Q", "solution": "one\n\ntwo\nthree"}
    paste(page, "\r\n".join([json.dumps(listed, ensure_ascii=False), "", json.dumps(text), " "]))
    until(page, "document.querySelectorAll('.step').length === 3")
    assert page.locator("#split").input_value() == "paragraphs"
    # The other solution is split as before.
    page.get_by_role("button", name="Next →").first.click()
    until(page, "document.querySelector('#solution-0').value.startsWith('one')")
    assert page.locator("#split").input_value() == "auto"


def test_a_bad_line_is_named(page: Page) -> None:
    lines = json.dumps({"question": "Q", "solution": "S"}) + '\n\n{"question": "Q"}\n'
    paste(page, lines)
    page.wait_for_selector("#problem:has-text('The lines were pasted as text. Line 3 is not JSON with `question`')")
    assert page.locator("#question").input_value() == lines
    open_results(page, lines)
    page.wait_for_selector("#problem:has-text('file.json cannot be opened. Line 3 is not JSON')")


# --- searches from files --------------------------------------------------------------------------------------------


def open_file(page: Page, name: str, text: str) -> None:
    """Choose a file. It is read when there is a tree or a problem."""
    page.locator("#search-file").set_input_files({"name": name, "mimeType": "", "buffer": text.encode()})
    page.wait_for_selector("#search-tree .st, #search-problem:not([hidden])")


def jsonl(records: Sequence[SearchRecord]) -> str:
    return "".join(json.dumps(each.to_dict()) + "\n" for each in records)


def test_a_file_of_searches_is_browsed_without_uploading_it(page: Page) -> None:
    records = random_records(3, nodes=40)
    sent: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    open_file(page, "searches.jsonl", jsonl(records) + "\n")
    assert page.locator("#search-status").inner_text() == "3 questions in searches.jsonl"
    assert page.locator("#search-text").inner_text() == records[0].question
    assert page.locator("#search-gold").inner_text() == "Reference answer: 14"
    assert page.locator("#search-previous").is_disabled()
    runs = ["beam 4x4", "dvts 4x4", "independent samples", "greedy decoding"]
    assert page.locator("#search-run option").all_inner_texts() == runs
    page.get_by_role("button", name="Next →").click()
    page.get_by_label("Run", exact=True).select_option("dvts 4x4")
    assert page.locator("#search-text").inner_text() == records[1].question
    tree = records[1].searches["dvts 4x4"]
    page.get_by_role("button", name="Expand all").click()
    assert page.locator("[role=treeitem]").count() == len(tree.nodes) - 1
    assert f"Answer: {tree.answer}" in page.locator(".st-said").inner_text()
    assert page.locator(".st-tag", has_text="subtree").count() == 4
    page.get_by_role("button", name="Next →").click()
    assert page.locator("#search-run").input_value() == "dvts 4x4"
    assert page.locator("#search-next").is_disabled()
    page.get_by_label("Item", exact=True).select_option("0")
    page.get_by_label("Run", exact=True).select_option("independent samples")
    assert page.locator("[role=treeitem]").count() == 16
    # The page asks the service nothing, and its content security policy has nothing to object to.
    assert sent == []
    assert messages == []


def test_one_result_or_a_list_of_records_can_be_opened(page: Page) -> None:
    (only,) = random_records(1, nodes=20)
    result = only.searches["beam 4x4"]
    open_file(page, "result.json", json.dumps(result.to_dict(), indent=2))
    assert page.locator("#search-run option").all_inner_texts() == ["search"]
    assert page.locator(".st-row", has_text="★ selected").count() == 1
    open_file(page, "records.json", json.dumps([only.to_dict(), only.to_dict()]))
    page.wait_for_selector("#search-status:has-text('2 questions in records.json')")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The file is empty."),
        ('{"question": "x"}', "The file is neither the result of a search nor a record"),
        ('{"searches": {}}\nnot json', "Line 2 is not JSON"),
        ('[{"searches": {}}, 5]', "Item 2 is neither"),
        ('{"question": "x", "searches": {}}', "This question has no search."),
        ('{"nodes": []}', "it has no root"),
        (
            '{"nodes": [{"id": 0, "parent": null, "text": ""}, {"id": 1, "parent": 1, "text": ""}]}',
            "no parent before it",
        ),
        ('{"nodes": [{"id": 0, "parent": null, "text": ""}, {"id": 1, "parent": 0}]}', "node 1 has no text"),
        ('{"nodes": [{"id": 0, "parent": null, "text": ""}], "answers": [{"nodes": [3]}]}', "node that does not exist"),
    ],
)
def test_a_file_that_is_no_search_is_an_error(page: Page, text: str, said: str) -> None:
    open_file(page, "x.json", jsonl(random_records(1, nodes=10)))
    page.locator("#search-file").set_input_files({"name": "bad.json", "mimeType": "", "buffer": text.encode()})
    page.wait_for_selector(f"#search-problem:has-text('{said}')")
    assert page.locator("[role=tree]").count() == 0


def test_searches_are_never_markup(page: Page) -> None:
    (only,) = random_records(1, nodes=20)
    tree = only.searches["beam 4x4"]
    nodes = [replace(node, text=node.text and EVIL, answer=node.answer and EVIL, reason=EVIL) for node in tree.nodes]
    answers = [replace(each, answer=EVIL) for each in tree.answers[:1]]
    evil = replace(tree, nodes=tuple(nodes), answers=tuple(answers), warnings=(EVIL,), strategy={"name": EVIL})
    open_file(page, "x.jsonl", jsonl([replace(only, question=EVIL, gold=EVIL, searches={EVIL: evil})]))
    page.get_by_role("button", name="Expand all").click()
    assert EVIL.splitlines()[0] in page.locator("#search-text").inner_text()
    assert EVIL.splitlines()[0] in page.locator(".st-row").first.inner_text()
    assert page.title().startswith("Surefoot")
    assert page.locator("#search-tree img, #search-tree script").count() == 0


def test_searches_fit_small_screens_and_the_keyboard(page: Page) -> None:
    open_file(page, "searches.jsonl", jsonl(random_records(2, nodes=60)))
    page.get_by_role("button", name="Expand all").click()
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        assert page.evaluate(LOW_CONTRAST) == [], theme
    page.emulate_media(color_scheme="light")
    for width in (320, 360, 900):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".st-row").first.click()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "treeitem"
    page.keyboard.press("Home")
    seen = page.locator("[role=treeitem]:focus > .st-row").bounding_box()
    assert seen is not None
    assert 0 <= seen["y"] < 740, "the focused node is on the screen"
    # Scoring works next to it.
    score(page, QUESTION, SOLUTION)
    assert page.locator("[role=tree]").count() == 1


# The contrast of all text with its background, as defined by WCAG 2, and that of the borders of controls, which may be
# lower.
CONTRAST = """() => {
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const low = [];
  const note = (element, what, text, least) => {
    const ratio = contrast(colour(text), ground(element));
    if (ratio < least) low.push(`${what} ${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("[hidden], svg, .unseen, :disabled") || !element.offsetParent) continue;
    note(element, "text", getComputedStyle(element).color, 4.5);
  }
  for (const element of document.querySelectorAll("button:enabled, select, textarea")) {
    if (!element.matches(".primary")) note(element, "edge", getComputedStyle(element).borderTopColor, 3);
  }
  for (const element of document.querySelectorAll("textarea")) {
    note(element, "placeholder", getComputedStyle(element, "::placeholder").color, 4.5);
  }
  return low;
}"""


def test_an_ensemble_shows_what_its_members_gave(
    mini: surefoot.Scorer,
    checkpoint: Path,
    browser_page: Page,  # noqa: F811
) -> None:
    """Their names are shown as text. The last step is too long for the second member, which says so."""
    solution, length = SOLUTION, load_local(checkpoint).score(QUESTION, SOLUTION).tokens
    other = load_local(checkpoint, name="<b>other</b>", max_tokens=length - 4)
    members = [mini.score(QUESTION, solution), other.score(QUESTION, solution)]
    assert {step.status for step in members[1].steps} == {"scored", "over_length"}
    with served([Ensemble([mini, other])]) as (url, _):
        score(opened(browser_page, url), QUESTION, solution)
        shown = browser_page.locator(".step .members").all_inner_texts()
        assert browser_page.locator(".step b").count() == 0
    for first, second, line in zip(members[0].steps, members[1].steps, shown, strict=True):
        assert first.score is not None
        if second.score is None:
            reason = f"no score ({members[1].reason})"
            assert line == f"mini {first.score:.3f} · <b>other</b> {reason}"
        else:
            spread = abs(first.score - second.score) / 2**0.5  # of two numbers
            assert line == f"mini {first.score:.3f} · <b>other</b> {second.score:.3f} · spread {spread:.3f}"
