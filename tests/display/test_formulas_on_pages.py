"""Formulas on every page that shows questions and steps, under its own content security policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401  (a fixture)
from helpers.review_folder import answered, reviewed, rolled, write_labels
from helpers.search_records import ROOT, of_nodes, record
from helpers.serving import served
from surefoot import evaluate
from surefoot.core.labels import LabelledSolution
from surefoot.core.search_result import NodeStep, SearchNode, SearchRecord, Spent
from surefoot.display.mathematics import katex_script
from surefoot.evaluate.search import compare_searches, search_report_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

QUESTION = "Rolls cost $2 and loaves $4. What is $\\frac{12}{4}$?"
STEPS = ("It costs $5 and $7, so \\(x^2 = 12\\).", "\\[\\sqrt{9} = 3\\]\nThen \\(\\undefined\\) stays.")
SHOWN = ("It costs $5 and $7, so ", "Then \\(\\undefined\\) stays.")


@pytest.fixture
def page(browser_page: Page) -> Page:  # noqa: F811
    """A page whose policy has nothing to object to."""
    browser_page.set_viewport_size({"width": 1280, "height": 900})
    return browser_page


def assert_formulas(page: Page, question: str, step: str) -> None:
    """The question has a fraction, and the steps a power and a root; amounts and unknown commands are text."""
    assert page.locator(f"{question} mfrac").count() == 1
    assert "Rolls cost $2 and loaves $4." in page.locator(question).inner_text()
    for text, tag, at in zip(SHOWN, ("msup", "msqrt"), (0, 1), strict=True):
        row = page.locator(step).nth(at)
        assert row.locator(tag).count() == 1
        assert text in row.inner_text()


def test_the_page_of_the_service(mini: surefoot.Scorer, page: Page) -> None:
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    with served([mini]) as (url, _):
        page.goto(url)
        page.wait_for_selector(".state.ready")
        page.get_by_label("Question").fill(QUESTION)
        page.locator("#solution-0").fill("\n\n".join(STEPS))
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("article")
        assert_formulas(page, "#asked", ".step .text")
        page.get_by_label("Question").fill("It costs $5 and $7.")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#asked", state="hidden")
        page.locator("#search-file").set_input_files(
            {"name": "x.jsonl", "mimeType": "", "buffer": json.dumps(searched().to_dict()).encode()}
        )
        page.wait_for_selector("#search-tree .st")
        assert_formulas(page, "#search-text", ".st-detail .st-full")
        assert page.locator(".st-row msup").count() == 1
    assert messages == []


def test_the_review_of_labels(tmp_path: Path, page: Page) -> None:
    steps = (rolled(f"{STEPS[0]}\n\n", 7, 1), answered(STEPS[1], True))
    text = "".join(step.text for step in steps)
    labelled = LabelledSolution(0, 0, QUESTION, "3", text, steps, outcome="right", answer="3")
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    with reviewed(write_labels(tmp_path / "labels", [labelled])) as url:
        page.goto(url)
        page.wait_for_selector(".step.selected")
        assert_formulas(page, "#question", ".step .text")
        page.keyboard.press("r")
        page.wait_for_selector(".person.right")
        assert_formulas(page, "#question", ".step .text")
        page.goto("about:blank")
    assert messages == []


def rows(question: str, steps: tuple[str, ...]) -> list[dict[str, Any]]:
    problem = {"problem": question, "steps": list(steps), "split": "x"}
    return [problem | {"id": f"x-{at}", "label": at - 1, "scores": [0.9, 0.2]} for at in range(3)]


def test_a_report(tmp_path: Path, page: Page) -> None:
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    path = tmp_path / "report.html"
    path.write_text(
        evaluate.report_html(evaluate.processbench(None, rows(QUESTION, STEPS), draws=10)), encoding="utf-8"
    )
    page.goto(path.as_uri())
    assert page.locator(".item").count() == 3
    assert_formulas(page, ".item:first-child .problem", ".item:first-child .text")
    assert "true first error" in page.locator(".item .flag").first.inner_text()
    page.locator("#search").fill("undefined")
    page.wait_for_selector("#count:has-text('of 3')")
    assert messages == []


def searched() -> SearchRecord:
    """Both steps in one node, so that the detail shows both."""
    steps = tuple(NodeStep(text, 0.9) for text in STEPS)
    only = SearchNode(1, 0, "\n\n".join(STEPS), "answer", tokens=7, steps=steps, fate="finished", answer="3")
    tree = of_nodes([ROOT, only], spent=Spent(7, 7, 1, 7, 7, 1), aggregation="min")
    return record({"beam": replace(tree, question=QUESTION)}, question=QUESTION, gold="3")


def test_a_report_of_searches(tmp_path: Path, page: Page) -> None:
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    path = tmp_path / "report.html"
    path.write_text(search_report_html(compare_searches([searched()], draws=10), [searched()]), encoding="utf-8")
    page.goto(path.as_uri())
    page.locator(".runs button").first.click()
    assert_formulas(page, ".problem", ".st-detail .st-full")
    assert messages == []


def test_a_report_without_formulas_has_no_script_for_them() -> None:
    katex = katex_script()
    for question, wanted in ((QUESTION, True), ("Rolls cost $2 and loaves $4.", False)):
        text = evaluate.report_html(evaluate.processbench(None, rows(question, ("It is $5.", "So $7.")), draws=10))
        assert (katex in text) == wanted


def test_snippets_of_a_tree_do_not_cut_formulas(tmp_path: Path, page: Page) -> None:
    start = "word " * 14  # 70 characters; a sibling shows 80
    texts = (f"{start}\\(x^2 + y^2 = 12 + 13\\), so", f"Short \\(x^2\\). {start}{start}", f"{start}{start}")
    nodes = [
        SearchNode(at, 0, text, "answer", tokens=7, fate="finished", answer="3") for at, text in enumerate(texts, 1)
    ]
    tree = of_nodes([ROOT, *nodes], spent=Spent(7, 7, 1, 7, 7, 1), aggregation="min")
    found = record({"beam": replace(tree, question=QUESTION)}, question=QUESTION, gold="3")
    path = tmp_path / "report.html"
    path.write_text(search_report_html(compare_searches([found], draws=10), [found]), encoding="utf-8")
    page.goto(path.as_uri())
    page.locator(".runs button").first.click()
    shown = [each.removeprefix("no score finished: ") for each in page.locator(".st-siblings li").all_inner_texts()]
    assert shown[0] == f"{start.rstrip()}…"
    assert page.locator(".st-siblings li").nth(1).locator("msup").count() == 1
    assert shown[2].endswith("word…")


def test_the_title_of_a_node_counts_its_steps(tmp_path: Path, page: Page) -> None:
    path = tmp_path / "report.html"
    path.write_text(search_report_html(compare_searches([searched()], draws=10), [searched()]), encoding="utf-8")
    page.goto(path.as_uri())
    page.locator(".runs button").first.click()
    assert page.locator(".st-detail h3").inner_text().endswith("Steps 1–2")
    # A narrow screen shows the whole panel until a node is chosen; then it stays at the bottom, and scrolls.
    page.set_viewport_size({"width": 390, "height": 300})
    assert page.locator(".st-detail").evaluate("box => box.scrollHeight - box.clientHeight") <= 1
    page.locator(".st-row").first.click()
    page.locator(".st-detail[data-more='bottom']").wait_for()
