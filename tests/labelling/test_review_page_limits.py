"""The review page in a real browser when things go wrong, on small screens and with hostile texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from helpers.browser import browser_page  # noqa: F401  (a fixture)
from helpers.contrast import LOW_CONTRAST
from helpers.review_folder import reviewed, solutions, write_labels
from helpers.review_page import opened, press, said, saved, selected, verdicts

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOLD = """() => {
  const real = window.fetch;
  window.fetch = () => new Promise((_, reject) => {
    window.refuse = () => { window.fetch = real; reject(new TypeError("Failed to fetch")); };
  });
}"""
"""Holds the next request until `refuse()` lets it fail, as it does if the network fails."""
EVIL = "<img src=x onerror=document.title='gone'><script>document.title='gone'</script>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels")


@pytest.fixture
def page(folder: Path, browser_page: Page) -> Iterator[Page]:  # noqa: F811
    with reviewed(folder) as url:
        yield opened(browser_page, url)
        browser_page.unroute_all(behavior="ignoreErrors")  # a failed test must not hold the requests of the next
        browser_page.goto("about:blank")


def test_what_cannot_be_saved_is_not_shown_as_saved(page: Page, folder: Path) -> None:
    press(page, "r")
    said(page, "Step 1: right. Saved.")
    file, away = folder / "corrections.jsonl", folder / "away"
    file.rename(away)
    file.mkdir()
    press(page, "w")
    page.wait_for_selector("#problem:has-text('Not saved (step 2)')")
    assert verdicts(page)[1] == "no verdict"
    assert selected(page) == "1"
    file.rmdir()
    away.rename(file)
    press(page, "w")
    said(page, "Step 2: wrong. Saved.")
    assert page.locator("#problem").is_hidden()
    assert saved(folder) == [(0, 0, 0, "right"), (0, 0, 1, "wrong")]


def test_keys_after_a_failure_are_ignored(page: Page, folder: Path) -> None:
    """They would act on another step than the person sees: the page returns to the one that was not saved."""
    page.evaluate(HOLD)
    press(page, "w j n r")
    page.wait_for_selector(".step.selected .person:has-text('saving')")
    assert verdicts(page) == ["saving…", "no verdict", "no verdict"]
    page.evaluate("refuse()")
    page.wait_for_selector("#problem:has-text('Not saved (step 1)')")
    assert "3 later actions were ignored." in page.locator("#problem").inner_text()
    press(page, "u")
    said(page, "Step 1: unsure. Saved.")
    assert "Question 1, solution 1" in page.locator("#title").inner_text()
    assert saved(folder) == [(0, 0, 0, "unsure")]


def test_a_server_that_is_gone(folder: Path, browser_page: Page) -> None:  # noqa: F811
    with reviewed(folder) as url:
        page = opened(browser_page, url)
    press(page, "w")
    page.wait_for_selector("#problem:has-text('does not answer')")
    assert verdicts(page) == ["no verdict"] * 3
    assert not (folder / "corrections.jsonl").exists()


def test_two_pages_at_once(page: Page, folder: Path) -> None:
    other = page.context.new_page()
    try:
        opened(other, page.url)
        press(page, "w")
        said(page, "Step 1: wrong. Saved.")
        press(other, "r")
        other.wait_for_selector("#problem:has-text('changed on another page: it is wrong now')")
        assert verdicts(other)[0] == "✗ wrong", "the current state is shown"
        press(other, "j u")
        said(other, "Step 2: unsure. Saved.")
        press(page, "j r")
        said(page, "Step 3: right. Saved.")
        assert verdicts(page) == ["✗ wrong", "? unsure", "✓ right"]
        assert saved(folder) == [(0, 0, 0, "wrong"), (0, 0, 1, "unsure"), (0, 0, 2, "right")]
    finally:
        other.close()


def test_texts_are_never_markup(folder: Path, browser_page: Page) -> None:  # noqa: F811
    one = solutions()[2]
    assert one.judge is not None
    steps = tuple(replace(step, text=EVIL, state="unknown", hard=None, reason=EVIL) for step in one.steps)
    judge = replace(one.judge, model=EVIL)
    write_labels(folder, [replace(one, id=EVIL, question=EVIL, gold=EVIL, answer=EVIL, steps=steps, judge=judge)])
    with reviewed(folder) as url:
        page = opened(browser_page, url)
        press(page, "r")
        said(page, "Saved.")
        for part in ("#question", "#title", "#about", "#errors", ".step .text", ".facts", ".excerpt"):
            assert EVIL in page.locator(part).first.inner_text(), part
        assert page.title() == "Surefoot: review of labels"
        assert page.locator("main img, main script").count() == 0


def test_no_other_host_and_no_violation_of_the_policy(page: Page) -> None:
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.reload()
    page.wait_for_selector(".step.selected")
    press(page, "r n")
    page.wait_for_selector("#title:has-text('solution 2')")
    origin = re.match(r"http://127\.0\.0\.1:\d+/", page.url)
    assert origin is not None
    assert len(requests) > 7
    assert [url for url in requests if not url.startswith(origin[0])] == []
    assert messages == []


def test_phones_and_dark_mode(page: Page, folder: Path) -> None:
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    press(page, "r w u n")
    page.wait_for_selector("#title:has-text('solution 2')")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        assert page.evaluate(LOW_CONTRAST) == [], theme
        assert page.evaluate(LOW_CONTRAST.replace("main *", ".bar *, .top *")) == [], theme
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark, "light was chosen"
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme").click()
    for width in (320, 360, 700, 980):
        page.set_viewport_size({"width": width, "height": 740})
        page.reload()
        page.wait_for_selector(".step.selected")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in ("Right", "Wrong", "Unsure", "Undo", "Next solution"):
            box = page.get_by_role("button", name=name).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= 740, "the buttons stay on the screen"
            assert width > 700 or box["height"] >= 36, "large enough for a finger"
    page.set_viewport_size({"width": 360, "height": 740})
    page.reload()
    page.wait_for_selector(".step.selected")
    assert page.locator("#list").is_hidden(), "the list is closed on a phone"
    for _ in range(3):
        page.get_by_role("button", name="Right").click()
    said(page, "Step 3: right. Saved.")
    row, bar = page.locator(".step.selected").bounding_box(), page.locator(".bar").bounding_box()
    assert row is not None
    assert bar is not None
    assert row["y"] + row["height"] <= bar["y"], "the selected step is not behind the buttons"
    page.emulate_media(color_scheme="light")


def test_screen_readers(page: Page) -> None:
    assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "step"
    press(page, "j")
    page.wait_for_selector(".step[data-step='1'][aria-current=step]:focus")
    assert page.locator("#said").get_attribute("aria-live") == "polite"
    assert page.locator("#problem").get_attribute("role") == "alert"
    unnamed: list[Any] = page.evaluate(
        "[...document.querySelectorAll('button, a, input')].filter((each) => !(each.textContent.trim() "
        "|| each.getAttribute('aria-label') || each.labels?.length)).map((each) => each.outerHTML)"
    )
    assert unnamed == []
    press(page, "r")
    page.wait_for_selector(".step[data-step='2']:focus")
