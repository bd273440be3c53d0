"""Recipes: labels that are exact, styles that keep them, and the same examples for the same seed."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.text.arithmetic.equations import check_arithmetic
from surefoot.train.example import question_key
from surefoot.train.synthetic import (
    KINDS,
    Style,
    Worked,
    compare_with_gold,
    corrupt,
    known_values,
    make_variants,
    parse_worked,
    pick_style,
    write,
)
from surefoot.train.synthetic.style import ANSWERS, EQUATIONS, OPENINGS
from surefoot.train.synthetic.worked import format_like, format_number, swap_numbers

QUESTION = "Ann sells 48 clips in April and half as many in May, for $3 each. How much does she earn?"
ANSWER = (
    "Ann sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "She sold 48 + 24 = <<48+24=72>>72 clips altogether.\n"
    "So she earned 72 x 3 = $<<72*3=216>>216 in total.\n"
    "#### 216"
)


@pytest.fixture(scope="module")
def worked() -> Worked:
    found = parse_worked(QUESTION, ANSWER)
    assert found is not None
    return found


def test_a_row_taken_apart(worked: Worked) -> None:
    assert [line.text for line in worked.lines] == [
        "Ann sold 48/2 = 24 clips in May.",
        "She sold 48 + 24 = 72 clips altogether.",
        "So she earned 72 x 3 = $216 in total.",
    ]
    assert [(part.visible, part.lead, part.expression, part.shown) for *_, part in worked.calculations] == [
        ("48/2", " = ", "48/2", "24"),
        ("48 + 24", " = ", "48+24", "72"),
        ("72 x 3", " = $", "72*3", "216"),
    ]
    assert worked.answer == "216"


@pytest.mark.parametrize(
    "answer",
    [
        "He has 3*4 = <<3*4=13>>13.\n#### 13",  # the mark is false
        "He has 3*4 = <<3*4=12>>13.\n#### 13",  # the text shows another number
        "He has 3*5 = <<3*4=12>>12.\n#### 12",  # the text shows another expression
        "He has 3*4 = <<3*4=12>>12.\n#### 11",  # the answer is another
        "He has 3*4 = <<3*4=12>>12.",  # no answer
        "He has 12.\n#### 12",  # nothing to spoil
        "He has 3*4 = <<3*4=12>>.\n#### 12",  # the result is not shown
        "He has 3*4 = <<3*4=12.\n#### 12",  # broken mark
        "He has 3*4 = <<3*n=12>>12.\n#### 12",  # no arithmetic
        "#### twelve",
        "",
    ],
)
def test_rows_that_do_not_hold_are_not_used(answer: str) -> None:
    assert parse_worked("3 times 4?", answer) is None
    assert make_variants("3 times 4?", answer) == []


def test_rounding_in_a_row_is_accepted() -> None:
    found = parse_worked("10 by 3?", "Each gets 10/3 = $<<10/3=3.33>>3.33.\n#### 3.33")
    assert found is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_the_label_is_the_first_line_that_differs(worked: Worked, kind: str, seed: int) -> None:
    spoiled = corrupt(worked, kind, random.Random(seed))
    assert spoiled is not None
    gold = [line.text for line in worked.lines]
    new = [line.text for line in spoiled.lines]
    if kind == "answer":
        assert new == gold
        assert spoiled.label == len(gold)
        assert spoiled.answer != worked.answer
        return
    assert new[: spoiled.label] == [text for text in gold if text in new[: spoiled.label]]
    assert new[spoiled.label] not in gold
    false = [at for at, text in enumerate(new) for e in check_arithmetic(text) if e.verdict is False]
    # Only a slip breaks the arithmetic, and only where it happens: everything else is done rightly, with wrong things.
    assert false == ([spoiled.label] if kind == "slip" else [])


SPOILED = [
    ("operand", "Ann sold 48/3 = 16 clips in May."),
    ("operation", "She sold 48 - 24 = 24 clips altogether."),
    ("operation", "Ann sold 48*2 = 96 clips in May."),
    ("slip", "Ann sold 48/2 = 25 clips in May."),
    ("dropped", "So she earned 48 x 3 = $144 in total."),
    ("swapped", "Ann sold 3/2 = 1.5 clips in May."),
]


@pytest.mark.parametrize(("kind", "line"), SPOILED)
def test_errors_that_must_come_out_sooner_or_later(worked: Worked, kind: str, line: str) -> None:
    found = [corrupt(worked, kind, random.Random(seed)) for seed in range(200)]
    assert line in {one.lines[one.label].text for one in found if one is not None}


def test_an_error_is_carried_on(worked: Worked) -> None:
    for seed in range(200):
        spoiled = corrupt(worked, "slip", random.Random(seed))
        if spoiled is not None and spoiled.lines[0].text == "Ann sold 48/2 = 25 clips in May.":
            assert [line.text for line in spoiled.lines[1:]] == [
                "She sold 48 + 25 = 73 clips altogether.",
                "So she earned 73 x 3 = $219 in total.",
            ]
            assert spoiled.answer == "219"
            return
    raise AssertionError("the slip did not come")


def test_a_dropped_step_is_gone_and_the_next_that_needs_it_is_wrong(worked: Worked) -> None:
    for seed in range(50):
        spoiled = corrupt(worked, "dropped", random.Random(seed))
        assert spoiled is not None
        assert len(spoiled.lines) == 2
        assert spoiled.label in (0, 1)


def test_a_result_that_is_named_before_its_calculation_changes_too() -> None:
    found = parse_worked("3 bags of 4?", "He has 12 apples because 3*4 = <<3*4=12>>12.\n#### 12")
    assert found is not None
    spoiled = corrupt(found, "slip", random.Random(0))
    assert spoiled is not None
    shown = spoiled.answer
    assert spoiled.lines[0].text == f"He has {shown} apples because 3*4 = {shown}."


def test_no_place_for_an_error_gives_none() -> None:
    found = parse_worked("How many?", "There are 5+5 = <<5+5=10>>10.\n#### 10")
    assert found is not None
    assert corrupt(found, "swapped", random.Random(0)) is None
    assert corrupt(found, "dropped", random.Random(0)) is None
    assert corrupt(found, "operand", random.Random(0)) is None


STYLES = [
    (Style(), ["Ann sold 48/2 = 24 clips in May.", "The answer is 216."]),
    (Style(equation="spaced", times="×"), ["Ann sold 48 / 2 = 24 clips in May.", "The answer is 216."]),
    (Style(equation="inline"), ["Ann sold \\(\\frac{48}{2} = 24\\) clips in May.", "The answer is 216."]),
    (Style(equation="dollars"), ["Ann sold $\\frac{48}{2} = 24$ clips in May.", "The answer is 216."]),
    (Style(equation="display"), ["Ann sold 24 clips in May.\n\\[ \\frac{48}{2} = 24 \\]", "The answer is 216."]),
    (Style(opening="bold_steps"), ["**Step 1:** Ann sold 48/2 = 24 clips in May.", "The answer is 216."]),
    (Style(opening="numbers", answer=ANSWERS[1]), ["1. Ann sold 48/2 = 24 clips in May.", "#### 216"]),
    (Style(opening="headings", answer=ANSWERS[7]), ["### Step 1\nAnn sold 48/2 = 24 clips in May.", "\\boxed{216}"]),
]


@pytest.mark.parametrize(("style", "expected"), STYLES)
def test_styles(worked: Worked, style: Style, expected: list[str]) -> None:
    steps, label = write(worked.lines, worked.answer, style, random.Random(0))
    assert [steps[0], steps[-1]] == expected
    assert (len(steps), label) == (4, -1)


def test_money_in_latex(worked: Worked) -> None:
    steps, _ = write(worked.lines, worked.answer, Style(equation="inline"), random.Random(0))
    assert steps[2] == "So she earned \\(72 \\times 3 = \\$216\\) in total."


def test_the_label_follows_an_introduction_and_an_answer_in_the_last_step(worked: Worked) -> None:
    rng = random.Random(0)
    assert write(worked.lines, "1", Style(intro="Let's see."), rng, label=1)[1] == 2
    steps, label = write(worked.lines, "1", Style(own_step=False), rng, label=3)
    assert (len(steps), label) == (3, 2)
    assert steps[2].endswith("\n\nThe answer is 1.")
    assert write(worked.lines, "1", Style(intro="Let's see.", own_step=False), rng, label=-1)[1] == -1


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("opening", OPENINGS)
def test_no_style_breaks_an_equation(worked: Worked, equation: str, opening: str) -> None:
    style = Style(equation=equation, opening=opening)
    steps, _ = write(worked.lines, worked.answer, style, random.Random(1))
    for step in steps[:3]:
        assert {e.verdict for e in check_arithmetic(step)} == {True}


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.integers(2, 60), st.integers(2, 9), st.integers())
def test_variants_of_any_numbers(a: int, b: int, c: int, seed: int) -> None:
    question = f"Tom has {a} red and {b} blue boxes of {c} pens. How many pens?"
    answer = (
        f"He has {a}+{b}=<<{a}+{b}={a + b}>>{a + b} boxes.\n"
        f"That is {a + b}*{c} = <<{a + b}*{c}={(a + b) * c}>>{(a + b) * c} pens.\n#### {(a + b) * c}"
    )
    examples = make_variants(question, answer, count=8, seed=seed)
    assert examples == make_variants(question, answer, count=8, seed=seed)
    assert sum(example.first_error == -1 for example in examples) == 2
    for example in examples:
        if example.first_error == -1:
            right = example
        assert example.steps[: max(0, example.first_error)] == right.steps[: max(0, example.first_error)]
        assert question_key(example.question) == question_key(question)
        for step, target in zip(example.steps, example.targets, strict=True):
            if target == 1.0:
                assert all(equation.verdict is not False for equation in check_arithmetic(step))


def test_styles_are_drawn_by_the_generator_alone() -> None:
    assert [pick_style(random.Random(5)) for _ in range(3)] == [pick_style(random.Random(5))] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(5), "5"), (Fraction(1, 2), "0.5"), (Fraction(10, 3), "3.33"), (Fraction(-5, 4), "-1.25")],
)
def test_numbers_as_people_write_them(value: Fraction, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "old", "money", "text"),
    [
        (Fraction(2500), "1,000", False, "2,500"),
        (Fraction(2500), "1000", False, "2500"),
        (Fraction(800), "1,000", False, "800"),
        (Fraction(25, 2), "10", True, "12.50"),
        (Fraction(12), "10.50", True, "12.00"),
        (Fraction(12), "10", True, "12"),
        (Fraction(12), "10.50", False, "12.00"),
        (Fraction(12), "0.25", False, "12"),
        (Fraction(5, 2), "3", False, "2.5"),
        (Fraction(20005, 2), "1,000.50", True, "10,002.50"),
    ],
)
def test_a_number_looks_like_the_one_it_replaces(value: Fraction, old: str, money: bool, text: str) -> None:
    assert format_like(value, old, money=money) == text


def test_numbers_are_swapped_whole() -> None:
    changed = {Fraction(12): Fraction(7), Fraction(1200): Fraction(8800), Fraction(3): Fraction(9, 2)}
    assert swap_numbers("12 and 1,200, 112, $3", changed) == "7 and 8,800, 112, $4.50"


def test_words_of_the_first_wrong_line_stay() -> None:
    """With them changed too, it might be a true sentence about other numbers."""
    row = (
        "For 5 boxes of 7 she pays 5*7 = $<<5*7=35>>35.\nWith 9 for the 5 bags that is 35+9 = $<<35+9=44>>44.\n#### 44"
    )
    found = parse_worked("5 boxes at $7, 5 bags for $9. What does she pay?", row)
    assert found is not None
    for seed in range(40):
        spoiled = corrupt(found, "swapped", random.Random(seed))
        if spoiled is not None and spoiled.label == 0:
            assert spoiled.lines[0].text.startswith("For 5 boxes of 7 she pays ")
            assert spoiled.lines[0].text != found.lines[0].text
            break
    else:
        raise AssertionError("no seed swapped anything on the first line")


def test_a_full_stop_is_no_decimal_point() -> None:
    found = parse_worked("q", "There are 4 packs of 3 balls. 4*3=<<4*3=12>>12 balls.\n#### 12")
    assert found is not None
    assert [part.visible for *_, part in found.calculations] == ["4*3"]


GOLD = "3 * 4 = <<3*4=12>>12\n12 - 2 = <<12-2=10>>10"
KNOWN = known_values("3 bags of 4, minus 2", GOLD)
COMPARED = [
    (["3 * 4 = 12", "12 - 2 = 10", "10"], True, (1, 1, 1)),
    (["We think.", "3 + 4 = 7", "7 - 2 = 5"], False, (None, 0.3, None)),
    (["3 * 4 = 12", "12 - 2 = 11", "11"], False, (0.95, 0, None)),
    (["3 * 4 = 12", "12 + 2 = 14"], False, (0.8, 0.3)),
    (["3 * 4 = 12", "The answer is 12."], False, (None, None)),
    (["<<3*4=12>>12", "<<12+2=14>>14"], False, (0.8, 0.3)),
    (["3 * 4 = 12", "12 - 2 = 11", "So it is 10."], True, (1, None, None)),
]


@pytest.mark.parametrize(("steps", "right", "targets"), COMPARED)
def test_real_solutions_compared_with_the_gold(
    steps: list[str], right: bool, targets: tuple[float | None, ...]
) -> None:
    assert compare_with_gold("q", steps, right=right, known=KNOWN).targets == targets


def test_values_of_other_right_solutions_are_known() -> None:
    known = known_values("q", GOLD, [["4 + 4 = 8", "8 + 4 = 12"]])
    assert compare_with_gold("q", ["4 + 4 = 8", "8 + 9 = 17"], right=False, known=known).targets == (0.8, 0.3)
    assert known_values("q", GOLD, [["4 + 4 = 8", "8 + 4 = 13"]]) == known_values("q", GOLD)
