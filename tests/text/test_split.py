"""Splitting: rows as models write them, what must never change, and texts made to be slow."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import UserList
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.timing import is_linear
from surefoot.core.options import SPLIT_RULES, THINKING
from surefoot.core.solution import Solution, Span
from surefoot.errors import InputError, OptionError
from surefoot.text.answers import lines, step_labels
from surefoot.text.split import split


def texts(solution: Solution) -> list[str]:
    return [step.text for step in solution.steps]


def outside(solution: Solution) -> list[str]:
    return [solution.text[start:end] for start, end in solution.outside]


# --- step labels ---------------------------------------------------------------------------------------------------

OPENS_A_STEP = [
    ("Step 1: go", "Step 1:"),
    ("Step 1:go", "Step 1:"),
    ("  \tStep 1: go", "Step 1:"),
    ("STEP 12: go", "STEP 12:"),
    ("Step1: go", "Step1:"),
    ("Step\t1: go", "Step\t1:"),
    ("Step 1 : go", "Step 1 :"),
    ("step 3：go", "step 3："),
    ("Step １: go", "Step １:"),
    ("Step ٣: go", "Step ٣:"),
    ("**Step 1:** go", "**Step 1:**"),
    ("**Step 1**: go", "**Step 1**:"),
    ("__Step 1__: go", "__Step 1__:"),
    ("*Step 1:* go", "*Step 1:*"),
    ("***Step 1:*** go", "***Step 1:***"),
    ("### Step 1: go", "### Step 1:"),
    ("#### Step 2: go", "#### Step 2:"),
    ("## Step 2. go", "## Step 2."),
    ("### **Step 2:** go", "### **Step 2:**"),
    ("> Step 2) go", "> Step 2)"),
    ("- Step 2: go", "- Step 2:"),
    ("* **Step 2:** go", "* **Step 2:**"),
    ("**Step 2.** go", "**Step 2.**"),
    ("Step 1: **go**", "Step 1:"),
    ("Step 1:**go**", "Step 1:"),
    ("Step 1\ngo", "Step 1"),
    ("**Step 1**\ngo", "**Step 1**"),
    ("Step 1.\ngo", "Step 1."),
    ("### Step 1\r\ngo", "### Step 1"),
    ("<b>Step 1:</b> go", "<b>Step 1:</b>"),
    ("<p><strong>Step 1</strong>: go", "<p><strong>Step 1</strong>:"),
    ("Step 1:\rgo", "Step 1:"),
]

OPENS_NONE = [
    "Step 2 is wrong because",
    "Step 1.5 is small",
    "Step 1)x",
    "Step one: go",
    "Step: go",
    "Stepping 1: go",
    "We take Step 1: go",
    "Steps 1: go",
    "1. Step: go",
    "Step 1 - go",
    "Final Step 1: go",
    "ſtep 1: go",
    "* ſtep 1: go",
]


@pytest.mark.parametrize(("text", "label"), OPENS_A_STEP)
def test_a_label_opens_a_step_and_is_stripped(text: str, label: str) -> None:
    found = split(text)
    assert found.rule == "steps"
    assert [text[start:end] for start, end in step_labels(text, lines(text))] == [label]
    assert [step.text.strip("*") for step in found.steps] == ["go"]
    assert found.outside == ()


@pytest.mark.parametrize("text", OPENS_NONE)
def test_other_lines_open_no_step(text: str) -> None:
    assert split(text).rule == "lines"
    forced = split(text, "steps")
    assert forced.steps == ()
    assert outside(forced) == [text]


# text, step texts: the end of the emphasis that a label opened is in no step
EMPHASIS = [
    ("**Step 1: Title**\nbody", ["Title\nbody"]),
    ("**Step 1: Title**\n\nbody", ["Title\n\nbody"]),
    ("**Step 1: Title.**\r\nbody", ["Title.\r\nbody"]),
    ("**Step 1: Title**", ["Title"]),
    ("**Step 1: Title**\n**Step 2: Other**\n**Final Answer: 5**", ["Title", "Other", "The answer is \\boxed{5}"]),
    ("**Step 1: Title** text", ["Title text"]),
    ("**Step 1: Title:** text", ["Title: text"]),
    ("**Step 1: Title**: text", ["Title: text"]),
    ("- **Step 1: Title**, text", ["Title, text"]),
    ("> **Step 1: Title**\n> text", ["Title\n> text"]),
    ("### **Step 2: Title**\nbody", ["Title\nbody"]),
    ("### **Step 2. Title**\nbody", ["Title\nbody"]),
    ("**Step 2) Title** text", ["Title text"]),
    ("### **Step 2.** Title", ["Title"]),
    ("**Step 3**: text", ["text"]),
    ("**Step 3:** text", ["text"]),
    ("**Step 3: ** text", ["text"]),
    ("**Step 3: **", []),
    ("__Step 1:__ text", ["text"]),
    ("__Step 1: Title__\nbody", ["Title\nbody"]),
    ("*Step 4:* text", ["text"]),
    ("*Step 4: Title*\nbody", ["Title\nbody"]),
    ("_Step 4: Find x_1._", ["Find x_1."]),
    ("***Step 1: Title***\nbody", ["Title\nbody"]),
    ("**_Step 1: Title_**\nbody", ["Title\nbody"]),
    ("**_Step 1_: Title**\nbody", ["Title\nbody"]),
    ("**Step 1: *Title***\nbody", ["*Title*\nbody"]),
    # Emphasis inside the step stays.
    ("Step 1: **Add** them", ["**Add** them"]),
    ("**Step 1:** **Title**\nbody", ["**Title**\nbody"]),
    ("**Step 1:**\n**Title**\nbody", ["**Title**\nbody"]),
    ("## Step 1: **Title**\nbody", ["**Title**\nbody"]),
    ("**Step 1: Add** the **two**", ["Add the **two**"]),
    ("**Step 1: Title**\n**bold** x", ["Title\n**bold** x"]),
    # So does arithmetic.
    ("**Step 1: 2**3 = 8**\nbody", ["2**3 = 8\nbody"]),
    ("**Step 1: 2 ** 3 = 8**\nbody", ["2 ** 3 = 8\nbody"]),
    ("**Step 1: 2**(1 + 2) = 8", ["2**(1 + 2) = 8"]),
    ("*Step 1: 2*3 = 6*", ["2*3 = 6"]),
    ("*Step 1: 2* 3 = 6", ["2* 3 = 6"]),
    ("* Step 1: 2* 3 = 6 *", ["2* 3 = 6 *"]),
]


@pytest.mark.parametrize(("text", "steps"), EMPHASIS)
def test_no_step_has_the_emphasis_of_its_label(text: str, steps: list[str]) -> None:
    found = split(text)
    assert texts(found) == steps
    assert found.outside == ()
    for step in found.steps:
        assert step.kind == "answer" or without_marks(text[step.start : step.end], step.text)


def without_marks(written: str, text: str) -> bool:
    """Whether `text` is what was written, or what was written without one run of emphasis marks."""
    count = len(written) - len(text)
    at = next((at for at, pair in enumerate(zip(written, text, strict=False)) if pair[0] != pair[1]), len(text))
    removed = written[at : at + count]
    return written[:at] + written[at + count :] == text and set(removed) <= {"*", "_"} and count <= 6


# --- whole solutions -----------------------------------------------------------------------------------------------

# text, rule, rule used, body texts, answer, texts outside (with the closing step on), closing step or not
SOLUTIONS: list[tuple[str, str, str, list[str], str | None, list[str], bool]] = [
    ("", "auto", "lines", [], None, [], False),
    (" \n\t\r\n ", "auto", "lines", [], None, [], False),
    ("Step 1: a\nStep 2: b", "auto", "steps", ["a", "b"], None, [], False),
    ("Sure!\nStep 1: a\nb\n\nc\n\nStep 2: d", "auto", "steps", ["a\nb\n\nc", "d"], None, ["Sure!"], False),
    # What follows the answer is outside, unless the solution starts with its answer.
    ("Step 1: a\r\nFinal Answer: 5\r\nBye\r\nStep 2: b", "auto", "steps", ["a"], "5", ["Bye\r\nStep 2: b"], True),
    ("Final Answer: 5\nStep 1: a\nStep 2: b", "auto", "steps", ["a", "b"], "5", [], True),
    (
        "Step 1: a\nFinal Answer: 5\nNo.\nStep 2: b\nFinal Answer: 6",
        "auto",
        "steps",
        ["a", "b"],
        "6",
        ["Final Answer: 5\nNo."],
        True,
    ),
    ("Step 1: a\n#### 42", "auto", "steps", ["a"], "42", [], True),
    ("Step 1: a\n#### Solution\nb", "auto", "steps", ["a\n#### Solution\nb"], None, [], False),
    ("## Step 2. Title\nbody", "auto", "steps", ["Title\nbody"], None, [], False),
    ("Step 1: so \\boxed{7}", "auto", "steps", ["so \\boxed{7}"], "7", [], False),
    ("Step 1: a\n**Final Answer:**\n\n7\n\nBye", "auto", "steps", ["a"], "7", ["Bye"], True),
    ("Step 1: a\nFinal Answer:", "auto", "steps", ["a"], None, ["Final Answer:"], False),
    ("Step 1: a\nFinal Answer: 1\nx\nFinal Answer: 2", "auto", "steps", ["a"], "2", ["Final Answer: 1\nx"], True),
    ("a\nb", "auto", "lines", ["a", "b"], None, [], False),
    ("a\n\nb", "auto", "paragraphs", ["a", "b"], None, [], False),
    ("a\r\n\r\nb", "auto", "paragraphs", ["a", "b"], None, [], False),
    ("a\r\rb", "auto", "paragraphs", ["a", "b"], None, [], False),
    ("a\r\nb", "auto", "lines", ["a", "b"], None, [], False),
    ("a\n \t\u3000\nb\nc", "auto", "paragraphs", ["a", "b\nc"], None, [], False),
    ("\n\na\n\n", "auto", "lines", ["a"], None, [], False),
    ("a\u2028b", "auto", "lines", ["a\u2028b"], None, [], False),
    ("a\n\nb", "lines", "lines", ["a", "b"], None, [], False),
    ("a\nb", "paragraphs", "paragraphs", ["a\nb"], None, [], False),
    ("Step 1: a\nb", "lines", "lines", ["Step 1: a", "b"], None, [], False),
    ("a\nb\n#### $18", "auto", "lines", ["a", "b"], "$18", [], True),
    ("a\n\nb\nFinal Answer: 5.\nBye", "auto", "paragraphs", ["a", "b"], "5", ["Bye"], True),
    ("#### 1\na\n#### 2\nb", "lines", "lines", ["#### 1", "a"], "2", ["b"], True),
    ("a\nFinal Answer: 5\n#### 6", "lines", "lines", ["a"], "5", ["#### 6"], True),
    # Only the text before the answer line tells paragraphs from lines.
    ("a\n\nFinal Answer:", "auto", "lines", ["a"], None, ["Final Answer:"], False),
    ("a\nb\n\nFinal Answer:", "auto", "lines", ["a", "b"], None, ["Final Answer:"], False),
    ("a\nb\nc\nd\n\nFinal Answer: 5", "auto", "lines", ["a", "b", "c", "d"], "5", [], True),
    ("a\nb\n\n**Final Answer**\n\n5\n\nBye\n\nBye", "auto", "lines", ["a", "b"], "5", ["Bye\n\nBye"], True),
    ("a\nb\n\n#### 5 apples\n", "auto", "lines", ["a", "b"], "5 apples", [], True),
    ("a\n\nb\nc\n\nFinal Answer: 5", "auto", "paragraphs", ["a", "b\nc"], "5", [], True),
    ("a\nb\n\nAnswer: 5", "auto", "lines", ["a", "b"], "5", [], True),
    ("Step 1: a\n**Answer:** 5", "auto", "steps", ["a"], "5", [], True),
    ("Step 1: a\nAnswer: 5\nStep 2: b", "auto", "steps", ["a\nAnswer: 5", "b"], None, [], False),
    ("Step 1: a\n#### 4\nStep 2: b\nAnswer: 5", "auto", "steps", ["a"], "4", ["Step 2: b\nAnswer: 5"], True),
    ("Answer: a\nAnswer: 2 + 3 makes 5", "auto", "lines", ["Answer: a", "Answer: 2 + 3 makes 5"], None, [], False),
    ("a\n\nthe answer is 5", "auto", "paragraphs", ["a", "the answer is 5"], "5", [], False),
    ("#### 5", "auto", "lines", [], "5", [], True),
    ("Step 1: a\n<answer> 5 </answer>.", "auto", "steps", ["a"], "5", [], True),
    ("a\nSo <answer>5</answer> it is", "auto", "lines", ["a", "So <answer>5</answer> it is"], "5", [], False),
    (
        "a\nFinal Answer: 13\nNo: \\boxed{14}",
        "auto",
        "lines",
        ["a", "Final Answer: 13", "No: \\boxed{14}"],
        "14",
        [],
        False,
    ),
    ("\ufeffStep 1: a\nStep 2: b", "auto", "steps", ["a", "b"], None, [], False),
    ("a\nFinal Answer: 5", "steps", "steps", [], "5", ["a\nFinal Answer: 5"], False),
]


# --- code ------------------------------------------------------------------------------------------------------------

FENCED = [
    ("Step 1: a\n```\nStep 2: b\n```\nStep 3: c", ["a\n```\nStep 2: b\n```", "c"]),
    (
        "Step 1: a\n```python\nStep 2: b\n```\n```\nStep 3: c\n```",
        ["a\n```python\nStep 2: b\n```\n```\nStep 3: c\n```"],
    ),
    ("Step 1: a\n~~~\n```\nStep 2: b\n~~~\nStep 3: c", ["a\n~~~\n```\nStep 2: b\n~~~", "c"]),
    ("Step 1: a\n````\n```\nStep 2: b\n````", ["a\n````\n```\nStep 2: b\n````"]),
    ("  ```text\n  Step 2: b\n  ```\nStep 3: c", ["c"]),
    # A block that is never closed is none: the text was cut off, or the marks were a slip.
    ("Step 1: a\n```\nStep 2: b\nStep 3: c", ["a\n```", "b", "c"]),
    # Nor is a block around the whole solution.
    ("```markdown\nStep 1: a\nStep 2: b\n```", ["a", "b\n```"]),
    ("Step 1: `Step 2:`\n`Step 3: x`", ["`Step 2:`\n`Step 3: x`"]),
]


@pytest.mark.parametrize(("text", "bodies"), FENCED)
def test_labels_in_code_open_no_step(text: str, bodies: list[str]) -> None:
    assert texts(split(text)) == bodies


# --- thinking -----------------------------------------------------------------------------------------------------

# text, then per value of `thinking`: steps, answer, texts outside, texts skipped
Read = tuple[list[str], str | None, list[str], list[str]]
THOUGHTS: list[tuple[str, Read, Read, Read]] = [
    (
        "<think>\nFinal Answer: 13\n</think>\nThe answer is 12.",
        (["The answer is 12."], "12", [], ["<think>\nFinal Answer: 13\n</think>"]),
        ([], "12", ["Final Answer: 13"], ["<think>", "</think>\nThe answer is 12."]),
        (["Final Answer: 13", "The answer is 12."], "12", ["<think>", "</think>"], []),
    ),
    (
        "<think>\na\nb\n</think>\n<answer>5</answer>",
        (["The answer is \\boxed{5}"], "5", [], ["<think>\na\nb\n</think>"]),
        (["a", "b"], "5", [], ["<think>", "</think>\n<answer>5</answer>"]),
        (["a", "b", "The answer is \\boxed{5}"], "5", ["<think>", "</think>"], []),
    ),
    (
        "<think>\na\n\nb\n</think>\n\nc\n\n<answer>\n5\n</answer>\nBye",
        (["c", "The answer is \\boxed{5}"], "5", ["Bye"], ["<think>\na\n\nb\n</think>"]),
        (["a", "b"], "5", [], ["<think>", "</think>\n\nc\n\n<answer>\n5\n</answer>\nBye"]),
        (["a", "b", "c", "The answer is \\boxed{5}"], "5", ["<think>", "</think>", "Bye"], []),
    ),
    # The prompt opened the block.
    (
        "a\nso \\boxed{4}</think>Step 1: b\nFinal Answer: 5",
        (["b", "The answer is \\boxed{5}"], "5", [], ["a\nso \\boxed{4}</think>"]),
        (["a", "so \\boxed{4}"], "5", [], ["</think>Step 1: b\nFinal Answer: 5"]),
        (["b", "The answer is \\boxed{5}"], "5", ["a\nso \\boxed{4}</think>"], []),
    ),
    # The text was cut off inside the block.
    (
        "<think>\na\nso \\boxed{4}",
        ([], None, [], ["<think>\na\nso \\boxed{4}"]),
        (["a", "so \\boxed{4}"], "4", [], ["<think>"]),
        (["a", "so \\boxed{4}"], "4", ["<think>"], []),
    ),
    # The response states nothing.
    (
        "<THINKING>the answer is 4</THINKING>\nDone.",
        (["Done."], None, [], ["<THINKING>the answer is 4</THINKING>"]),
        (["the answer is 4"], "4", [], ["<THINKING>", "</THINKING>\nDone."]),
        (["the answer is 4", "Done."], "4", ["<THINKING>", "</THINKING>"], []),
    ),
    # Several blocks: no step crosses a tag.
    (
        "<think>a</think>\nStep 1: b\n<think>\nc\n</think>\nd\nStep 2: e",
        (["b", "e"], None, ["d"], ["<think>a</think>", "<think>\nc\n</think>"]),
        (["a", "c"], None, [], ["<think>", "</think>\nStep 1: b\n<think>", "</think>\nd\nStep 2: e"]),
        (["b", "e"], None, ["<think>a</think>", "<think>\nc\n</think>\nd"], []),
    ),
    # A sentence may mention the tag, and a second closing tag closes nothing.
    (
        "We write <think> first.\nThen b.",
        (["We write <think> first.", "Then b."], None, [], []),
        ([], None, [], ["We write <think> first.\nThen b."]),
        (["We write <think> first.", "Then b."], None, [], []),
    ),
    (
        "a</think>\nb\n</think>\nc",
        (["b", "c"], None, ["</think>"], ["a</think>"]),
        (["a"], None, [], ["</think>\nb\n</think>\nc"]),
        (["a", "b", "c"], None, ["</think>", "</think>"], []),
    ),
]


@pytest.mark.parametrize(("text", "skip", "only", "both"), THOUGHTS)
def test_what_is_read_of_a_reasoning_model(text: str, skip: Read, only: Read, both: Read) -> None:
    for thinking, expected in (("skip", skip), ("only", only), ("all", both)):
        found = split(text, thinking=thinking)
        skipped = [text[start:end] for start, end in found.skipped]
        assert (texts(found), found.answer, outside(found), skipped) == expected, thinking
        bodies = [step for step in found.steps if step.kind == "body"]
        assert all(text[step.start : step.end] == step.text for step in bodies)
    assert split(text) == split(text, thinking="skip")


def test_a_list_is_read_as_it_is() -> None:
    ready = ["<think>a</think>", "b"]
    assert {split(ready, thinking=thinking) for thinking in THINKING} == {split(ready)}
    assert texts(split(ready)) == ready


@pytest.mark.parametrize(("text", "rule", "used", "bodies", "answer", "left", "closes"), SOLUTIONS)
def test_solutions(
    text: str, rule: str, used: str, bodies: list[str], answer: str | None, left: list[str], closes: bool
) -> None:
    found = split(text, rule)
    assert found.text == text
    assert found.rule == used
    assert [step.text for step in found.steps if step.kind == "body"] == bodies
    assert found.answer == answer
    assert outside(found) == left
    assert [step.kind for step in found.steps].count("answer") == closes
    open_ended = split(text, rule, closing=False)
    assert [step.text for step in open_ended.steps] == bodies
    assert open_ended.answer == answer


def test_the_closing_step_has_our_words_and_the_span_of_the_line() -> None:
    text = "Step 1: a\n  **Final Answer:** $\\frac{1}{2}$.  \nBye"
    found = split(text)
    closing = found.steps[-1]
    assert (closing.kind, closing.text, closing.index) == ("answer", "The answer is \\boxed{\\frac{1}{2}}", 1)
    assert text[closing.start : closing.end] == "**Final Answer:** $\\frac{1}{2}$."
    assert outside(found) == ["Bye"]
    # Without the closing step the line is outside, in one piece with what follows it.
    assert outside(split(text, closing=False)) == ["**Final Answer:** $\\frac{1}{2}$.  \nBye"]


def test_a_value_on_the_next_lines_belongs_to_the_answer_line() -> None:
    text = "a\n\nFinal Answer:\n\\[\n\\boxed{\\begin{pmatrix}1\\\\\n2\\end{pmatrix}}\n\\]\nBye"
    found = split(text)
    assert found.answer == "\\begin{pmatrix}1\\\\ 2\\end{pmatrix}"
    assert text[found.steps[-1].start : found.steps[-1].end].endswith("\\]")
    assert outside(found) == ["Bye"]


def test_empty_steps_are_dropped_and_counted() -> None:
    found = split("Step 1:\n\nStep 2: b\n**Step 3:**\nStep 4: d\n#### 5")
    assert [(step.index, step.kind) for step in found.steps] == [(1, "body"), (3, "body"), (4, "answer")]
    assert found.empty_steps == 2


# --- ready lists ---------------------------------------------------------------------------------------------------


def test_a_ready_list_is_kept_exactly() -> None:
    ready = [" Step 1: a ", "", "\n \t", "b\n\nc", "Final Answer: 5"]
    found = split(ready)
    assert found.text == "\n\n".join(ready)
    assert texts(found) == [" Step 1: a ", "b\n\nc", "Final Answer: 5"]
    assert [step.index for step in found.steps] == [0, 3, 4]
    assert all(found.text[step.start : step.end] == step.text for step in found.steps)
    assert all(step.kind == "body" for step in found.steps)
    assert (found.empty_steps, found.rule, found.answer, found.outside) == (2, "list", "5", ())


@pytest.mark.parametrize("empty", [[], (), UserList()])
def test_an_empty_list_has_no_steps(empty: Any) -> None:
    assert split(empty) == Solution("", ())


def test_tuples_and_other_sequences_are_lists() -> None:
    assert split(("a", "b")) == split(["a", "b"]) == split(UserList(["a", "b"]))


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["list", "", "Steps", "sentences", None])
def test_an_unknown_rule_names_the_choices(rule: Any) -> None:
    with pytest.raises(OptionError) as caught:
        split("a", rule)
    assert str(caught.value) == f"rule is {rule!r}; choose one of auto, steps, paragraphs, lines."
    with pytest.raises(OptionError):
        split(["a"], rule)


BAD_INPUT = [
    (None, "The solution is of type NoneType; pass a str, or a list with one str per step."),
    (5, "The solution is of type int; pass a str, or a list with one str per step."),
    ({"a": 1}, "The solution is of type dict; pass a str, or a list with one str per step."),
    (iter(["a"]), "The solution is of type list_iterator; pass a str, or a list with one str per step."),
    (b"a", "The solution is bytes; decode it to str first: solution.decode()."),
    (bytearray(b"a"), "The solution is bytearray; decode it to str first: solution.decode()."),
    (["a", None], "Step 1 of the list is of type NoneType; every step must be a str."),
    (("a", "b", 3), "Step 2 of the list is of type int; every step must be a str."),
    ([b"a"], "Step 0 of the list is of type bytes; every step must be a str. Decode it first."),
    ([["a"]], "Step 0 of the list is of type list; every step must be a str."),
]


@pytest.mark.parametrize(("bad", "message"), BAD_INPUT)
def test_bad_input_is_named(bad: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        split(bad)
    assert str(caught.value) == message


# --- what holds for any text ---------------------------------------------------------------------------------------

FRAGMENTS = [
    "Step 1:", "**Step 2:** ", "**Step 2: ", "a** ", "**\n", "### Step 3", "step 4：", "Step 5 is", "ſtep 1:",
    "Final Answer:", "**Final Answer:** 5", "## Final Answer", "Answer: 5", "#### 5", "#### x", "\\boxed{",
    "\\boxed{5}", "}", "{", "\\", "the answer is ", "<think>", "<think>\n", "</think>", "```\n", "<b>", "</b>",
    "$", "$$", "\\[", "\\]", "*", "_", "#", "`", "\n", "\n", "\n\n",
    "\r\n", "\r", " ", "\t", "\u3000", "\u2028", "\x1c", "\x85", "a", "5", ".", ":",
]  # fmt: skip
any_text = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join))


@settings(max_examples=250, deadline=None)
@given(any_text, st.sampled_from(SPLIT_RULES), st.booleans(), st.sampled_from(THINKING))
def test_every_character_has_exactly_one_place(text: str, rule: str, closing: bool, thinking: str) -> None:
    found = split(text, rule, closing=closing, thinking=thinking)
    spans = sorted([*(Span(step.start, step.end) for step in found.steps), *found.outside, *found.skipped])
    at = 0
    for start, end in [*spans, (len(text), len(text))]:
        assert at <= start <= end
        between = [part.strip() for part in re.split(r"[\r\n]", text[at:start]) if part.strip()]
        assert found.rule == "steps" or not between
        assert all(is_label(part) for part in between)
        at = end


def is_label(part: str) -> bool:
    return step_labels(part, lines(part)) == [Span(0, len(part))]


@settings(max_examples=250, deadline=None)
@given(any_text, st.sampled_from(SPLIT_RULES), st.booleans(), st.sampled_from(THINKING))
def test_spans_and_order(text: str, rule: str, closing: bool, thinking: str) -> None:
    found = split(text, rule, closing=closing, thinking=thinking)
    bodies = [step for step in found.steps if step.kind == "body"]
    assert all(without_marks(text[step.start : step.end], step.text) for step in bodies)
    assert all(step.text == step.text.strip() != "" for step in bodies)
    if found.rule != "steps":
        assert all(text[step.start : step.end] == step.text for step in bodies)
    assert [step.start for step in bodies] == sorted(step.start for step in bodies)
    assert [step.index for step in found.steps] == sorted({step.index for step in found.steps})
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in found.outside)
    assert all(text[a.end : b.start].strip() for a, b in zip(found.outside, found.outside[1:], strict=False))
    answers = [step for step in found.steps if step.kind == "answer"]
    assert answers == list(found.steps[len(bodies) :])
    assert all(step.text == f"The answer is \\boxed{{{found.answer}}}" for step in answers)
    assert found == split(text, found.rule, closing=closing, thinking=thinking)


@settings(max_examples=250, deadline=None)
@given(any_text, st.sampled_from(SPLIT_RULES), st.booleans())
def test_a_text_without_tags_is_all_response(text: str, rule: str, closing: bool) -> None:
    text = text.replace("<think>", "").replace("</think>", "")
    skip, both = (split(text, rule, closing=closing, thinking=thinking) for thinking in ("skip", "all"))
    assert skip == both
    assert skip.skipped == ()


@settings(max_examples=300, deadline=None)
@given(any_text)
def test_a_label_opens_its_line(text: str) -> None:
    rows = lines(text)
    assert all(not {"\n", "\r"} & set(text[start:end]) and text[start:end].strip() for start, end in rows)
    starts = {row.start: row.end for row in rows}
    for label in step_labels(text, rows):
        assert label.start < label.end <= starts[label.start]
        assert "step" in text[label.start : label.end].lower()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=8))
def test_a_list_comes_back_as_it_was(pieces: list[str]) -> None:
    found = split(pieces)
    assert {step.index: step.text for step in found.steps} == {at: p for at, p in enumerate(pieces) if p.strip()}
    assert all(found.text[step.start : step.end] == step.text for step in found.steps)
    assert found.empty_steps == sum(not piece.strip() for piece in pieces)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="ab =+1\\{}", min_size=1).filter(str.strip), min_size=1, max_size=6))
def test_splitting_finds_what_was_joined(bodies: list[str]) -> None:
    text = "\n".join(f"**Step {at}:** {body}" for at, body in enumerate(bodies, 1))
    assert texts(split(text)) == [body.strip() for body in bodies]


# --- time ----------------------------------------------------------------------------------------------------------

MILLION = 1_000_000
HOSTILE = [
    "\n", "\r\n", " ", " \n", "*", "#", "> ", "_", "$", "Step 1:", "Step 1:\n", "Step 1: x\n", "step 1" + "1" * 90,
    "\\boxed{", "\\boxed{}", "{", "}", "Final Answer:\n", "Final Answer:\n\n\n", "Final Answer: \\boxed{\nx\n",
    "the answer is ", "#### 5\n", "\\[", "the" + " " * 30, "Answer:\n", "Answer: 5\n", "Answer: \\boxed{\nx\n",
    "<answer>\n", "<answer>5</answer>\n", "</think>\n\n", "Final Answer: 5\n\\boxed{6}\n", "the answer is:\n",
    "**Step 1: a** b\n", "**Step 1: a ** b", "*" * 99 + "Step 1: a\n",
    "<think>\n", "</think>", "<think>\n</think>\n", "<think>\nFinal Answer: 5\n</think>\n\\boxed{6}\n", "```\n",
    "```a\n", "~~~\n```\n", "```\nStep 1: a\n", "</b>", "<b>Step 1:</b>\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    size = MILLION // 10 // len(unit)
    assert is_linear(lambda count: split(unit * count), size)
    assert is_linear(lambda count: split("Step 1: a\n" + unit * count + "\nFinal Answer: 3"), size)


@pytest.mark.parametrize("unit", ["\n", " ", "*", "#", "Step 1:", "Step 1:\n", "\\boxed{"], ids=repr)
def test_a_million_hostile_characters(unit: str) -> None:
    assert is_linear(lambda count: split(unit * count), MILLION // len(unit))


def test_time_grows_with_the_text_and_no_faster() -> None:
    text = "Step 1: We add **two** and three, so $2 + 3 = \\boxed{5}$.\n\nThe answer is 5.\n"
    assert is_linear(lambda count: split(text * count), 4000)


def test_import_is_light() -> None:
    code = (
        "import sys, surefoot.text.split, surefoot.text.equality;"
        "print(sorted({'torch', 'transformers', 'sympy', 'math_verify', 'subprocess', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
