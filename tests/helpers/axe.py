"""Accessibility findings of a page, by axe-core (vendored in `tests/assets`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).parent.parent / "assets" / "axe-core" / "axe.min.js"

RUN = """() => axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations.flatMap((each) =>
  each.nodes.map((node) => `${each.id}: ${node.target.join(" ")}: ${node.failureSummary}`)))"""


@cache
def _source() -> str:
    return AXE.read_text(encoding="utf-8")


def findings(page: Page) -> list[str]:
    """Return one line per element that violates a rule. Scripts of the test are not subject to the page's policy."""
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": f"{_source()}; undefined"})
    session.detach()
    found: list[str] = page.evaluate(RUN)
    return found
