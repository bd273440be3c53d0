"""Answers: where they are found, where none is, and how they are cleaned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.timing import is_linear
from surefoot.errors import InputError
from surefoot.text.answers import Answer, clean_answer, closing_text, find_answer

# text, value, the statement, source
FOUND: list[tuple[str, str, str, str]] = [
    ("Final Answer: 5", "5", "Final Answer: 5", "final_answer"),
    ("a\r\n  final answer:  -3.5 \r\nb", "-3.5", "final answer:  -3.5", "final_answer"),
    ("**Final Answer:** $\\frac{1}{2}$.", "\\frac{1}{2}", "**Final Answer:** $\\frac{1}{2}$.", "final_answer"),
    ("**Final Answer**: 5", "5", "**Final Answer**: 5", "final_answer"),
    ("**Final Answer: 42**", "42", "**Final Answer: 42**", "final_answer"),
    ("### Final Answer：\t7", "7", "### Final Answer：\t7", "final_answer"),
    ("> The Final Answer: 7", "7", "> The Final Answer: 7", "final_answer"),
    ("Final Answer: 1\nFinal Answer: 2", "2", "Final Answer: 2", "final_answer"),
    ("Final Answer: 1\nFinal Answer:", "1", "Final Answer: 1", "final_answer"),
    ("Final Answer:\n\n  5\nbye", "5", "Final Answer:\n\n  5", "final_answer"),
    ("Final Answer:\n$$\nx = 5\n$$\nbye", "x = 5", "Final Answer:\n$$\nx = 5\n$$", "final_answer"),
    ("**Final Answer**\n\n\\[\n\\boxed{5}\n\\]", "5", "**Final Answer**\n\n\\[\n\\boxed{5}\n\\]", "final_answer"),
    ("## Final Answer\n42", "42", "## Final Answer\n42", "final_answer"),
    ("Final Answer: The answer is 5", "5", "Final Answer: The answer is 5", "final_answer"),
    ("Final Answer: The final answer is $42$. I hope it is correct.", "42", "", "final_answer"),
    ("Final Answer: so \\boxed{x^{2}} holds", "x^{2}", "", "final_answer"),
    ("Final Answer: \\boxed{a\n+ b}\nbye", "a + b", "Final Answer: \\boxed{a\n+ b}", "final_answer"),
    ("\\boxed{7}\nFinal Answer: 5\n#### 6", "5", "Final Answer: 5", "final_answer"),
    ("Final Answer: 13\n\nWait, that is 14.\n\nSo the answer is \\boxed{14}.", "14", "\\boxed{14}", "boxed"),
    ("Final Answer: 13\nWait. \\boxed{14}\nFinal Answer: 15", "15", "Final Answer: 15", "final_answer"),
    ("Final Answer: 13\nTo be sure: \\boxed{13}", "13", "Final Answer: 13", "final_answer"),
    ("<think>\nFinal Answer: 13\n</think>\nIt is \\boxed{14}.", "14", "\\boxed{14}", "boxed"),
    ("<think>\nFinal Answer: 13\n</think>\nThe answer is 12.", "12", "The answer is 12", "phrase"),
    ("I guess \\boxed{3}.</think>\n\nIt is 4: #### 4\n#### 4", "4", "#### 4", "hashes"),
    ("<think>so \\boxed{3}</think>\n\nDone.", "3", "\\boxed{3}", "boxed"),
    ("<b>Final Answer:</b> 5", "5", "<b>Final Answer:</b> 5", "final_answer"),
    ("<p><strong>Final Answer</strong>: <b>5</b></p>", "5", "", "final_answer"),
    ("Final Answer: 5 ✓", "5", "Final Answer: 5 ✓", "final_answer"),
    ("Final Answer: 42 (since 6*7 = 42)", "42", "Final Answer: 42 (since 6*7 = 42)", "final_answer"),
    ("Final Answer:\n- 14", "14", "Final Answer:\n- 14", "final_answer"),
    ("Final Answer:\n-14", "-14", "Final Answer:\n-14", "final_answer"),
    ("\ufeffFinal Answer: 5", "5", "\ufeffFinal Answer: 5", "final_answer"),
    ("a\n答案：14", "14", "答案：14", "final_answer"),
    ("<think>\n\\boxed{3}\n</think>\n<answer>14</answer>", "14", "<answer>14</answer>", "tags"),
    ("</think><answer>\n14 eggs\n</answer>\n", "14 eggs", "<answer>\n14 eggs\n</answer>", "tags"),
    ("a <ANSWER>It is \\boxed{x < 5}.</ANSWER> b", "x < 5", "<ANSWER>It is \\boxed{x < 5}.</ANSWER>", "tags"),
    ("<answer>1</answer>\n<answer>2</answer>\n<answer></answer>", "2", "<answer>2</answer>", "tags"),
    ("Final Answer:\n#### 6", "6", "#### 6", "hashes"),
    ("Final Answer:\nStep 2: b\n\\boxed{7}", "7", "\\boxed{7}", "boxed"),
    ("## Final Answer\nWe add them all.\n\n\\boxed{5}", "5", "\\boxed{5}", "boxed"),
    ("a\nAnswer: 5", "5", "Answer: 5", "final_answer"),
    ("a\n# **ANSWER：** $\\frac{29}{5}$.\n", "\\frac{29}{5}", "# **ANSWER：** $\\frac{29}{5}$.", "final_answer"),
    ("a\n> *The answer*: \\boxed{5}", "5", "> *The answer*: \\boxed{5}", "final_answer"),
    ("a\nAnswer:\n\n$$\nx = 5\n$$", "x = 5", "Answer:\n\n$$\nx = 5\n$$", "final_answer"),
    ("\\boxed{4}\nAnswer: 5 red apples.", "5 red apples", "Answer: 5 red apples.", "final_answer"),
    ("Answer: 4\nAnswer: 5", "5", "Answer: 5", "final_answer"),
    ("Final Answer:\nAnswer: 5", "5", "Answer: 5", "final_answer"),
    ("Final Answer: 4\nAnswer: 5", "4", "Final Answer: 4", "final_answer"),
    ("#### 4\nAnswer: 5", "4", "#### 4", "hashes"),
    ("Answer: 4\n\\boxed{5}", "5", "\\boxed{5}", "boxed"),
    ("Answer: 2 and 3 make \\boxed{5}", "5", "\\boxed{5}", "boxed"),
    ("Answer: Two and three, so the answer is 5.", "5", "the answer is 5", "phrase"),
    ("a\n#### 42", "42", "#### 42", "hashes"),
    ("####42", "42", "####42", "hashes"),
    ("#### $18", "$18", "#### $18", "hashes"),
    ("#### -1,234.50", "-1,234.50", "#### -1,234.50", "hashes"),
    ("#### 3/4", "3/4", "#### 3/4", "hashes"),
    ("#### 50%", "50%", "#### 50%", "hashes"),
    ("#### \\boxed{5}", "5", "#### \\boxed{5}", "hashes"),
    ("#### $x = 2\\sqrt{3}$", "x = 2\\sqrt{3}", "#### $x = 2\\sqrt{3}$", "hashes"),
    ("#### (1, 2)", "(1, 2)", "#### (1, 2)", "hashes"),
    ("#### B", "B", "#### B", "hashes"),
    ("#### 5.", "5", "#### 5.", "hashes"),
    ("#### 5 apples", "5 apples", "#### 5 apples", "hashes"),
    ("#### $1,250.50 a day.", "$1,250.50 a day", "#### $1,250.50 a day.", "hashes"),
    ("#### 3/4 of a mile", "3/4 of a mile", "#### 3/4 of a mile", "hashes"),
    ("#### 5 USD", "5 USD", "#### 5 USD", "hashes"),
    ("## Final Answer\n5 apples", "5 apples", "## Final Answer\n5 apples", "final_answer"),
    ("#### 1\n#### 2\n#### Step 3", "2", "#### 2", "hashes"),
    ("#### 4\n\\boxed{5}", "5", "\\boxed{5}", "boxed"),
    ("so \\boxed{5}.", "5", "\\boxed{5}", "boxed"),
    ("\\boxed{1} \\boxed{2}", "2", "\\boxed{2}", "boxed"),
    ("\\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt{2}}", "\\boxed{\\frac{1}{\\sqrt{2}}}", "boxed"),
    ("\\boxed{\\boxed{5}}", "5", "\\boxed{5}", "boxed"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}", "\\boxed{\\{1, 2\\}}", "boxed"),
    ("\\boxed{a\\}}", "a\\}", "\\boxed{a\\}}", "boxed"),
    ("\\boxed{1} and \\boxed{2", "1", "\\boxed{1}", "boxed"),
    ("\\boxed{2 and \\boxed{3}", "3", "\\boxed{3}", "boxed"),
    ("\\boxed{1} and \\boxed{ }", "1", "\\boxed{1}", "boxed"),
    ("\\boxed{1}, \\boxed{2\n\n}", "1", "\\boxed{1}", "boxed"),
    ("\\boxed{ $5$ }", "5", "\\boxed{ $5$ }", "boxed"),
    ("\\boxed {5}", "5", "\\boxed {5}", "boxed"),
    ("\\fbox{5}", "5", "\\fbox{5}", "boxed"),
    ("so $\\boxed 5$", "5", "\\boxed 5", "boxed"),
    ("so \\boxed -1.5.", "-1.5", "\\boxed -1.5", "boxed"),
    ("\\boxed{5}. The answer is 6", "5", "\\boxed{5}", "boxed"),
    ("So the answer is 5.", "5", "the answer is 5", "phrase"),
    ("The answer is: **5**\nbye", "5", "The answer is: **5**", "phrase"),
    ("THE FINAL ANSWER IS $2.50. Bye", "$2.50", "THE FINAL ANSWER IS $2.50", "phrase"),
    ("the answer is 1. the answer is 2. ok", "2", "the answer is 2", "phrase"),
    ("the answer is 1, and the answer is", "1", "the answer is 1", "phrase"),
    ("So the answer is 18!", "18", "the answer is 18", "phrase"),
    ("The answer is 7, as required.", "7", "The answer is 7", "phrase"),
    ("The answer is 5. Let me check: the answer is correct.", "5", "The answer is 5", "phrase"),
    ("The answer is 1, 2 and 3.", "1, 2 and 3", "The answer is 1, 2 and 3", "phrase"),
    ("The answer is 1, and 2.", "1, and 2", "The answer is 1, and 2", "phrase"),
    ("The answer is correct.", "correct", "The answer is correct", "phrase"),
    ("the answer is 42。", "42", "the answer is 42", "phrase"),
    ("So 2+12=14. Final answer: 14", "14", "Final answer: 14", "phrase"),
    ("Final answer is 14.", "14", "Final answer is 14", "phrase"),
    ("So my final answer is Paris.", "Paris", "my final answer is Paris", "phrase"),
    ("The answer is:\n\n14\nbye", "14", "The answer is:\n\n14", "phrase"),
    ("The answer is:\n$$14$$", "14", "The answer is:\n$$14$$", "phrase"),
    ("The answer is:\n\\[\n14\n\\]", "14", "The answer is:\n\\[\n14", "phrase"),
    ("所以答案是14。", "14", "答案是14", "phrase"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "statement", "source"), FOUND)
def test_answers_are_found(text: str, value: str, statement: str, source: str) -> None:
    found = find_answer(text)
    assert found is not None
    assert (found.value, found.source) == (value, source)
    assert text[found.start : found.end] == (statement or text)


NOT_FOUND = [
    "", " \n", "5", "Final Answer:", "Final Answer: **", "Final Answer: $$", "Final Answer is near",
    "## Final Answer", "Finally Answer: 5", "####", "#### Step 2", "#### Solution",
    "#### Solution 2", "#### 1. Setup", "#### 2) Solve x", "#### Part 1: x", "#### To do", "#### 解答2", "##### 5",
    "### 5", "#### 5 apples in a box", "#### 2 Setup", "#### 2. setup", "#### 2 x 4 Boards", "Answer:", "Answer: **",
    "Answer: 5\nb", "Answer: Paris", "Answer: 5 apples in a box", "Answer\n5", "Answers: 5", "My answer: 5",
    "Answer 1: 5", "\\boxed{", "\\boxed{5", "\\boxed{}", "\\boxed{5\\}", "\\boxed{5\n\n}", "\\boxedness 5",
    "<answer></answer>", "<answer>5", "5</answer>", "the answer is:\nwe will see", "So the final answer: none yet",
    "the answer is", "the answer is .", "the answer was 5", "bathe answer is",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_states_no_answer(text: str) -> None:
    assert find_answer(text) is None


CLEANED = [
    ("5", "5"), (" 5 ", "5"), ("$5$", "5"), ("$$5$$", "5"), ("\\(5\\)", "5"), ("\\[5\\]", "5"), ("**5**", "5"),
    ("*5*", "5"), ("`5`", "5"), ("_5_", "5"), ("5.", "5"), ("**$5$.**", "5"), ("$5.$", "5"),
    ("\\( \\boxed{5} \\).", "5"), ("5 \\]", "5"), ("$18", "$18"), ("\\$18", "\\$18"), ("$\\$18$", "\\$18"),
    ("18$", "18$"), ("$5$ and $6$", "$5$ and $6$"), ("$", ""), ("\\(1\\) or \\(2\\)", "\\(1\\) or \\(2\\)"),
    ("**1** or **2**", "**1** or **2**"), ("2**3", "2**3"), ("2*3", "2*3"), ("3.14", "3.14"), ("5!", "5!"), ("", ""),
    ("5 ✓", "5"), ("5✅", "5"), ("$5$ ✔️.", "5"),
    ("42 (since 6*7 = 42)", "42"), ("0.5 (or 1/2)", "0.5"), ("x (because f(x) = x)", "x"), ("5 (approx.)", "5"),
    ("<b>5</b>", "5"), ("<strong>$5$</strong><br>", "5"), ("f (x)", "f (x)"), ("5 (mod 7)", "5 (mod 7)"),
    ("(1, 2)", "(1, 2)"),
    ("a (b + c)", "a (b + c)"), ("x < 5", "x < 5"), ("✓", "✓"), ("**", ""), ("\\[", ""),
    ("thus the answer is $x$", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "value"), CLEANED)
def test_values_are_cleaned(raw: str, value: str) -> None:
    assert clean_answer(raw) == value


def test_closing_text() -> None:
    assert closing_text("\\frac{1}{2}") == "The answer is \\boxed{\\frac{1}{2}}"


MARKS = [
    "Final Answer:", "Answer:", "#### ", "\\boxed{", "\\fbox ", "}", "{", "\\", "the answer is ", "$", "$$", "\\(",
    "\\]", "*", "`", "_", "\n", "\r\n", "\n\n", " ", ".", "5", "x", "Step 1:", "%", "-", "\u2028",
]  # fmt: skip
any_text = st.one_of(st.text(), st.lists(st.sampled_from(MARKS), max_size=25).map("".join))


@settings(max_examples=250, deadline=None)
@given(any_text)
def test_any_text_can_be_searched(text: str) -> None:
    found = find_answer(text)
    if found is None:
        return
    assert isinstance(found, Answer)
    assert 0 <= found.start < found.end <= len(text)
    statement = text[found.start : found.end]
    assert statement == statement.strip()
    assert found.value == found.value.strip() != ""
    assert not {"\n", "\r"} & set(found.value)
    assert set(found.value) - {" "} <= set(statement)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab12+-=^_{}\\ ", min_size=1), st.text(alphabet="xyz .\n"))
def test_a_balanced_box_comes_back(inner: str, around: str) -> None:
    depth = 0
    for char in inner.replace("\\{", "").replace("\\}", ""):
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return
    if depth or "\\" in inner or not inner.strip() or inner.strip() != inner.strip("_ "):
        return
    found = find_answer(f"{around}\\boxed{{{inner}}}{around}")
    assert found is not None
    assert found.value == inner.strip()


HOSTILE = [
    "\\boxed{", "\\boxed{}", "\\boxed ", "the answer is ", "the answer is. ", "#### 5\n", "Final Answer:\n",
    "Answer:\n", "Answer: 5\n", "Answer: \\boxed{\n", "$", "*", "`", "\\[", "{", "}", "\\", "\n", " ", "1", "\\text{",
    "<answer>", "<answer></answer>", "<answer>5</answer>\n", "</think>\n", "the answer is:\n", "final answer:",
    "</b>", "<b>", "<b>x</b>", "✓", " (or ", " (or (a)", "<think>\n", "</think>", "<think>\n</think>\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    size = 100_000 // len(unit)
    assert is_linear(lambda count: find_answer(unit * count), size)
    assert is_linear(lambda count: find_answer("Final Answer: " + unit * count), size)
    assert is_linear(lambda count: find_answer("\\boxed{" + unit * count + "}" * (count // 6)), size)


@pytest.mark.parametrize("bad", [None, 5, 5.0, ["5"]])
def test_only_text_is_searched(bad: Any) -> None:
    with pytest.raises(InputError, match=f"^find_answer\\(\\) expects a string, but got {type(bad).__name__}.$"):
        find_answer(bad)
