"""A real browser for tests of pages: headless Chromium, driven by Playwright.

Use it in a test module:

    from helpers.browser import browser_page  # noqa: F401  (a fixture)

    def test_it(browser_page: Page) -> None:
        browser_page.goto(path.as_uri())

Without Chromium these tests are skipped. If the environment variable CI is set they fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """Return the path of Chromium: the variable CHROMIUM if it is set, else the executable on the path."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One page of a browser with a fresh profile. Whatever a script throws fails the test that uses it at its end."""
    chromium = find_chromium()
    if chromium is None:
        message = "Chromium is not installed. Run `make browser`, or set CHROMIUM to the path of an executable."
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        profile = tmp_path_factory.mktemp("chromium")
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=chromium, args=list(FLAGS), chromium_sandbox=False
        )
        errors: list[str] = []
        page = context.pages[0] if context.pages else context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        context.close()
    assert not errors, errors
