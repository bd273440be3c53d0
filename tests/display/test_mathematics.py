"""Which parts of a text are formulas, and how a browser renders them under a strict content security policy."""

from __future__ import annotations

import re
import subprocess
import time
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.browser import browser_page  # noqa: F401  (a fixture)
from surefoot.display.mathematics import (
    MAX_CHARS,
    contains_mathematics,
    mathematics_script,
    mathematics_style,
    segments,
)
from surefoot.display.page_files import elements_script

if TYPE_CHECKING:
    from playwright.sync_api import Page

KATEX_SHA256 = "fa140498b8cfc8302cbe5e7cb1bdbc1f952bc38b3fa258ede09e73edbf9a74bc"
"""Of dist/katex.min.js in the npm package katex 0.19.1."""

CASES = [
    # Amounts of money, as in GSM8K.
    ("$5 and $7", []),
    ("She pays $5, he pays $7.", []),
    ("between $5-$10", []),
    ("It costs $5.", []),
    ("$2.50 (or in C$)", []),
    ("12 * 2 = $<<12*2=24>>24, and $24+$6=$<<24+6=30>>30", []),
    ("4*20 = $<<4*20=80>>80$.", []),
    ("from $5 to 10$ each", []),
    ("$5 or 5$", []),
    ("10$ and 12$", []),
    ("10$+12$", []),
    ("$3 \\times $2", []),
    ("$3\\times$2", []),
    ("$5/$x", []),
    ("$5 for each x_i and the rest, or US$", []),
    ("$100 - $20 = $80 for 2^3 apples", []),
    ("a $$ restaurant is not a $$$ one", []),
    ("restaurants with $$ and others with $$ are", []),
    ("\\$5 and \\$7", []),
    ("$", []),
    ("$$", []),
    ("$$$$", []),
    ("$ x $", []),
    ("$x\n\ny$", []),
    # Formulas.
    ("$5 and $x^2$", ["x^2"]),
    ("costs $5, so $x = 5$.", ["x = 5"]),
    ("$x$", ["x"]),
    ("The answer is $12$.", ["12"]),
    ("$50\\%$ of $n$", ["50\\%", "n"]),
    ("$AB = CD$", ["AB = CD"]),
    ("$(x, y)$ and $f(x)$", ["(x, y)", "f(x)"]),
    ("$3xy$", ["3xy"]),
    ("2$\\times$x", ["\\times"]),
    ("$x \\text{ if the sum is odd}$", ["x \\text{ if the sum is odd}"]),
    ("$\\text{cost } = \\$5$", ["\\text{cost } = \\$5"]),
    ("$a_1,\na_2$", ["a_1,\na_2"]),
    ("\\(5\\)", ["5"]),
    ("\\( x \\) and \\[ y \\]", ["x", "y"]),
    ("$$x + y$$", ["x + y"]),
    (
        "$$\n\\begin{aligned} a &= b \\\\[2pt] &= c \\end{aligned}\n$$",
        ["\\begin{aligned} a &= b \\\\[2pt] &= c \\end{aligned}"],
    ),
    ("\\(a \\) b \\)", ["a"]),
    # Delimiters that do not belong together.
    ("\\(x", []),
    ("\\(x\\]", []),
    ("\\( \\(x\\)", ["x"]),
    ("\\\\(x\\\\)", []),
    ("\\(\\)", []),
    ("x^2 and a_1", []),
    # Boxes, which models write without delimiters.
    ("The answer is \\boxed{46}.", ["\\boxed{46}"]),
    ("\\boxed{\\frac{1}{2}} or \\boxed{x_{1}}", ["\\boxed{\\frac{1}{2}}", "\\boxed{x_{1}}"]),
    ("It costs $5, so \\boxed{\\$5} and not $7.", ["\\boxed{\\$5}"]),
    ("$\\boxed{5}$ and \\(\\boxed{6}\\)", ["\\boxed{5}", "\\boxed{6}"]),
    ("\\boxed{\\text{the first of them}}", ["\\boxed{\\text{the first of them}}"]),
    ("\\boxed{the first of them}", []),
    ("\\boxed{\\}}", ["\\boxed{\\}}"]),
    ("\\boxed{5", []),
    ("\\boxed{{5}", []),
    ("\\boxed{ }", []),
    ("\\boxed 5, \\boxedx{5} and \\\\boxed{5}", []),
    ("\\boxed{1 \\boxed{2}}", ["\\boxed{2}"]),
    ("\\boxed{" + "5" * MAX_CHARS + "}", []),
    ("\\(" + "x" * (MAX_CHARS + 1) + "\\)", []),
    ("", []),
]
"""A text, and the formulas in it."""

HOSTILE = [
    "\\href{javascript:document.title='gone'}{x}",
    "\\url{javascript:document.title='gone'}",
    "\\htmlData{onclick=1}{x}",
    "\\htmlClass{x}{y}",
    "\\htmlStyle{position: fixed}{x}",
    "\\includegraphics{http://127.0.0.1/x.png}",
    "\\def\\a{\\a\\a}\\a",
    "\\undefined",
    "\\frac{1}",
    "{" * 4900,
    "\\def\\a#1{}\\a{hidden}",
    "\\newcommand{\\a}{x}\\a",
    "\\let\\a=x\\a",
    "\\def\\a{" + "x" * 3000 + "}" + "\\a" * 600,  # 1.8 million characters
    "\\boxed{" * 100 + "x" + "}" * 100,  # took half a minute
]
"""Formulas that must be shown as their source."""

KEPT = [
    ("\\text{<script>document.title=1</script>}", "<script>document.title=1</script>"),
    ("\\text{<img src=x onerror=alert(1)>}", "<img src=x onerror=alert(1)>"),
    ("\\color{white} x", "x"),
    ("\\textcolor{white}{x}", "x"),
    ("\\colorbox{black}{x}", "x"),
    ("\\fcolorbox{red}{white}{x}", "x"),
    ("\\pmb{x}", "𝒙"),
    ("\\mathbb{R}\\mathbb{k}\\mathbf{v2}\\mathcal{L}\\mathcal{A}\\mathfrak{g}", "ℝ𝕜𝐯𝟐ℒ𝒜𝔤"),
    ("\\rule{9000em}{9000em}x", "x"),
    ("\\boxed{12}", "12"),
    ("\\boxed{" * 20 + "x" + "}" * 20, "x"),
    ("20% \\cdot 50 = 10", "20%⋅50=10"),
    ("20\\% + 5% = 25\\%", "20%+5%=25%"),
    ("1 \\\\% 2", "1%2"),
]
"""Formulas that are rendered, and their text."""


@pytest.mark.parametrize(("text", "formulas"), CASES)
def test_formulas_are_found(text: str, formulas: list[str]) -> None:
    found = segments(text)
    assert [part.formula for part in found if part.formula is not None] == formulas
    assert "".join(part.source for part in found) == text
    assert contains_mathematics([text]) == bool(formulas)


@pytest.mark.parametrize(
    "text",
    [
        "\\(" * 60_000,
        "$x " * 60_000,
        "\\(" * 60_000 + "\\)",
        "$" * 100_000,
        "\\" * 100_001,
        f"${'a' * 4990}$ " * 200,
        "\\boxed{" * 60_000,
    ],
)
def test_long_texts_take_linear_time(text: str) -> None:
    started = time.perf_counter()
    segments(text)
    assert time.perf_counter() - started < 5


def test_katex_is_as_published() -> None:
    folder = files("surefoot.display").joinpath("static").joinpath("katex")
    assert sha256(folder.joinpath("katex.min.js").read_bytes()).hexdigest() == KATEX_SHA256
    assert "MIT License" in folder.joinpath("LICENSE").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(browser_page: Page, tmp_path_factory: pytest.TempPathFactory) -> Page:  # noqa: F811
    """A page that allows scripts and styles from its own folder, and nothing else."""
    folder: Path = tmp_path_factory.mktemp("page")
    for name, text in (("e.js", elements_script()), ("m.js", mathematics_script()), ("m.css", mathematics_style())):
        (folder / name).write_text(text, encoding="utf-8")
    policy = "default-src 'none'; script-src file:; style-src file:"
    (folder / "page.html").write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<link rel="stylesheet" href="m.css"><script src="e.js"></script><script src="m.js"></script>'
        "<title>here</title><p id=box></p>",
        encoding="utf-8",
    )
    browser_page.goto((folder / "page.html").as_uri())
    return browser_page


def test_the_script_finds_the_same_formulas(page: Page) -> None:
    for text, _ in CASES:
        expected = [
            {"source": part.source, "formula": part.formula, "display": part.display} for part in segments(text)
        ]
        assert page.evaluate("(text) => mathematics.segments(text)", text) == expected, text


def rendered(page: Page, text: str) -> None:
    page.evaluate("(text) => document.getElementById('box').replaceChildren(...mathematics.nodes(text))", text)


@pytest.mark.parametrize("formula", HOSTILE)
def test_what_cannot_be_rendered_is_shown_as_it_is(page: Page, formula: str) -> None:
    text = f"before \\({formula}\\) after"
    rendered(page, text)
    assert page.evaluate("document.getElementById('box').textContent") == text
    assert page.locator("#box *").count() == 0


@pytest.mark.parametrize(("formula", "text"), KEPT)
def test_formulas_bring_neither_markup_nor_colours(page: Page, formula: str, text: str) -> None:
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    rendered(page, f"\\({formula}\\)")
    # The source is in an annotation, which browsers do not show.
    shown = page.evaluate("document.querySelector('#box semantics > mrow').textContent")
    assert shown.replace("\u00a0", " ") == text
    assert page.evaluate("document.querySelector('#box annotation').getClientRects().length") == 0
    forbidden = "#box script, #box img, #box a, #box [style], #box [href], #box [mathcolor], #box [mathbackground]"
    assert page.locator(forbidden).count() == ("rule" in formula)  # a rule is drawn in the colour of the text
    assert page.title() == "here"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert messages == []


def test_formulas_are_laid_out(page: Page) -> None:
    rendered(page, "so \\[\\frac{1}{2}\\]\nand \\(\\boxed{x}\\)")
    top, bottom = (page.locator(f"#box mfrac > :nth-child({at})").bounding_box() for at in (1, 2))
    assert top is not None
    assert bottom is not None
    assert top["y"] + top["height"] <= bottom["y"] + 1, "the numerator is above the denominator"
    assert page.evaluate("getComputedStyle(document.querySelector('#box .display')).display") == "block"
    assert page.evaluate("getComputedStyle(document.querySelector('#box menclose')).borderTopWidth") == "1px"
    assert page.locator("#box .mathematics").first.get_attribute("title") == "\\[\\frac{1}{2}\\]"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\\(x^2\\).", "x2."),
        ("(\\(x\\)), so", "(x),"),
        ("\\boxed{46}!", "46!"),
        ("\\(c^2 = 3^2 + 4^2 = 9 + 16 = 25\\).", "25."),
    ],
)
def test_punctuation_stays_on_the_line_of_its_formula(page: Page, text: str, kept: str) -> None:
    page.set_viewport_size({"width": 320, "height": 400})
    rendered(page, text)
    lines = """() => { const box = document.getElementById('box'), found = [];
        for (let width = 8; width < 300; width += 2) {
          box.style.width = `${width}px`;
          const parts = document.querySelector('#box .unbroken:last-of-type').getClientRects();
          found.push(new Set([...parts].map((part) => Math.round(part.bottom))).size);
        }
        return found; }"""
    assert set(page.evaluate(lines)) == {1}
    shown = """() => { const copy = document.querySelector('#box .unbroken:last-of-type').cloneNode(true);
        copy.querySelectorAll('annotation').forEach((each) => each.remove()); return copy.textContent; }"""
    assert page.evaluate(shown).endswith(kept)
    page.evaluate("document.getElementById('box').removeAttribute('style')")


def test_long_formulas_in_a_text_have_several_lines(page: Page) -> None:
    page.evaluate("document.getElementById('box').style.width = '110px'")
    rendered(page, "So \\(c^2 = 3^2 + 4^2 = 9 + 16 = 25\\).")
    assert page.evaluate("document.getElementById('box').scrollWidth") <= 110
    tops = page.locator("#box math").evaluate_all("all => all.map((one) => one.getBoundingClientRect().bottom)")
    assert len(tops) == 4
    assert tops[-1] > tops[0] + 10
    page.evaluate("document.getElementById('box').removeAttribute('style')")
    # The relations keep their spacing.
    rights = []
    for spaces in (1, 30):
        rendered(page, f"\\(a{' ' * spaces}= b + c\\)")
        assert page.locator("#box math").count() == (2 if spaces > 1 else 1)
        rights.append(page.evaluate("document.getElementById('box').lastChild.getBoundingClientRect().right"))
    assert rights[0] == pytest.approx(rights[1], abs=1)


def test_exponents_are_placed_by_a_math_font(page: Page) -> None:
    style = mathematics_style()
    wanted = set(re.findall(r'"([^"]* Math[^"]*)"', style))
    listed = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=False).stdout
    if not wanted & {name.strip() for line in listed.splitlines() for name in line.split(",")}:
        pytest.skip("No font for mathematics is installed.")
    rendered(page, "\\(3^2\\)")

    def overlap() -> float:
        """How far the exponent reaches down beside the digit, as a fraction of the digit's height."""
        base, exponent = (page.locator(f"#box msup > :nth-child({at})").bounding_box() for at in (1, 2))
        assert base is not None
        assert exponent is not None
        return (exponent["y"] + exponent["height"] - base["y"]) / base["height"]

    assert 0.3 < overlap() < 0.6  # TeX: 0.36
    page.evaluate("document.querySelector('#box math').style.fontFamily = 'sans-serif'")
    assert overlap() < 0.3, "another font has no rule for it"


def test_a_formula_that_is_cut_says_so(page: Page) -> None:
    terms = " + ".join(f"x_{{{at}}}^2" for at in range(60))
    for text in (f"\\[{terms}\\]", f"\\({terms}\\)"):
        page.evaluate("document.getElementById('box').className = 'text'")
        page.evaluate("document.getElementById('box').style.overflowX = 'auto'")
        rendered(page, text)
        cut = page.locator("#box[data-more='right'], #box [data-more='right']")
        cut.wait_for()
        assert cut.get_attribute("tabindex") == "0"
        cut.evaluate("box => { box.scrollLeft = 40; }")
        cut = page.locator("#box[data-more='left right'], #box [data-more='left right']")
        cut.wait_for()
        cut.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        page.locator("#box[data-more='left'], #box [data-more='left']").wait_for()
        rendered(page, "\\[x\\]")
        page.locator("#box:not([data-more]):not([tabindex]) .display:not([data-more]):not([tabindex])").wait_for()
    page.evaluate("document.getElementById('box').removeAttribute('style')")


def test_only_the_texts_of_an_element_are_replaced(page: Page) -> None:
    page.evaluate(
        """() => {
          const flag = pageElements.make("span", { text: "$x^2$" });
          document.getElementById("box").replaceChildren("It costs $5: $y^2$ ", flag);
          mathematics.typeset(document.getElementById("box"));
        }"""
    )
    assert page.locator("#box > .mathematics").count() == 1
    assert page.locator("#box > span:not(.mathematics)").inner_text() == "$x^2$"
    assert page.evaluate("document.getElementById('box').firstChild.data") == "It costs $5: "
