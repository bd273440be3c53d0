"""The report of a comparison of searches: its text, and the page in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.browser import browser_page  # noqa: F401
from helpers.contrast import LOW_CONTRAST
from helpers.search_records import ROOT, found, of_nodes, random_records, record, sample
from surefoot.core.search_result import Lookahead, NodeStep, SearchNode, SearchRecord, Spent
from surefoot.display.colour_scale import bucket, colour
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.search import SearchComparison, compare_searches, search_report_html, write_search_report

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

NASTY = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">&amp; </script> <!-- "
    '" \\ \ud800'
)
SEEN = NASTY.replace("\ud800", "?")


def node(at: int, parent: int, text: str, **fields: Any) -> SearchNode:
    """A node with one step, whose score is `score`."""
    score = fields.pop("score", 0.5)
    steps = () if score is None else (NodeStep(text.strip(), score),)
    return SearchNode(at, parent, text, **{"end": "step", "steps": steps, "tokens": 7} | fields)


def small_tree(text: str = "First we multiply: 3 * 4 = 12.") -> list[SearchNode]:
    """Every fate, merged continuations, a lookahead and subtrees."""
    ahead = Lookahead(f"{text} ahead", (NodeStep(f"{text} ahead", 0.31),), 9, "step")
    return [
        ROOT,
        node(1, 0, f"{text}\n\n", score=0.9, fate="expanded", subtree=0, lookahead=ahead),
        node(2, 0, "We add: 2 + 3 = 5.\n\n", score=0.2, fate="pruned", reason=f"rank 2 of 2; {text}", subtree=0),
        node(
            3,
            1,
            "Then 2 + 12 = 14.\n\nFinal Answer: 14",
            score=0.8,
            end="answer",
            fate="finished",
            answer="14",
            count=3,
        ),
        node(4, 1, "Then 2 + 12 = 15.\n\n", score=0.25, fate="expanded"),
        node(5, 1, "Then we", score=None, end="cut_off", fate="pruned", reason="cut off at max_tokens=64"),
        node(6, 1, "", score=None, end="error", fate="failed", reason="the server replied with status 500"),
        node(7, 4, "So it is 15.", score=0.1, end="answer", fate="finished", answer="15"),
        node(8, 4, "Let us see.\n\n", score=0.3, fate="open"),
    ]


def hand_made() -> list[SearchRecord]:
    """DVTS is right on the first two questions, the majority not on the second; the fourth is unfinished."""
    spent = Spent(100, 400, 6, 200, 800, 5)
    tree = of_nodes(small_tree(), spent=spent, strategy={"name": "dvts", "subtrees": 2}, aggregation="min")
    hostile = [replace(each, answer=NASTY if each.answer == "14" else each.answer) for each in small_tree(NASTY)]
    nasty = of_nodes(hostile, spent=spent, strategy={"name": NASTY}, aggregation="min", warnings=(NASTY,))
    right, wrong = [sample("14")] * 3, [sample("20")] * 3
    return [
        record({"dvts": tree, "beam": found("20", 40)}, right, greedy=found("14", 20), question="How many apples?"),
        record({"dvts": tree, "beam": found("20", 40)}, wrong, question="How many pears?", index=1),
        record({"dvts": nasty, "beam": found("14", 40)}, right, question=NASTY, index=2),
        record({"dvts": found(None, 50), "beam": found("14", 40)}, right, question="How many plums?", index=3),
        record({"beam": found("14", 40)}, question="How many figs?", index=4, gold=None),
    ]


@pytest.fixture(scope="module")
def comparison() -> SearchComparison:
    return compare_searches(hand_made(), draws=100)


@pytest.fixture(scope="module")
def place(comparison: SearchComparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report") / "report.html"
    details = {"temperature": "0.8", NASTY: NASTY}
    write_search_report(comparison, hand_made(), place, title="Search", command=f"surefoot {NASTY}", metadata=details)
    return place


class Tags(HTMLParser):
    """The tags of a page, its visible text, and the JSON in it by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, str] = {}
        self._at = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._at = dict(attrs).get("id") or "" if ("type", "application/json") in attrs else ""

    def handle_data(self, data: str) -> None:
        if self._at:
            self.data[self._at] = self.data.get(self._at, "") + data


def test_the_file_needs_nothing_else_and_no_text_becomes_structure(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    page = Tags(text)
    assert not [tag for tag, _ in page.tags if tag in ("img", "link", "iframe", "object", "embed", "base", "form")]
    assert not [name for _, given in page.tags for name in given if name.startswith("on") or name == "src"]
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert "default-src 'none'" in text
    scripts = [given.get("type") for tag, given in page.tags if tag == "script"]
    assert scripts == ["application/json"] * (1 + len(hand_made())) + [None]
    for data in page.data.values():
        assert "<" not in data
        json.loads(data)
    names = [given["id"] for _, given in page.tags if "id" in given]
    assert len(names) == len(set(names))


def test_the_tables_say_what_the_comparison_says(comparison: SearchComparison, place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    dvts = comparison.searches[0]
    assert dvts.accuracy.value == 2 / 4
    assert '<p class="label">dvts</p><p class="value">50.0%</p><p class="detail">accuracy\n' in text
    assert re.search(r'<p class="beside">-25.0 \[.*?\] points against majority', text)
    # Majority at equal tokens is right on the first, third and fourth question: one won, two lost.
    majority = dvts.baselines[0]
    assert (majority.accuracy.value, majority.difference.won, majority.difference.lost) == (3 / 4, 1, 2)
    row = re.search(r'<tr><th scope="row">majority of N</th>(.*?)</tr>', text)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[1])
    assert cells[0].startswith("75.0 [")
    assert cells[2].startswith("-25.0 [")
    assert cells[3:] == ["1", "2"]
    assert all(note.split(":")[0] in text for note in comparison.notes)


def test_the_same_comparison_is_the_same_file(comparison: SearchComparison) -> None:
    assert search_report_html(comparison, hand_made()) == search_report_html(comparison, hand_made())


def test_a_report_needs_its_own_records_and_a_place(comparison: SearchComparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="about 5 records, but 1"):
        search_report_html(comparison, hand_made()[:1])
    with pytest.raises(OptionError, match="is a folder"):
        write_search_report(comparison, hand_made(), tmp_path)


def test_five_hundred_trees_stay_small(tmp_path: Path) -> None:
    """One search of about 100 nodes with 25 words each, per question."""
    records = [
        replace(each, searches={"beam": each.searches["beam 4x4"]}) for each in random_records(50, nodes=100, words=25)
    ]
    nodes = sum(len(each.searches["beam"].nodes) for each in records)
    words = sum(len(at.text) for each in records for at in each.searches["beam"].nodes)
    write_search_report(compare_searches(records, draws=10), records, tmp_path / "x.html")
    trees = Tags((tmp_path / "x.html").read_text(encoding="utf-8")).data
    packed = sum(len(data) for name, data in trees.items() if name.startswith("tree-"))
    samples = sum(len(json.dumps(each.samples.to_dict())) for each in records if each.samples)
    assert packed < words + 75 * nodes + samples


# --- in a browser --------------------------------------------------------------------------------------------------


@pytest.fixture
def requests() -> list[str]:
    return []


@pytest.fixture
def page(browser_page: Page, place: Path, requests: list[str]) -> Iterator[Page]:  # noqa: F811
    page = browser_page
    messages: list[str] = []

    def note(request: Request) -> None:
        requests.append(request.url)

    page.emulate_media(color_scheme="light", media="screen")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto(place.as_uri())
    page.evaluate("localStorage.clear()")
    page.on("request", note)
    page.on("console", lambda message: messages.append(message.text))
    page.reload()
    yield page
    page.remove_listener("request", note)
    assert requests == [place.as_uri()], "the page loads itself and nothing else"
    assert messages == []


def open_run(page: Page, question: int, name: str) -> None:
    page.locator(f'article[data-at="{question}"] .runs button', has_text=name).click()


def focused(page: Page) -> str:
    """The start of the step that has the focus."""
    found: str = page.evaluate("document.activeElement.querySelector('.st-text').textContent")
    return found


def rows(page: Page) -> list[str]:
    """The visible nodes: what became of them."""
    return page.locator(".st-row:visible .st-kind").all_inner_texts()


def test_filters_and_search(page: Page) -> None:
    def shown(kind: str) -> list[str]:
        page.click(f'[data-kind="{kind}"]')
        found = [each.get_attribute("data-at") or "" for each in page.locator("article.item").all()]
        assert page.locator(f'[data-kind="{kind}"] b').inner_text() == str(len(found))
        return found

    assert shown("") == ["0", "1", "2", "3", "4"]
    assert shown("wrong") == ["2", "3"]
    assert shown("gained") == ["1"]
    assert shown("lost") == ["2", "3"]
    assert shown("unfinished") == ["3"]
    page.select_option("#label", label="beam")
    assert shown("unfinished") == []
    assert "No matches" in page.inner_text("#count")
    assert shown("gained") == []
    assert shown("wrong") == ["0", "1"]
    assert shown("lost") == ["0"]
    shown("")
    for words, expected in (
        ("PEARS", ["1"]),
        ("how figs", ["4"]),
        ("<script>document", ["2"]),
        ("2 + 12 = 15.", ["0", "1", "2"]),
    ):
        page.fill("#search", words)
        page.wait_for_timeout(250)
        assert [each.get_attribute("data-at") for each in page.locator("article.item").all()] == expected, words
    page.press("#search", "Escape")
    assert page.locator("article.item").count() == 5


def test_a_tree_opens_at_the_selected_path_and_children_are_rendered_when_needed(page: Page) -> None:
    assert page.locator("[role=tree]").count() == 0
    open_run(page, 0, "dvts")
    assert rows(page) == ["→ continued", "■ finished", "→ continued", "… cut off", "! failed", "× pruned"]
    assert page.locator("[role=treeitem]").count() == 6, "nodes below a closed one are not rendered"
    assert page.locator(".st-path").count() == 2
    assert page.locator(".st-row", has_text="★ selected").locator(".st-kind").inner_text() == "■ finished"
    page.locator(".st-row", has_text="= 15").locator(".st-twist").click()
    assert page.locator("[role=treeitem]").count() == 8
    assert "○ open" in rows(page)
    votes = [each.inner_text().split() for each in page.locator(".st-votes tbody tr").all()]
    # Three identical paths of 0.8 vote for 14.
    assert votes == [["14★", "selected", "3", "0.800", "2.400"], ["15", "1", "0.100", "0.100"]]
    facts = page.inner_text(".st > .st-facts")
    for fact in ("strategy\ndvts", "settings\nsubtrees 2", "nothing was left to do", "100", "4.0× if rescored"):
        assert fact in facts
    open_run(page, 0, "dvts")
    assert page.locator("[role=tree]").count() == 0


def test_a_node_shows_its_text_scores_siblings_and_why_it_was_pruned(page: Page) -> None:
    open_run(page, 0, "dvts")
    page.locator(".st-row", has_text="We add").click()
    detail = page.locator(".st-detail").inner_text()
    for text in (
        "× pruned",
        "Why pruned: rank 2 of 2",
        "We add: 2 + 3 = 5.",
        "0.200",
        "this is 2 of 2",
        "at the end of a step",
    ):
        assert text in detail
    assert page.locator(".st-detail dl").inner_text().split("\n")[-2:] == ["subtree", "0"]
    page.locator(".st-siblings button").click()
    assert focused(page) == "First we multiply: 3 * 4 = 12."
    detail = page.locator(".st-detail").inner_text()
    assert "Lookahead, not part of the path (9 tokens)" in detail
    assert "0.310" in detail
    page.locator(".st-row", has_text="= 14").click()
    assert "identical continuations\n3" in page.locator(".st-detail").inner_text()
    page.locator(".st-detail summary").click()
    assert page.locator(".st-detail details p").inner_text().startswith("First we multiply: 3 * 4 = 12.\n\nThen 2 + 12")


def test_the_tree_works_with_the_keyboard_alone(page: Page) -> None:
    open_run(page, 0, "dvts")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "treeitem":
            break
    assert focused(page).startswith("Then 2 + 12 = 14."), "Tab reaches the selected node"
    assert page.locator("[role=treeitem][tabindex='0']").count() == 1
    outline = "getComputedStyle(document.activeElement.firstElementChild).outlineStyle"
    assert page.evaluate(outline) == "solid"
    for key, expected in (
        ("ArrowDown", "Then 2 + 12 = 15."),
        ("ArrowRight", "Then 2 + 12 = 15."),  # opens it
        ("ArrowRight", "So it is 15."),
        ("ArrowLeft", "Then 2 + 12 = 15."),
        ("ArrowLeft", "Then 2 + 12 = 15."),  # closes it
        ("ArrowLeft", "First we multiply: 3 * 4 = 12."),
        ("End", "We add: 2 + 3 = 5."),
        ("ArrowDown", "We add: 2 + 3 = 5."),
        ("Home", "First we multiply: 3 * 4 = 12."),
        ("ArrowUp", "First we multiply: 3 * 4 = 12."),
    ):
        page.keyboard.press(key)
        assert focused(page) == expected, key
        assert page.get_attribute("[role=treeitem]:focus", "aria-selected") == "true"
    for state in ("false", "true"):
        page.keyboard.press("Enter")
        assert page.get_attribute("[role=treeitem]:focus", "aria-expanded") == state
    item = page.locator("[role=treeitem]:focus")
    described = [item.get_attribute(f"aria-{name}") for name in ("level", "setsize", "posinset")]
    assert described == ["1", "2", "1"]
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    first = next(each["name"]["value"] for each in nodes if each["role"]["value"] == "treeitem")
    assert first == "Step 1, continued score 0.900 First we multiply: 3 * 4 = 12. ★ path subtree 0 lookahead"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "st-detail"


def test_closing_a_node_moves_the_focus_to_it(page: Page) -> None:
    open_run(page, 0, "dvts")
    page.locator(".st-row", has_text="= 14").click()
    page.locator(".st-row", has_text="First we").locator(".st-twist").click()
    assert focused(page) == "First we multiply: 3 * 4 = 12."
    page.get_by_role("button", name="Expand all").click()
    assert page.locator(".st-row:visible").count() == 8
    page.get_by_role("button", name="Collapse all").click()
    assert page.locator(".st-row:visible").count() == 2
    page.get_by_role("button", name="Go to the selected path").click()
    assert focused(page).startswith("Then 2 + 12 = 14.")


def test_text_stays_text(page: Page) -> None:
    open_run(page, 2, "dvts")
    page.get_by_role("button", name="Expand all").click()
    page.locator("[role=treeitem]").first.locator(".st-row").first.click()
    page.wait_for_timeout(100)
    assert "taken" not in page.title()
    assert page.locator("#items script, #items img").count() == 0
    assert page.inner_text('article[data-at="2"] .problem') == SEEN
    assert page.locator(".st-steps .st-full").first.inner_text() == SEEN
    assert page.locator(".st-warnings li").inner_text() == SEEN
    assert SEEN in page.inner_text(".st > .st-facts")
    assert page.locator(".st-answer").first.inner_text() == SEEN
    assert page.locator(".run-facts pre").inner_text() == f"surefoot {SEEN}"
    assert page.locator(".run-facts dd").last.inner_text() == SEEN


def test_samples_and_the_greedy_answer_are_trees_too(page: Page) -> None:
    open_run(page, 1, "independent samples")
    assert rows(page) == ["■ finished"] * 3
    open_run(page, 0, "greedy")
    assert rows(page)[-1] == "■ finished"
    open_run(page, 3, "dvts · no answer")
    assert page.locator('article[data-at="3"] .st-none').inner_text() == "No finished path states an answer."
    assert page.locator('article[data-at="3"] .st-kind').first.inner_text() == "… cut off"


def test_questions_without_a_reference_or_a_search_say_so(page: Page) -> None:
    assert page.inner_text('article[data-at="4"] .badge') == "dvts: not run"
    page.select_option("#label", label="beam")
    assert page.inner_text('article[data-at="4"] .badge') == "beam: no reference answer"
    assert page.inner_text('article[data-at="0"] .badge') == "beam: incorrect, majority of 3 correct"


@pytest.mark.parametrize("width", [320, 700, 1400])
def test_nothing_sticks_out(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for question, name in ((0, "dvts"), (2, "dvts"), (1, "samples")):
        open_run(page, question, name)
    for button in page.get_by_role("button", name="Expand all").all():
        button.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        page.evaluate(
            "[...document.querySelectorAll('.card, .panel, .item, .st-tree, .st-row, .st-detail')]"
            ".filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.className)"
        )
        == []
    )


def test_light_and_dark_are_readable(page: Page) -> None:
    open_run(page, 0, "dvts")
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate(LOW_CONTRAST) == [], scheme
    assert len(grounds) == 2
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_numbers_need_no_script(place: Path, browser_page: Page) -> None:  # noqa: F811
    session = browser_page.context.new_cdp_session(browser_page)
    session.send("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser_page.goto(place.as_uri())
        assert browser_page.locator("article").count() == 0
        assert browser_page.locator("table").count() >= 6
        assert browser_page.locator("th", has_text="majority of N").first.is_visible()
        assert browser_page.locator(".panel svg[role=img]").is_visible()
        assert "The list and the trees need JavaScript" in browser_page.inner_text("#list")
    finally:
        session.send("Emulation.setScriptExecutionDisabled", {"value": False})
        session.detach()


def test_colours_are_those_of_the_scale(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    for scale, scores in (
        ("probability", [at / 40 for at in range(41)]),
        ("margin", [at / 10 for at in range(-12, 13)]),
        ("log_ratio", [-40.0, -3.0, -0.2, 0.0, 0.4, 2.0, 50.0]),
    ):
        samples = [sample("14", scores=[score]) for score in scores]
        records = [record({"beam": found("14", 10)}, samples)]
        assert records[0].samples is not None
        scaled = replace(records[0].samples, scale=scale)  # type: ignore[arg-type]
        records = [replace(records[0], samples=scaled)]
        write_search_report(compare_searches(records, draws=0), records, tmp_path / "x.html")
        browser_page.goto((tmp_path / "x.html").as_uri())
        open_run(browser_page, 0, "samples")
        chips = browser_page.locator(".st-tree .st-chip").evaluate_all(
            "all => all.map((chip) => getComputedStyle(chip).backgroundColor)"
        )
        expected = [colour(bucket(score, scale))[0] for score in scores]
        assert ["#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", chip)) for chip in chips] == expected


def test_without_references_the_page_shows_trees_and_costs(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    records = [replace(each, gold=None) for each in hand_made()]
    write_search_report(compare_searches(records, draws=0), records, tmp_path / "x.html")
    browser_page.goto((tmp_path / "x.html").as_uri())
    assert "No question has a reference answer" in browser_page.inner_text(".notes")
    assert "generated tokens per question" in browser_page.inner_text(".cards")
    assert browser_page.locator(".panel h2").all_inner_texts() == ["What the tokens buy", "Costs", "How it was made"]
    assert browser_page.locator("[data-kind]").count() == 2
    open_run(browser_page, 0, "dvts")
    assert len(rows(browser_page)) == 6


def test_odd_records_have_a_page(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    """Labels that are markup, samples that all failed, no samples at all, nothing decided, an empty tree."""
    failed = [sample(None, 0, [], "error")] * 2
    empty = of_nodes([ROOT], spent=Spent(), stop="error")
    for records in (
        [record({NASTY: found("14", 10)}, failed)],
        [record({"_beam": found("14", 10), "$x_{$": empty})],
        [record({"beam": found("101_2", 10)}, [sample("101_2")], gold="101")],
    ):
        comparison = compare_searches(records, draws=10)
        assert str(comparison)
        write_search_report(comparison, records, tmp_path / "x.html")
        browser_page.goto((tmp_path / "x.html").as_uri())
        names = [label.replace("\ud800", "?") for label in records[0].searches]
        for label in names:
            button = browser_page.locator(".runs button").nth(names.index(label))
            assert button.inner_text().startswith(label)
            button.click()
        assert browser_page.locator(".st").count() == 1
        assert "taken" not in browser_page.title()
    assert "no answer could be compared with its reference" in browser_page.inner_text(".cards")


def test_deep_trees_fit_a_phone(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    chain = [ROOT, *(node(at, at - 1, f"Step {at}.\n\n", fate="expanded") for at in range(1, 41))]
    chain.append(node(41, 40, "Final Answer: 14", end="answer", fate="finished", answer="14"))
    records = [record({"beam": of_nodes(chain, spent=Spent(300))}, [sample("14")])]
    write_search_report(compare_searches(records, draws=0), records, tmp_path / "x.html")
    browser_page.set_viewport_size({"width": 320, "height": 700})
    browser_page.goto((tmp_path / "x.html").as_uri())
    open_run(browser_page, 0, "beam")
    assert browser_page.locator(".st-row:visible").count() == 41
    assert browser_page.evaluate("document.documentElement.scrollWidth") <= 320
    assert browser_page.locator(".st-text").last.evaluate("text => text.clientWidth") > 120


# --- one page per test ---------------------------------------------------------------------------------------------


def show(page: Page, tmp_path: Path, records: list[SearchRecord], *, width: int = 1200, height: int = 900) -> None:
    """Write the report of the records and open it."""
    write_search_report(compare_searches(records, draws=10), records, tmp_path / "x.html")
    page.emulate_media(color_scheme="light", media="screen")
    page.set_viewport_size({"width": width, "height": height})
    page.goto((tmp_path / "x.html").as_uri())


def deep_tree(depth: int) -> list[SearchNode]:
    """One path of `depth` steps with an answer, and a pruned sibling of each step."""
    nodes = [ROOT]
    for at in range(depth):
        parent = max(0, len(nodes) - 2)
        kept = len(nodes)
        last = at == depth - 1
        ending: dict[str, Any] = {"end": "answer", "answer": "14"} if last else {}
        text = f"Step {at + 1}: {'the number of pencils is eight times six ' * 2}"
        nodes.append(node(kept, parent, text, fate="finished" if last else "expanded", **ending))
        nodes.append(node(kept + 1, parent, text, score=0.25, fate="pruned", reason="rank 2 of 2; 1 kept"))
    return nodes


def test_a_node_ranks_among_the_siblings_of_its_own_subtree(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    scores = [(0, 0.9), (0, 0.8), (1, 0.3), (1, 0.2), (1, 0.7)]
    nodes = [
        node(at, 0, f"Way {at}.\n\n", score=score, subtree=subtree)
        for at, (subtree, score) in enumerate(scores, start=1)
    ]
    show(browser_page, tmp_path, [record({"dvts": of_nodes([ROOT, *nodes], spent=Spent(50))}, [sample("14")])])
    open_run(browser_page, 0, "dvts")
    for way, said, others in ((2, "this is 2 of 2", 1), (3, "this is 2 of 3", 2), (5, "this is 1 of 3", 2)):
        browser_page.locator(".st-row", has_text=f"Way {way}.").click()
        assert f"Siblings in its subtree by score: {said}" in browser_page.inner_text(".st-detail")
        assert browser_page.locator(".st-siblings button").count() == others


def test_the_disagreement_of_an_ensemble_is_shown(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    """In the tree the largest of a node's steps, in the detail each. The spreads are packed, also of a lookahead and of
    steps that are not in the text; a step without one says nothing."""
    first = replace(sample("14", scores=[0.9, 0.4]), id=1)
    first = replace(
        first, steps=tuple(replace(step, spread=s) for step, s in zip(first.steps, (0.125, 0.25), strict=True))
    )
    ahead = Lookahead("Ahead.", (NodeStep("Ahead.", 0.5, spread=0.375),), 3, "step")
    second = replace(
        node(2, 0, "Way 2.\n\n", score=0.3), lookahead=ahead, steps=(NodeStep("Other.", 0.3, spread=0.0625),)
    )
    third = node(3, 0, "Way 3.\n\n", score=0.2)
    show(
        browser_page,
        tmp_path,
        [record({"beam": of_nodes([ROOT, first, second, third], spent=Spent(50))}, [sample("14")])],
    )
    open_run(browser_page, 0, "beam")
    shown = [each.locator(".st-deviation").all_inner_texts() for each in browser_page.locator(".st-row").all()]
    assert shown == [["±0.250"], ["±0.063"], []]
    said = [each.text_content() or "" for each in browser_page.locator(".st-row").all()]
    assert ["spread" in label for label in said] == [True, True, False]
    for text, expected in (("Step 0.", ["0.125", "0.250"]), ("Way 2.", ["0.063", "0.375"]), ("Way 3.", [])):
        browser_page.locator(".st-row", has_text=text).click()
        found = browser_page.locator(".st-detail .st-spread").all_inner_texts()
        assert found == [f"spread {each}" for each in expected]


def test_the_settings_are_those_that_say_something(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    limits = {"max_steps": 40, "max_tokens": 2048, "budget": {"tokens": None, "calls": None, "seconds": None}}
    ranks = {"aggregation": None, "selection": "best", "lookahead": 0, "threshold": None, "backtracks": 8}
    sampling = {"temperature": 0.8, "top_p": 1.0, "top_k": 0}
    usual = {"label": "x", "n": 8, "branches": 2, "step_end": "\n\n", "sampling": sampling} | limits | ranks
    other = {
        "sampling": {"temperature": 0.65, "top_p": 0.9995, "top_k": 20},
        "budget": {"tokens": 4096, "calls": None, "seconds": None},
        "lookahead": 2,
    }
    end = r'step_end "\n\n"'
    expected: list[tuple[dict[str, Any], str]] = [
        ({"name": "beam"}, f"n 8, branches 2, {end}, max_steps 40, max_tokens 2,048, temperature 0.8"),
        ({"name": "best-of-n"}, "n 8, max_tokens 2,048, temperature 0.8"),
        (
            {"name": "backtracking", "threshold": 0.5} | other,
            f"n 8, branches 2, {end}, max_steps 40, max_tokens 2,048, lookahead 2, threshold 0.5, backtracks 8, "
            "temperature 0.65, top_p 0.9995, top_k 20, budget of tokens 4,096",
        ),
    ]
    searches = {
        f"run {at}": found("14", 20, strategy=usual | given, aggregation="product")
        for at, (given, _) in enumerate(expected)
    }
    show(browser_page, tmp_path, [record(searches, [sample("14")])])
    for at, (given, said) in enumerate(expected):
        open_run(browser_page, 0, f"run {at}")
        assert browser_page.inner_text(".st-fact-settings dd") == said
        assert browser_page.inner_text(".st-fact-strategy dd") == given["name"]
        assert "aggregation: product" in browser_page.inner_text(".st-said")


@pytest.mark.parametrize("height", [560, 740])
def test_the_detail_never_covers_the_selected_row(browser_page: Page, tmp_path: Path, height: int) -> None:  # noqa: F811
    records = [record({"beam": of_nodes(deep_tree(12), spent=Spent(300))}, [sample("14")])]
    show(browser_page, tmp_path, records, width=360, height=height)
    open_run(browser_page, 0, "beam")
    positions = """() => {
      const box = (of) => document.querySelector(of).getBoundingClientRect();
      const row = box("[aria-selected=true] > .st-row"), detail = box(".st-detail");
      return [row.top, row.bottom, detail.top, detail.bottom];
    }"""
    _, bottom, top, _ = browser_page.evaluate(positions)
    assert bottom <= top, "when the tree opens, the detail comes after it"
    for at in (0, 5, 11, 3, 23):
        browser_page.locator(".st-row").nth(at).click()
        row_top, row_bottom, top, bottom = browser_page.evaluate(positions)
        assert 0 <= row_top < row_bottom <= top < bottom <= height, at
    for key in ("Home", "End", "ArrowUp", "ArrowUp"):
        browser_page.keyboard.press(key)
        row_top, row_bottom, top, bottom = browser_page.evaluate(positions)
        assert 0 <= row_top < row_bottom <= top < bottom <= height, key


@pytest.mark.parametrize("width", [360, 1280])
def test_the_legend_shows_long_names_in_full(browser_page: Page, tmp_path: Path, width: int) -> None:  # noqa: F811
    labels = [f"backtracking {at} lookahead 2, weighted by the product of all scores" for at in range(6)]
    labels[0] = "_" + labels[0]
    searches = {label: found("14", 20 + at) for at, label in enumerate(labels)}
    show(browser_page, tmp_path, [record(searches, [sample("14")] * 2, greedy=found("14", 9))], width=width)
    keys = browser_page.locator(".keys li")
    lines = ["majority of k", "best of k by min", "vote of k weighted by min", "pass@k (oracle)"]
    assert keys.all_inner_texts() == [*lines, *labels, "greedy"]
    assert keys.evaluate_all("all => all.every((key) => key.scrollWidth <= key.clientWidth)")
    samples = keys.locator("svg").evaluate_all("all => all.map((svg) => svg.querySelector('path, use').outerHTML)")
    assert len(samples) == 11
    # The plot has the figure to itself: nothing but ticks and the names of the axes is text in it.
    panel = browser_page.locator(".panel", has=browser_page.locator(".keys"))
    texts = panel.locator("svg[role=img] text").all_text_contents()
    assert {"accuracy", "generated tokens per question (log scale)"} <= set(texts)
    assert not any(name in text for name in (*lines, *labels) for text in texts)


def test_wide_tables_show_that_they_scroll_and_take_the_focus(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    show(browser_page, tmp_path, hand_made(), width=570)
    costs = browser_page.get_by_role("group", name="Costs, table")
    assert costs.evaluate("box => box.scrollWidth > box.clientWidth")
    assert costs.evaluate("box => getComputedStyle(box).backgroundImage").count("linear-gradient") == 4
    browser_page.locator(".scroll[tabindex='0'][aria-label='Costs, table']").focus()
    browser_page.keyboard.press("ArrowRight")
    scrolled = "box => box.scrollLeft || new Promise((done) => { box.onscroll = () => done(box.scrollLeft); })"
    assert costs.evaluate(scrolled) > 0
    browser_page.set_viewport_size({"width": 1280, "height": 900})
    browser_page.locator(".scroll[tabindex][aria-label='Costs, table']").wait_for(state="detached")


@pytest.mark.parametrize("width", [320, 390])
def test_tables_are_not_cut_off_on_phones(width: int, browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    """The rows of wide tables become blocks, in which every number has its name."""
    show(browser_page, tmp_path, hand_made(), width=width)
    browser_page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    cut = "all => all.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"
    assert browser_page.locator(".scroll").evaluate_all(cut) == []
    cell = browser_page.locator("[aria-label='Costs, table'] td").first
    name = cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    headers = browser_page.locator("[aria-label='Costs, table'] thead th").all_text_contents()
    assert name == f'"{headers[1]}"'


def test_unscored_solutions_are_left_out_of_the_sum(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    samples = [sample("14", scores=[0.5]), sample("14", scores=[None]), sample("20", scores=[None])]
    show(browser_page, tmp_path, [record({"beam": found("14", 30)}, samples)])
    open_run(browser_page, 0, "samples")
    votes = [each.inner_text().split() for each in browser_page.locator(".st-votes tbody tr").all()]
    assert votes == [["14★", "selected", "2", "0.500", "0.500"], ["20", "1", "–", "–"]]
