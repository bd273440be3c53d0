"""The review page, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401  (a fixture)
from helpers.contrast import LOW_CONTRAST
from helpers.review_folder import BAKER, reviewed, solutions, write_labels
from surefoot.labelling.review.corrections import Change, Corrections
from surefoot.labelling.review.labels import key_of
from surefoot.train.readers import read_examples

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

EVIL = "<img src=x onerror=document.title='gone'><script>document.title='gone'</script>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels")


@pytest.fixture
def page(folder: Path, browser_page: Page) -> Iterator[Page]:  # noqa: F811
    with reviewed(folder) as url:
        yield opened(browser_page, url)
        browser_page.goto("about:blank")


def opened(page: Page, url: str) -> Page:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(reduced_motion="reduce", color_scheme="light")
    page.goto(url)
    page.wait_for_selector(".step.selected")
    return page


def press(page: Page, keys: str) -> None:
    """Press keys one after the other, without waiting for what they do."""
    for key in keys.split():
        page.keyboard.press(key)


def saved(folder: Path) -> list[tuple[int, int, int, str | None]]:
    """What is in the file: index and number of the solution, step, verdict."""
    lines = map(json.loads, (folder / "corrections.jsonl").read_text().splitlines())
    return [(line["index"], line["number"], line["step"], line["verdict"]) for line in lines]


def verdicts(page: Page) -> list[str]:
    return page.locator(".person").all_inner_texts()


def said(page: Page, text: str) -> None:
    """Wait for what the page tells screen readers."""
    page.wait_for_selector(f"#said:has-text('{text}')", state="attached")


def selected(page: Page) -> str | None:
    return page.locator(".step.selected").get_attribute("data-step")


def test_a_review_by_keyboard(page: Page, folder: Path, tmp_path: Path) -> None:
    assert page.locator("#question").inner_text() == BAKER
    assert "44" in page.locator("#about").inner_text()
    facts = page.locator(".step").nth(1).inner_text().replace("\u00a0", " ")
    assert "6 of 7 right · 86 %, 95 % interval 49 % to 97 % · not counted: 1 cut off" in facts  # Wilson, by hand
    assert page.locator(".step.first").count() == 0
    press(page, "r w")
    said(page, "Step 2: wrong. Saved.")
    assert verdicts(page) == ["✓ right", "✗ wrong", "no verdict"]
    assert "Step 2 · first error" in page.locator(".step.first").inner_text()
    assert page.locator("#errors").inner_text().split("\n") == ["labels: no error", "corrected: first error at step 2"]
    press(page, "n")
    page.wait_for_selector("#title:has-text('Question 1, solution 2')")
    assert "Step 2 · first error" in page.locator(".step.first").inner_text()
    press(page, "j r k j j j u")  # the last step has no next one
    said(page, "Step 3: unsure. Saved.")
    expected = [(0, 0, 0, "right"), (0, 0, 1, "wrong"), (0, 1, 1, "right"), (0, 1, 2, "unsure")]
    assert saved(folder) == expected
    assert page.locator("#progress").inner_text() == "1 of 4 reviewed · 1 confirmed · 2 changed · 1 unsure"

    page.reload()
    page.wait_for_selector("#title:has-text('Question 1, solution 2')")
    assert verdicts(page) == ["no verdict", "✓ right", "? unsure"]
    assert "first error by the labels" in page.locator(".step").nth(1).inner_text()
    press(page, "p")
    page.wait_for_selector("#title:has-text('Question 1, solution 1')")
    assert verdicts(page) == ["✓ right", "✗ wrong", "no verdict"]
    assert page.locator(".progress-mark").all_inner_texts() == ["●", "◐", "○", "○"]

    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    assert download.value.suggested_filename == "corrected.jsonl"
    download.value.save_as(tmp_path / "out.jsonl")
    assert [example.targets for example in read_examples(tmp_path / "out.jsonl")] == [
        (1.0, 0.0, None),
        (1.0, 1.0, None),
        (None, 1.0),
    ]
    assert saved(folder) == expected


def test_fast_keys_are_saved_in_order(page: Page, folder: Path) -> None:
    press(page, "r r w n r w u n w r n u u z z p z")
    page.wait_for_selector("#title:has-text('Question 2, solution 1')")
    said(page, "Undone. Saved.")
    assert page.locator(".saving").count() == 0
    expected = [(0, 0, 0, "right"), (0, 0, 1, "right"), (0, 0, 2, "wrong")]
    expected += [(0, 1, 0, "right"), (0, 1, 1, "wrong"), (0, 1, 2, "unsure"), (1, 0, 0, "wrong"), (1, 0, 1, "right")]
    expected += [(2, 0, 0, "unsure"), (2, 0, 1, "unsure")]
    undone = [(2, 0, 1, None), (2, 0, 0, None), (1, 0, 1, None)]
    page.wait_for_selector(".step:nth-child(2) .person.open")
    assert saved(folder) == [*expected, *undone]


def test_accept_clear_and_undo(page: Page, folder: Path) -> None:
    press(page, "n a")
    said(page, "2 labels accepted. Saved.")
    assert verdicts(page) == ["✓ right", "✗ wrong", "no verdict"]
    press(page, "k x")
    said(page, "Step 1: no verdict. Saved.")
    press(page, "z")
    said(page, "Undone.")
    assert verdicts(page) == ["✓ right", "✗ wrong", "no verdict"]
    press(page, "w r")  # step 1 is wrong, and then step 2 is right
    said(page, "Step 2: right. Saved.")
    press(page, "z z z")
    page.wait_for_selector("[data-do=undo]:disabled")
    assert verdicts(page) == ["no verdict"] * 3
    assert Corrections(folder).current() == {}
    press(page, "z")
    said(page, "There is nothing to undo.")


def test_the_mouse_and_the_filters(page: Page, folder: Path) -> None:
    def listed() -> list[str]:
        return page.locator(".entry .excerpt").all_inner_texts()

    assert len(listed()) == 4
    page.get_by_role("button", name="Disagreement 1").click()
    page.wait_for_selector("#title:has-text('Question 2, solution 1')")
    assert listed() == ["What is 7 * 8?"]
    assert "judge judge-7b: first error at step 1" in page.locator("#errors").inner_text()
    assert "0.040" in page.locator(".step").first.inner_text()
    page.get_by_role("button", name="Unknown 1").click()
    page.wait_for_selector("#title:has-text('Question 3, solution 1')")
    assert "8 of 8 rollouts cannot be judged." in page.locator(".step").first.inner_text()
    page.locator(".step").nth(1).click()
    page.get_by_role("button", name="Wrong").click()
    said(page, "Step 2: wrong. Saved.")
    page.locator(".step").nth(0).click()
    page.wait_for_selector(".step.selected[data-step='0']")
    page.get_by_role("button", name="Right").click()
    said(page, "Step 1: right. Saved.")
    page.wait_for_selector("[data-do=wrong][aria-pressed=true]")
    page.get_by_role("button", name="Not reviewed 3").click()
    page.wait_for_selector("#title:has-text('Question 1, solution 1')")
    assert len(listed()) == 3
    page.get_by_role("button", name="Accept all").click()
    said(page, "3 labels accepted.")
    assert len(listed()) == 3, "the solution stays until another one is opened"
    page.get_by_role("button", name="Next solution").click()
    page.wait_for_selector("#title:has-text('Question 1, solution 2')")
    assert len(listed()) == 2
    page.get_by_role("button", name="All 4").click()
    page.get_by_role("button", name="Solve 2x = 6.").click()
    page.wait_for_selector("#title:has-text('Question 3, solution 1')")
    assert (2, 0, 0, "right") in saved(folder)


def test_an_empty_filter(folder: Path, browser_page: Page) -> None:  # noqa: F811
    write_labels(folder, solutions()[:2])
    with reviewed(folder) as url:
        page = opened(browser_page, url)
        page.get_by_role("button", name="Disagreement 0").click()
        page.wait_for_selector("#empty:visible")
        press(page, "r n j")  # nothing to judge
        page.get_by_role("button", name="All 2").click()
        page.wait_for_selector(".step.selected")
        assert not (folder / "corrections.jsonl").exists()


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
    held: list[Route] = []
    page.route("**/api/solutions/0", held.append)
    press(page, "w j n r")
    page.wait_for_selector(".step.selected .person:has-text('saving')")
    assert verdicts(page) == ["saving…", "no verdict", "no verdict"]
    (only,) = held
    only.abort()
    page.wait_for_selector("#problem:has-text('Not saved (step 1)')")
    assert "3 later actions were ignored." in page.locator("#problem").inner_text()
    page.unroute_all()
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


def test_the_keys_can_be_shown_and_turned_off(page: Page, folder: Path) -> None:
    press(page, "?")
    page.wait_for_selector("#help:visible")
    assert "undo the last change" in page.locator("#help").inner_text()
    press(page, "w")  # keys do nothing behind the dialog
    page.get_by_label("Use these keys").uncheck()
    press(page, "Escape w")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Use these keys").check()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("Control+r")
    page.wait_for_selector(".step.selected")
    assert not (folder / "corrections.jsonl").exists()
    press(page, "u")
    said(page, "Step 1: unsure. Saved.")
    assert len(saved(folder)) == 1


def test_a_held_key_judges_one_step(page: Page, folder: Path) -> None:
    for _ in range(3):
        page.keyboard.down("r")  # without an up in between, this repeats
    page.keyboard.up("r")
    press(page, "k")
    page.wait_for_selector(".step.selected[data-step='0']")
    assert saved(folder) == [(0, 0, 0, "right")]


def test_phones_and_dark_mode(page: Page, folder: Path) -> None:
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    press(page, "r w u n")
    page.wait_for_selector("#title:has-text('solution 2')")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        assert page.evaluate(LOW_CONTRAST) == [], theme
        assert page.evaluate(LOW_CONTRAST.replace("main *", ".bar *, .top *")) == [], theme
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Colors").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark, "light was chosen"
    page.get_by_role("button", name="Colors").click()
    page.get_by_role("button", name="Colors").click()
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


def test_scores_of_a_model(folder: Path, browser_page: Page, mini: surefoot.Scorer) -> None:  # noqa: F811
    with reviewed(folder, mini) as url:
        page = opened(browser_page, url)
        press(page, "n")
        page.wait_for_selector("#title:has-text('solution 2')")
        page.wait_for_selector(f"#errors:has-text('scorer {mini.name}: first error at step 2')", timeout=60_000)
        score = mini.score(BAKER, [step.text.strip() for step in solutions()[1].steps]).steps[1].score
        assert score is not None
        assert f"Score\n{score:.3f}" in page.locator(".step").nth(1).inner_text()


def test_many_solutions_are_shown_in_parts(folder: Path, browser_page: Page) -> None:  # noqa: F811
    one = solutions()[0]
    many = [replace(one, index=index) for index in range(250)]
    write_labels(folder, many)
    Corrections(folder).save(key_of(many[120]), [Change(0, "wrong", None)])
    with reviewed(folder) as url:
        page = opened(browser_page, f"{url}/#120.0")
        page.wait_for_selector("#title:has-text('Question 121, solution 1')")
        assert page.locator("#range").inner_text() == "101–200 of 250"
        assert page.locator(".entry").count() == 100
        page.get_by_role("button", name="Later solutions").click()
        assert page.locator(".entry").count() == 50
        press(page, "n")
        page.wait_for_selector("#title:has-text('Question 122, solution 1')")
        assert page.locator("#range").inner_text() == "101–200 of 250"
