"""What tests do on the review page: open it, press keys, read what it shows and what is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


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
