"""A scored solution as HTML."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.browser import browser_page  # noqa: F401
from surefoot import SolutionScore, StepScore
from surefoot.display.colour_scale import BUCKETS, bucket, colour, contrast

if TYPE_CHECKING:
    from playwright.sync_api import Page

NASTY = "<script>alert(1)</script> <extra_0> \"quoted\" & 'single' \ud800"


def solution(*scores: float | None) -> SolutionScore:
    steps = tuple(
        StepScore(f"{NASTY} {at}", 0, 1, score, "scored" if score is not None else "over_length", at)
        for at, score in enumerate(scores)
    )
    return SolutionScore(steps, f"model {NASTY}", reason=NASTY, warnings=(NASTY,))


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_every_step() -> None:
    found = Reader(solution(0.93, 0.21, None)._repr_html_())
    assert found.tags == {"div", "ol", "li", "span"}
    assert found.names == {"class", "style"}
    assert found.text.count(escape_free(NASTY)) == 6  # three steps, the model, the reason, the warning
    assert "0.930" in found.text
    assert "0.210" in found.text
    assert "over length" in found.text
    assert found.text.count("✗ first error") == 1
    assert "first error at step 2" in found.text
    assert "mean none" in found.text


def escape_free(text: str) -> str:
    return text.replace("\ud800", "?")


@pytest.mark.parametrize(
    ("scores", "words"), [((0.9, 0.8), "no error found"), ((0.9, None), "first error unknown"), ((), "mean none")]
)
def test_what_is_said_of_the_first_error(scores: tuple[float | None, ...], words: str) -> None:
    assert words in solution(*scores)._repr_html_()


def test_the_first_error_is_that_of_the_scale() -> None:
    step = StepScore("a", 0, 1, 0.3, "scored", 0)
    assert "no error found" in SolutionScore((step,), "m", scale="margin")._repr_html_()
    assert "first error at step 1" in SolutionScore((step,), "m")._repr_html_()


def test_raw_scores_are_at_hand() -> None:
    step = StepScore("a", 0, 1, 0.4, "scored", 0, raw=0.8765)
    text = SolutionScore((step,), "m", calibration="isotonic-1")._repr_html_()
    assert "raw score 0.8765" in text
    assert "calibrated: isotonic-1." in text


def test_every_colour_can_be_read() -> None:
    for dark in (False, True):
        shades = [colour(number, dark=dark) for number in range(BUCKETS)]
        assert len({back for back, _ in shades}) == BUCKETS
        for back, ink in shades:
            assert contrast(back, ink) >= 4.5


def test_errors_stand_out_on_dark_pages() -> None:
    card = "#1a2029"
    undecided, error = (contrast(colour(number, dark=True)[0], card) for number in (5, 0))
    assert undecided < error


@pytest.mark.parametrize(
    ("score", "scale", "place"),
    [
        (0.0, "probability", 0),
        (0.5, "probability", 5),
        (1.0, "probability", 10),
        (-1.0, "margin", 0),
        (0.0, "margin", 5),
        (0.0, "log_ratio", 5),
        (99.0, "log_ratio", 10),
        (-9e9, "log_ratio", 0),
    ],
)
def test_the_place_on_the_scale(score: float, scale: str, place: int) -> None:
    assert bucket(score, scale) == place


def test_text_is_escaped() -> None:
    html = solution(0.9)._repr_html_()
    assert (
        html.count("&lt;script&gt;alert(1)&lt;/script&gt; &lt;extra_0&gt; &#34;quoted&#34; &amp; &#39;single&#39; ?")
        == 4
    )


def test_it_needs_neither_matplotlib_nor_torch() -> None:
    program = (
        "import sys; from surefoot import SolutionScore, StepScore; "
        "SolutionScore((StepScore('a', 0, 1, 0.5, 'scored', 0),), 'm')._repr_html_(); "
        "assert not {'matplotlib', 'torch'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_in_a_browser(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    place = tmp_path / "x.html"
    place.write_text(f"<!doctype html><meta charset=utf-8><body>{solution(0.95, 0.05, None)._repr_html_()}", "utf-8")
    browser_page.goto(place.as_uri())
    chips = browser_page.locator("li > span:nth-child(2)")
    assert chips.all_inner_texts() == ["0.950", "0.050", "over length"]
    colours = chips.evaluate_all("(all) => all.map((chip) => getComputedStyle(chip).backgroundColor)")
    assert len(set(colours)) == 3


@pytest.mark.parametrize(
    ("text", "typeset"),
    [
        ("It costs $5 and $7.", []),
        ("$5, so $x^2$ and \\(<b>\\)", ["$x^2$", "\\(<b>\\)"]),
        ("\\[\\frac12\\]", ["\\[\\frac12\\]"]),
        ("\\(20% of 50\\) \\(20\\%\\) \\(a \\\\% b\\)", ["\\(20\\%\\)"]),
        ("\\boxed{\\frac12}", ["\\(\\boxed{\\frac12}\\)"]),
        ("$\\href{javascript:alert(1)}{x}$ $\\style{color: red}{x}$ $\\def\\x{y}\\x$", []),
    ],
)
def test_notebooks_typeset_formulas_and_nothing_else(text: str, typeset: list[str]) -> None:
    html = SolutionScore((StepScore(text, 0, 1, 0.9, "scored", 0),), "m")._repr_html_()
    marked = re.findall(r'<span class="tex2jax_process mathjax_process">(.*?)</span>', html)
    assert [unescape(each) for each in marked] == typeset
    assert re.match(r'\s*<div class="tex2jax_ignore mathjax_ignore"', html)
    assert text in Reader(html).text


def test_notebooks_draw_boxes_around_plain_answers_themselves() -> None:
    step = StepScore("So \\boxed{<b>46}.", 0, 1, 0.9, "scored", 0)
    html = SolutionScore((step,), "m")._repr_html_()
    assert re.search(r'<span style="border:1px solid currentColor[^"]*">&lt;b&gt;46</span>\.', html)
    assert "boxed" not in html


def test_scores_after_the_first_error_have_no_colour() -> None:
    html = solution(0.93, 0.21, 0.97)._repr_html_()
    chips = re.findall(r'<span style="flex:none;min-width:3.1em;([^"]*)">([^<]*)</span>', html)
    assert [text for _, text in chips] == ["0.930", "0.210", "0.970"]
    assert ["background" in style for style, _ in chips] == [True, True, False]
