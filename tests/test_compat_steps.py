"""Steps that the original scorer extracts, recorded from its own code, and where the drop-in replacement differs.

Source: `extract_prm_steps` in `src/rl/prm_scorer.py` with `src/sft/solution_format.py` of the public repository
Prem01-cyber/finetune_qwen, commit c29d930611904bd630d05d368f964d15b4af8b7d.
"""

from __future__ import annotations

import time

import pytest

from surefoot.compat import extract_prm_steps

RECORDED: list[tuple[str, list[str]]] = [
    (
        "Step 1: There are 3 bags.\nStep 2: 3 * 4 = 12.\nFinal Answer: 12",
        ["There are 3 bags.", "3 * 4 = 12.", "The answer is \\boxed{12}"],
    ),
    ("step 1: a\nSTEP 2: b", ["a", "b"]),
    ("Step 1:\nStep 2: b", ["b"]),
    ("Step 1: a\n\nb\n\nStep 2: c\n", ["a\n\nb", "c"]),
    ("Intro.\nStep 1: a", ["a"]),
    ("  Step 1: a\n\tStep 2: b", ["a", "b"]),
    ("Step 1 : a", ["a"]),
    ("Step  12:a", ["a"]),
    ("Step \u0663: a", ["a"]),
    ("Step 1: a\nStep 2 is wrong\nStep 3: b", ["a\nStep 2 is wrong", "b"]),
    ("Step one: a", []),
    ("We take Step 1: a", []),
    ("Step 1: so it is \\boxed{5}", ["so it is \\boxed{5}"]),
    ("no steps at all", []),
    ("", []),
    (" \n\t ", []),
    ("Final Answer: 7", ["The answer is \\boxed{7}"]),
    ("Final Answer: 7\nStep 1: a", ["The answer is \\boxed{7}"]),
    ("Step 1: a\nFinal Answer: 5\nBye\nStep 2: b", ["a", "The answer is \\boxed{5}"]),
    ("Step 1: a\nFinal Answer: 4\nStep 2: b\nFinal Answer: 5", ["a", "The answer is \\boxed{5}"]),
    ("Step 1: a\nFinal Answer:", ["a"]),
    ("Step 1: a\nFinal Answer: 4\nFinal Answer:", ["a", "The answer is \\boxed{4}"]),
    ("Step 1: a\nFinal Answer:\n12", ["a", "The answer is \\boxed{12}"]),
    ("Step 1: a\nFinal Answer:\n\n  12  \nBye", ["a", "The answer is \\boxed{12}"]),
    ("Step 1: a\nFinalAnswer: 5", ["a", "The answer is \\boxed{5}"]),
    ("Step 1: a\nFINAL  ANSWER : 5", ["a", "The answer is \\boxed{5}"]),
    ("Step 1: a\nThe final answer: 5", ["a\nThe final answer: 5"]),
    ("Step 1: a\nThe answer is 5.", ["a\nThe answer is 5."]),
    ("Step 1: a\nFinal Answer: $1,234.50", ["a", "The answer is \\boxed{$1,234.50}"]),
    ("Step 1: a\nFinal Answer: 25%", ["a", "The answer is \\boxed{25%}"]),
    ("Step 1: a\nFinal Answer: 18 eggs", ["a", "The answer is \\boxed{18 eggs}"]),
    ("Step 1: a\nFinal Answer: $18 a day", ["a", "The answer is \\boxed{$18 a day}"]),
    ("Step 1: a\nFinal Answer: 1,250", ["a", "The answer is \\boxed{1,250}"]),
    ("Step 1: a\nFinal Answer: 3/4", ["a", "The answer is \\boxed{3/4}"]),
    ("Step 1: a\nFinal Answer: -5", ["a", "The answer is \\boxed{-5}"]),
    ("Step 1: a\nFinal Answer: .5", ["a", "The answer is \\boxed{.5}"]),
    ("Step 1: a\nFinal Answer: x = 5", ["a", "The answer is \\boxed{x = 5}"]),
    ("Step 1: a\nFinal Answer: 14 dozen", ["a", "The answer is \\boxed{14 dozen}"]),
    ("Step 1: a\nFinal Answer: 2 and a half", ["a", "The answer is \\boxed{2 and a half}"]),
    ("Step 1: a\nFinal Answer: \\sqrt{2}", ["a", "The answer is \\boxed{\\sqrt{2}}"]),
    ("Step 1: a\nFinal Answer: \\frac{1}{2} cup", ["a", "The answer is \\boxed{\\frac{1}{2} cup}"]),
    ("Step 1: a\nFinal Answer: x^2+y", ["a", "The answer is \\boxed{x^2+y}"]),
    ("Step 1: a\nFinal Answer: 5 km/h", ["a", "The answer is \\boxed{5 km/h}"]),
    ("Step 1: a\nFinal Answer: 42 (since 6*7 = 42)", ["a", "The answer is \\boxed{42 (since 6*7 = 42)}"]),
    ("Step 1: a\nFinal Answer: The answer is 12 apples", ["a", "The answer is \\boxed{The answer is 12 apples}"]),
    ("Step 1: a\nFinal Answer: 3:30 pm", ["a", "The answer is \\boxed{3:30 pm}"]),
    ("Step 1: a\nFinal Answer: [1, 2)", ["a", "The answer is \\boxed{[1, 2)}"]),
    ("Step 1: a\nFinal Answer: (3, 4)", ["a", "The answer is \\boxed{(3, 4)}"]),
    ("Step 1: a\nFinal Answer: \u00a35", ["a", "The answer is \\boxed{\u00a35}"]),
    ("Step 1: a\nFinal Answer: 5!", ["a", "The answer is \\boxed{5!}"]),
    ("Step 1: a\nFinal Answer: \u5341\u4e8c", ["a", "The answer is \\boxed{\u5341\u4e8c}"]),
    ("Step 1: a\n#### 12", ["a\n#### 12"]),
    ("Step 1: a\nStep 2: b\n#### 99999", ["a", "b\n#### 99999"]),
    ("Step 1: a\n<answer>12</answer>", ["a\n<answer>12</answer>"]),
    ("Step 1: a\n#### 12\nFinal Answer: 12", ["a\n#### 12", "The answer is \\boxed{12}"]),
    ("Step 1: a\nAnswer: 12", ["a\nAnswer: 12"]),
    ("Step 1: a\r\nb\r\nStep 2: c\r\nFinal Answer: 5\r\n", ["a\nb", "c", "The answer is \\boxed{5}"]),
    ("Step 1: a\u2028b\nStep 2: c", ["a\nb", "c"]),
    ("Step 1: a\fb", ["a\nb"]),
    ("Step 1: a<extra_0>b\nStep 2: <|im_end|>", ["a<extra_0>b", "<|im_end|>"]),
    ("Step 1: ```\nx = 1\n```\nFinal Answer: 1", ["```\nx = 1\n```", "The answer is \\boxed{1}"]),
    ("<think>\nHmm\n</think>\nStep 1: a\nFinal Answer: 1", ["a", "The answer is \\boxed{1}"]),
    ("Step 1: café 😀\nFinal Answer: 😀", ["café 😀", "The answer is \\boxed{😀}"]),
    ("Step 1: a\nFinal Answer: 13\nNo: \\boxed{14}", ["a", "The answer is \\boxed{13}"]),
]

# solution, recorded from the original, wanted, the reason for the difference
DIFFERENT: list[tuple[str, list[str], list[str], str]] = [
    (
        "Step 1: a\nFinal Answer: 12.",
        ["a", "The answer is \\boxed{12.}"],
        ["a", "The answer is \\boxed{12}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: **12**",
        ["a", "The answer is \\boxed{**12**}"],
        ["a", "The answer is \\boxed{12}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: \\boxed{12}",
        ["a", "The answer is \\boxed{\\boxed{12}}"],
        ["a", "The answer is \\boxed{12}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: $12$",
        ["a", "The answer is \\boxed{$12$}"],
        ["a", "The answer is \\boxed{12}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: \\(12\\)",
        ["a", "The answer is \\boxed{\\(12\\)}"],
        ["a", "The answer is \\boxed{12}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: **$1,234.50**",
        ["a", "The answer is \\boxed{**$1,234.50**}"],
        ["a", "The answer is \\boxed{$1,234.50}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: \\boxed{18 \\text{ eggs}}.",
        ["a", "The answer is \\boxed{\\boxed{18 \\text{ eggs}}.}"],
        ["a", "The answer is \\boxed{18 \\text{ eggs}}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer: \\boxed{b}",
        ["a", "The answer is \\boxed{\\boxed{b}}"],
        ["a", "The answer is \\boxed{b}"],
        "the answer gets its own box, so markup around it is removed",
    ),
    (
        "Step 1: a\nFinal Answer:\nStep 2: b",
        ["a", "The answer is \\boxed{Step 2: b}"],
        ["a"],
        "a step is not an answer",
    ),
    (
        "Step 1: a\nFinal Answer:\n\\[\n12\n\\]",
        ["a", "The answer is \\boxed{\\[}"],
        ["a", "The answer is \\boxed{12}"],
        "the value continues on the next lines",
    ),
    (
        "Step 1: a\nFinal Answer: \\boxed{\\begin{pmatrix}1\\\\\n2\\end{pmatrix}}",
        ["a", "The answer is \\boxed{\\boxed{\\begin{pmatrix}1\\\\}"],
        ["a", "The answer is \\boxed{\\begin{pmatrix}1\\\\ 2\\end{pmatrix}}"],
        "the value continues on the next lines",
    ),
    (
        "Step 1: a\rStep 2: b\rFinal Answer: 5",
        ["a", "b"],
        ["a", "b", "The answer is \\boxed{5}"],
        "the original finds the answer line only after a line feed",
    ),
    (
        "Step 1: a\n  Final Answer: 5",
        ["a"],
        ["a", "The answer is \\boxed{5}"],
        "the original ends the steps at an indented answer line but does not read it",
    ),
    ("Step1: a\nStep2: b", [], ["a", "b"], "models write labels in other ways, too"),
    (
        "**Step 1:** a\n**Step 2: Title**\nb\n**Final Answer:** 5",
        [],
        ["a", "Title\nb", "The answer is \\boxed{5}"],
        "models write labels in other ways, too",
    ),
    ("### Step 1\na\n### Step 2\nb", [], ["a", "b"], "models write labels in other ways, too"),
    ("Step 1. a\nStep 2) b", [], ["a", "b"], "models write labels in other ways, too"),
    (
        "Step 1: a\n**Final Answer: 18 eggs**",
        ["a\n**Final Answer: 18 eggs**"],
        ["a", "The answer is \\boxed{18 eggs}"],
        "models write labels in other ways, too",
    ),
    (
        "Step 1: a\n### Final Answer: 5",
        ["a\n### Final Answer: 5"],
        ["a", "The answer is \\boxed{5}"],
        "models write labels in other ways, too",
    ),
]


@pytest.mark.parametrize(("solution", "steps"), RECORDED)
def test_steps_are_those_of_the_original(solution: str, steps: list[str]) -> None:
    assert extract_prm_steps(solution) == steps


@pytest.mark.parametrize(("solution", "original", "steps", "reason"), DIFFERENT)
def test_differences_are_intended(solution: str, original: list[str], steps: list[str], reason: str) -> None:
    assert extract_prm_steps(solution) == steps != original, reason


@pytest.mark.parametrize("unit", ["Final Answer:\n", "Final Answer: {\n", "Step 1:\n", "Final Answer: \\boxed{\n", "*"])
def test_extraction_takes_linear_time(unit: str) -> None:
    began = time.process_time()  # CPU time: a busy machine must not fail the test
    extract_prm_steps(unit * (250_000 // len(unit)))
    assert time.process_time() - began < 1.5
