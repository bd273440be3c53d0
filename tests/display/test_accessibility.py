"""No page has accessibility findings, in light and dark colours, on wide and narrow screens and at 200 % zoom."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

import surefoot
from helpers.axe import findings
from helpers.browser import browser_page  # noqa: F401  (a fixture)
from helpers.review_folder import reviewed, write_labels
from helpers.search_records import random_records
from helpers.serving import served
from surefoot import evaluate
from surefoot.evaluate.search import compare_searches, search_report_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHECKED: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 320))
"""Colours and widths. 320 CSS pixels are a window of 1280 pixels at 400 % zoom, which WCAG 1.4.10 asks for."""


LONG = "\\[" + " + ".join(f"x_{{{at}}}" for at in range(60)) + "\\]"
"""A formula that has to scroll."""


def check(page: Page, *states: Callable[[], Any]) -> None:
    """Bring the page into one state after the other, and check each of them."""
    for enter in states:
        enter()
        for scheme, width in CHECKED:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": 800})
            assert findings(page) == [], (scheme, width)
        for width in (640, 320):  # 200 % and 400 % zoom
            page.set_viewport_size({"width": width, "height": 400})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.fixture
def page(browser_page: Page) -> Page:  # noqa: F811
    browser_page.set_viewport_size({"width": 1280, "height": 800})
    return browser_page


def test_the_page_of_the_service(mini: surefoot.Scorer, page: Page) -> None:
    def one() -> None:
        page.get_by_label("Question").fill("What is $x^2$ for x = 2?")
        page.locator("#solution-0").fill(
            "Step 1: 2 * 2 = 5.\nStep 2: So \\(x^2 = 5\\).\n" + LONG + "\nFinal Answer: \\boxed{5}"
        )
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("article")

    def two() -> None:
        page.get_by_role("button", name="Compare two solutions").click()
        page.wait_for_selector("article:nth-of-type(2)")

    def search() -> None:
        lines = "".join(json.dumps(each.to_dict()) + "\n" for each in random_records(2, nodes=30))
        page.locator("#search-file").set_input_files({"name": "x.jsonl", "mimeType": "", "buffer": lines.encode()})
        page.wait_for_selector("#search-tree .st")
        page.get_by_role("button", name="Expand all").click()

    def problem() -> None:
        for field in page.locator("#solutions textarea").all():
            field.fill("")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#problem:not([hidden])")

    with served([mini]) as (url, _):
        page.goto(url)
        check(page, lambda: page.wait_for_selector(".state.ready"), one, two, search, problem)
        page.goto("about:blank")


def test_the_review_of_labels(tmp_path: Path, page: Page) -> None:
    def judge() -> None:
        page.keyboard.press("w")
        page.wait_for_selector(".person.wrong")

    def keys() -> None:
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open]")

    with reviewed(write_labels(tmp_path / "labels")) as url:
        page.goto(url)
        check(page, lambda: page.wait_for_selector(".step.selected"), judge, keys)
        page.goto("about:blank")


def rows(count: int) -> Sequence[dict[str, Any]]:
    generator = np.random.default_rng(1)
    return [
        {
            "id": f"x-{at}",
            "problem": "What is $x^2$?",
            "steps": ["It is $5.", "\\[x^2 = 4\\]" + LONG],
            "label": at % 3 - 1,
            "scores": generator.random(2).tolist(),
            "split": ("gsm8k", "math")[at % 2],
            "generator": ("a", "b")[at // 2 % 2],
        }
        for at in range(count)
    ]


def test_reports(tmp_path: Path, page: Page) -> None:
    path = tmp_path / "report.html"
    evaluate.report(evaluate.processbench(None, rows(40), draws=20), path)
    page.goto(path.as_uri())
    unfold = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    check(page, lambda: page.wait_for_selector(".item"), lambda: page.evaluate(unfold))


def test_comparisons(tmp_path: Path, page: Page) -> None:
    data, path = tmp_path / "rows.jsonl", tmp_path / "compare.html"
    other = [row | {"other": [1 - score for score in row["scores"]]} for row in rows(40)]
    data.write_text("".join(json.dumps(row) + "\n" for row in other), encoding="utf-8")
    evaluate.write_comparison(evaluate.compare([], data, scores=["scores", "other"], draws=20), path)
    page.goto(path.as_uri())
    unfold = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    check(page, lambda: page.wait_for_selector(".item"), lambda: page.evaluate(unfold))


def test_reports_of_searches(tmp_path: Path, page: Page) -> None:
    records = random_records(3, nodes=30)
    path = tmp_path / "search.html"
    path.write_text(search_report_html(compare_searches(records, draws=20), records), encoding="utf-8")
    page.goto(path.as_uri())
    check(page, lambda: page.wait_for_selector(".item"), lambda: page.locator(".runs button").first.click())
