"""A review in a real browser: keys, mouse, filters, undo, export, scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401  (a fixture)
from helpers.review_folder import BAKER, reviewed, solutions, write_labels
from helpers.review_page import opened, press, said, saved, verdicts
from surefoot.labelling.review.corrections import Change, Corrections
from surefoot.labelling.review.labels import key_of
from surefoot.train.readers import read_examples

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels")


@pytest.fixture
def page(folder: Path, browser_page: Page) -> Iterator[Page]:  # noqa: F811
    with reviewed(folder) as url:
        yield opened(browser_page, url)
        browser_page.goto("about:blank")


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
    expected = [(0, 0, 0, "right"), (0, 0, 1, "right"), (0, 0, 2, "wrong")]
    expected += [(0, 1, 0, "right"), (0, 1, 1, "wrong"), (0, 1, 2, "unsure"), (1, 0, 0, "wrong"), (1, 0, 1, "right")]
    expected += [(2, 0, 0, "unsure"), (2, 0, 1, "unsure")]
    undone = [(2, 0, 1, None), (2, 0, 0, None), (1, 0, 1, None)]
    page.wait_for_selector(".step:nth-child(2) .person.open")
    page.wait_for_selector(".saving", state="detached")
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
    said(page, "Step 1: right. Saved.")
    press(page, "k")
    page.wait_for_selector(".step.selected[data-step='0']")
    assert saved(folder) == [(0, 0, 0, "right")]


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
