"""Equations in text: what is true, what is false, what cannot be told."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.text.arithmetic.equations import check_arithmetic
from surefoot.text.arithmetic.expression import evaluate, number_value, numbers_in

TRUE = [
    "12 * 3 = 36", "12*3=36", "12 x 3 = 36", "3x2=6", "12 × 3 = 36", "12 · 3 = 36", "12 * 3 == 36",
    r"\frac{1}{2} \times 18 = 9", r"\dfrac{18}{2} = 9", r"\frac12 \cdot 18 = 9", r"5 \div 2 = 2.5", r"\(18 - 6 = 12\)",
    r"\[ 18 - 6 = 12 \]", r"$18 - 6 = 12$", "$5 + $3 = $8", r"3 \times \$4 = \$12", "3 * $4 = $12.00", "€5 + €3 = €8",
    "1,200 + 300 = 1,500", "1{,}200 + 300 = 1500", "20% of 50 = 10", "20 / 100 = 20%", "0.5 = 50%", "50% = 0.5",
    "(5/20)*100 = 25%", "100% - 20% = 80%", "1/3 of 18 = 6", r"20\% \text{ of } 50 = 10", "10 / 3 = 3.33",
    "200/3 = 66.67", "200/3 = 66.66", "10/3 ≈ 3", r"10/3 \approx 3.3", "1 1/2 * 4 = 6", "2(3+4) = 14", "(2)(3) = 6",
    "2^3 = 8", "3² + 4² = 25", "-5 + 3 = -2", "5 - -3 = 8", "(1 + 2) * (3 + 4) = 21", "[1 + 2] * 3 = 9",
    "(18 - 6 = 12)", "1. 3 + 4 = 7", "1) 3 + 4 = 7", "- 3 + 4 = 7", "* 3 + 4 = 7", "Total = 3 + 4 = 7.",
    r"\text{Total} = 9 \times 2 = 18", "Step 2: 3 + 4 = 7", "**12 * 3 = 36**", "12 * 3 = **36**",
    r"7 * 8 = \boxed{56}", "2 boys/girl * 6 girls = 12 boys", "3 apples * $2/apple = $6", "12 boys + 6 girls = 18 kids",
    "60 students x 2/3 = 40 students", "2 hours * 60 = 120 minutes", "He reads 4 + 5 = 9 pages, so", "3 +\n4 = 7",
    "3 + 4\n= 7", "She gets 30 - 15 = 15 more than Tom", "There are 3*4=12 three-legged cats", "<<48/2=24>>24",
    "48/2 = <<48/2=24>>24 clips", ".5 * 4 = 2", "6 feet * 12 inches/foot = 72 inches", "0.1 + 0.2 = 0.3",
    "2/3 = 0.6667", "1/8 = 0.125", "16 - 3 - 4 = 9", "48 / 2 / 3 = 8", "2 + 3 * 4 = 14", "18/6=3.0", "2^3^2 = 512",
    "2^2^3 = 256", "3²^2 = 81", r"20 = 5 \* 4", "30° + 60° = 90°", r"180^\circ - 60^{\circ} = 120^\circ",
    "After 6 days it would be -20 + (5 * 6) = 10", "The second multiple of 12 is -12*2 = -24", "1) (3 + 4) * 2 = 14",
    r"\begin{align*} 12 + 3 &= 15 \end{align*}", "500 g + 200 g = 700 g", "$5 a day * 3 = $15", "out of 2^5 = 32 cases",
    "reduced by 8 to 48 - 8 = 40", "an average of 60 / 5 = 12", "15 / 2 = 7.5, which is impossible",
    "3 * 4 = 12 L of milk",
]  # fmt: skip

FALSE = [
    "12 * 3 = 37", "$5 + $3 = $9", r"\frac{1}{2} \times 18 = 8", r"\(18 - 6 = 13\)", r"7 * 8 = \boxed{57}",
    "12 * 3 = **37**", "10/3 = 3", "10/3 = 3.34", "10/3 = 3.5", "1/3 of 18 = 7", "20% of 50 = 12",
    "She had 5 apples and 3 + 4 = 8", "1) 3 + 4 = 8", "- 3 + 4 = 8", "5 = 6", "2 + 3 * 4 = 20", "1,200 + 300 = 15,000",
    "<<48/2=25>>25", r"3 \times \$4 = \$13", "12 boys + 6 girls = 19 kids", "Total = 3 + 4 = 8.", "2^3 = 6",
    "192*100=$1920", "10/3 ≈ 7", "100 * 0.75 = 0.75", "16 - 3 - 4 = 8 eggs", "3 apples * $2/apple = $7", "2^3^2 = 64",
    "a total of 8 + 6 = 15", "So we get 24.5 = 7/2", "because 25 = 23 * 22", "1) (3 + 4) * 2 = 15", "(a) 3 + 4 = 8",
    "the average is (3 + 5) / 2 = 5", "45 minutes / 8 students = 6 minutes", "30 minutes + 20 minutes = 60 minutes",
    r"\begin{aligned}12 + 3 &= 16.\end{aligned}", "100% - 20% = 85%", "they raised $430 + $750 = $1980",
    "he will send out 700 * 5 = 350", "0.2 * 0.6 = 0.012 or 1.2%", "30° + 60° = 91°",
    "The equation 41 - 21 = 1 follows",
]  # fmt: skip

UNTOLD = [
    "2x + 3 = 7", "x = 5 + y", "79 - B - 26 = 8", "f(3) = 6 + 1", "cost per apple * 3 = 12", "half of 18 - 6 = 3",
    "5 dozen + 3 = 63", "twice 5 + 3 = 13", "1 hour = 60 minutes", "3 weeks = 3 * 7",
    "2 dollars - 50 cents = 1.5 dollars",
    "$1 / 2 = 50 cents", "120 minutes / 60 = 3 hours", "2:3 = 4:6", "30 (5 * 6) = 30", "12 x 1 and 1/4 = 15",
    "0900-0130 = 0730", "16,0000/10=16000", "0.33 * 100 = 33.33", "1/0 = 5", r"\sqrt{16} + 1 = 5", "5! + 1 = 121",
    "40% of the file = 0.4 * 200", "100+($100*(10/100) = 110", "32 / 2 = 17 million", "(some words) + 1 = 4",
    "7S = 847",
    "1" * 40 + " + 1 = 2", "9^99 = 1", "2^(1/2) = 1",
    # half a bracket, or a factor before it
    r"\frac{x}{4} = 3", r"\frac{x} {4} = 3", "(x)(3) = 12", "(x) (3) = 12", r"\left(x\right)3 = 12", "F'(3) = -4",
    r"g\left(3\right) = 4 + 1", r"\log_{2}8 = 3", r"\frac{1 + \sqrt{5}}{2} \approx 1.6", r"\frac{d}{dx} 5 = 0",
    # another clause
    "x = -2 and y = 5", "a = 10/2 and b = 7", "$A = 18$ or $P = 2 + 3$", "k = 5/3 days and j = 2/3",
    "y when x = -8 is y = 4 * 2", "p = -4 which gives q = 2 + 6", "x = 0 and y = 0",
    # variables
    "1.5 x + 1 = 0", r"\frac{5}{4} x = 6", "2xy + 3 = 7", "1 + 2λx = 0", r"\frac{1}{2} bh = 12", "-200 x-y = 10",
    "48 = (20/3) y", "16x2 = 4056",
    # functions and operations
    "17 mod 5 = 2", "17 mod 5 + 1 = 3", "2 = 17 mod 5", "log 100 = 2", "1 = -4 sin(1)", "The square root of 16 = 4",
    "the square root of 9 + 16 = 5", "10 choose 3 = 120", "120 = 10 choose 3", "5 = 101 base 2", "5 ± 3 = 8", "∛27 = 3",
    "average of 10, 20, 30 = 20", "average of 10 + 20 + 30 = 20", "ratio of 3 to 4 = 0.75", "from -1 to 1 = 2/3",
    "5 out of 10 * 100 = 60", "20% off 50 + 10 = 50", "dividing 36 feet by 2/3 = 54", "1 + 2 + ... + 10 = 55",
    "1 - 2 + ... -10 = 5", "180° - A - 60 = 50", "24 / 2/3 = 36", r"2\frac{1}{3}(3) = 2", "50 + 10% = 55",
    # names
    "Total for week 2 = 10 + 5", "Week 1 + Week 2 = 35 + 35", "on day 1 * 2 = 20", "x : y : 8 = 1 : 6 : 4",
    # more than one number
    "7 / 2 = 3 remainder 1", "7 / 2 = 3 R 1", "401/13 = 30 with a remainder of 11",
    "50 / 3 = 16 each, with 2 left over", "4-6 = 5 with a borrow of 1", "4 / 3 = 1 and 1/3",
    "90 / 60 = 1 and a half hours", "5 feet 6 inches + 2 inches = 68",
    "2 hours and 30 minutes + 15 minutes = 165 minutes", "1/3 = 0.(3)", r"1/3 = 0.\overline{3}", "9 / 2 = 4,5",
    # money, shares, rounding
    "3 pencils + 1 eraser = 124 cents", "2 apples + 3 pears = $7", "1/2 banana = 1/2 * 3/2 cucumbers",
    "3/3 - 2/3 = 1/3 of $150", "1/3 = 33%", "(14 - 11)/11 * 100% = 27%",
    # not claimed
    "10 = -10, which is not true", "16 = 0, which is impossible", "It becomes 24.5 = 7/2. This is false",
    "Is 3 + 4 = 8?", "if 5 = 6",
]  # fmt: skip


def verdicts(text: str) -> list[bool | None]:
    return [equation.verdict for equation in check_arithmetic(text)]


@pytest.mark.parametrize("text", TRUE)
def test_true(text: str) -> None:
    assert verdicts(text)
    assert set(verdicts(text)) == {True}


@pytest.mark.parametrize("text", FALSE)
def test_false(text: str) -> None:
    assert False in verdicts(text)
    assert None not in verdicts(text)


@pytest.mark.parametrize("text", UNTOLD)
def test_cannot_tell(text: str) -> None:
    assert set(verdicts(text)) <= {None}


@pytest.mark.parametrize(
    "text", ["", "no numbers", "5 apples", "3 + 4", "x = y", "= 5", "5 =", "a <= 3", "12 + 3 <= 36"]
)
def test_no_equation(text: str) -> None:
    assert verdicts(text) == []


def test_numbers_as_programs_print_them() -> None:
    verdicts = [check_arithmetic(f"{left} = {right}")[0].verdict for left, right in PRINTED]
    assert verdicts == [True, True, False]


PRINTED = [
    ("0.1 + 0.2", "0.30000000000000004"),
    ("140/60", "2.3333333333333335"),
    ("140/60", "2.3333433333333335"),
]


def test_a_chain_is_judged_link_by_link() -> None:
    text = "So 3 + 4 = 7 = 5 + 2 = 8 apples"
    found = check_arithmetic(text)
    assert [(text[e.start : e.end], e.verdict) for e in found] == [
        ("3 + 4 = 7", True),
        ("7 = 5 + 2", True),
        ("5 + 2 = 8", False),
    ]
    assert (found[2].left, found[2].right) == (Fraction(7), Fraction(8))


def test_several_equations_and_their_spans() -> None:
    text = "First 2 * 3 = 6. Then 6 + 1 = 8 and x = 4."
    assert [(text[e.start : e.end], e.verdict) for e in check_arithmetic(text)] == [
        ("2 * 3 = 6", True),
        ("6 + 1 = 8", False),
    ]


def test_the_spans_of_marks() -> None:
    text = "He has 2*3 = <<2*3=6>>6."
    assert [text[e.start : e.end] for e in check_arithmetic(text)] == ["2*3 = <<2*3=6>>6", "2*3=6"]


def test_numbers() -> None:
    assert numbers_in("1,234.5 and .5, then 7% of 3/4") == [Fraction("1234.5"), Fraction("0.5"), 7, 3, 4]
    assert number_value("1{,}234") == 1234
    assert evaluate("(1/2+1/3)*6") == 5
    assert evaluate("2 apples") is None
    assert evaluate("") is None
    with pytest.raises(ValueError, match="too long"):
        number_value("1" * 31)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from("+-*"))
def test_whole_numbers_are_exact(a: int, b: int, sign: str) -> None:
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert verdicts(f"{a} {sign} {b} = {value}") == [True]
    assert verdicts(f"{a} {sign} {b} = {value + 1}") == [False]


EXPRESSIONS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_evaluation_is_that_of_python_with_fractions(expression: str) -> None:
    import re

    try:
        expected = eval(re.sub(r"\d+", r"Fraction(\g<0>)", expression), {"Fraction": Fraction})
    except ZeroDivisionError:
        expected = None
    assert evaluate(expression) == expected


@settings(max_examples=300)
@given(st.text(alphabet="0123456789+-*/x=()[]{}$%., \n\\fractimes^<>²ab≈'", max_size=80))
def test_no_text_breaks_it(text: str) -> None:
    for equation in check_arithmetic(text):
        assert 0 <= equation.start < equation.end <= len(text)
        assert equation.verdict in (True, False, None)
        assert equation.verdict is None or (equation.left is not None and equation.right is not None)


@given(st.text(max_size=200))
def test_no_unicode_breaks_it(text: str) -> None:
    check_arithmetic(text)
    numbers_in(text)


HOSTILE = [
    "(", "=", "1=", "1+", "<<", "<<1=", "\\frac{", "1 a ", "\\text{", "9", "1^", "9,999", "-", "a", "\n", "1\n", "1 x ",
    "²", "1 a b c d e f ", "a'", "a-", "1-a", "\\", "{(", "1/", "$", "1%", "the ", "1 and ", "1 with ", ".", "1, ",
    "\\*", "\\begin{a}", "not ", "\\text{of 1}",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_is_linear(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece)) + "=1"
        started = time.process_time()
        check_arithmetic(text)
        return time.process_time() - started

    # The best of three: a collection of garbage may fall into any one of them.
    small, large = (min(seconds(size) for _ in range(3)) for size in (4000, 16000))
    assert large < 12 * max(small, 0.002)


def test_a_number_that_is_cut_is_no_number() -> None:
    (found,) = check_arithmetic(r"1 1/1{,}000{,}000\,000\,000\,000{,}000 = 2")
    assert found.verdict is None
