"""Solutions that show 8-bit layers which of their inputs are large.

They are of several kinds, because other text has other large inputs: arithmetic, algebra in LaTeX, a proof, code, and
an error. They are part of what int8 computes: if they change, so must `int8.SAMPLE`, which is in the fingerprint.
"""

from __future__ import annotations

SAMPLE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "A cinema has 14 rows with 22 seats each. On Friday 5 seats in every row stayed empty, and a ticket costs $9. "
        "How much did the cinema earn?",
        (
            "Step 1: In every row, 22 - 5 = 17 seats were taken.",
            "Step 2: In all rows together that is 14 * 17 = 238 seats.",
            "Step 3: At $9 per ticket the cinema earned 238 * 9 = $2,142.",
            "The final answer is \\boxed{2142}.",
        ),
    ),
    (
        "Solve $2x^2 - 7x + 3 = 0$ over the real numbers and give the sum of the solutions.",
        (
            "The discriminant is $b^2 - 4ac = (-7)^2 - 4 \\cdot 2 \\cdot 3 = 49 - 24 = 25$: there are two solutions.",
            "By the quadratic formula, \\[x = \\frac{7 \\pm \\sqrt{25}}{4},\\] so $x_1 = 3$ and $x_2 = \\frac{1}{2}$.",
            "Their sum is $3 + \\frac{1}{2} = \\frac{7}{2}$, as Vieta's formula $-\\frac{b}{a}$ confirms.",
            "Therefore the answer is $\\boxed{\\frac{7}{2}}$.",
        ),
    ),
    (
        "Marta runs 6 km on each of 4 days and 11 km on Sunday. How many kilometres does she run in two weeks?",
        (
            "On the four days she runs 6 + 4 = 10 km.",
            "With Sunday she runs 10 + 11 = 21 km per week.",
            "In two weeks she runs 21 * 2 = 42 km. The answer is 42.",
        ),
    ),
    (
        "Prove that the product of two odd integers is odd.",
        (
            "Let m = 2a + 1 and n = 2b + 1 with integers a and b; every odd integer has this form.",
            "Then mn = 4ab + 2a + 2b + 1 = 2(2ab + a + b) + 1.",
            "Since 2ab + a + b is an integer, mn is odd. ∎",
        ),
    ),
    (
        "Write a Python function that returns the largest even number in a list, or None.",
        (
            "First I keep only the even numbers: `evens = [n for n in numbers if n % 2 == 0]`.",
            "```python\ndef largest_even(numbers):\n    evens = [n for n in numbers if n % 2 == 0]\n"
            "    return max(evens, default=None)\n```",
            "`max` with `default=None` covers the empty list, so no special case is needed.",
        ),
    ),
)
