"""Word lists, grouped by what the words do to the numbers next to them. Lowercase, no LaTeX, no grammar."""

from __future__ import annotations

import re


def set_of(words: str) -> frozenset[str]:
    """Split a string into a set of words."""
    return frozenset(words.split())


# Words that change the value of the number next to them.
CHANGING = set_of(
    "half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths eighth eighths tenth tenths "
    "twice thrice double doubled triple tripled quadruple dozen dozens hundred hundreds thousand thousands million "
    "millions billion billions trillion percent pct squared cubed less fewer more st nd rd th am pm minus plus times "
    "divided multiplied k m"
)
# Units of measurement: two different ones in an equation mean a conversion.
MEASURES = {
    name: kind
    for kind, names in {
        "cent": "cent cents penny pennies", "nickel": "nickel nickels", "dime": "dime dimes",
        "dollar": "dollar dollars buck bucks", "second": "second seconds sec secs", "minute": "minute minutes min mins",
        "hour": "hour hours hr hrs", "day": "day days", "week": "week weeks", "month": "month months",
        "year": "year years", "inch": "inch inches", "foot": "foot feet ft", "yard": "yard yards",
        "mile": "mile miles", "gram": "gram grams", "kilogram": "kilogram kilograms kg kgs",
        "pound": "pound pounds lb lbs",
        "ounce": "ounce ounces oz", "meter": "meter meters metre metres", "centimeter": "centimeter centimeters cm",
        "kilometer": "kilometer kilometers km", "millimeter": "millimeter millimeters mm", "cup": "cup cups",
        "quart": "quart quarts", "pint": "pint pints", "gallon": "gallon gallons", "liter": "liter liters",
        "milliliter": "milliliter milliliters ml", "quarter": "quarter quarters", "decade": "decade decades",
    }.items()
    for name in names.split()
}  # fmt: skip
MONEY = set_of("cent dollar")
ROUNDING = set_of("about approximately roughly around rounded rounding round nearest approx")
# Words that are never part of a unit: they begin another clause.
CLAUSE = set_of(
    "and or is are was were be becomes gives give gave get gets so then thus hence therefore if when where because "
    "since means equals makes yields implies simplifies"
)
# After these words a lone number is a claim; after others it is a label or an argument (week 2, log 100).
CLAIMS = CLAUSE | set_of("to that as have has had know find see obtain indeed")
# Words that operate on the numbers next to them.
WORKING = set_of(
    "log ln lg sin cos tan sec csc cot arcsin arccos arctan exp sqrt cbrt root mod modulo choose average mean median "
    "gcd gcf lcm hcf max maximum minimum floor ceiling factorial remainder reciprocal inverse negative base binary off "
    "out if whether"
)
# After these words a number is a name: "on day 1 * 2".
NUMBERED = set_of("day days week weeks month months year years step steps part parts angle angles")
LINKS = set_of("of the a an these those all")
# Text after a value that qualifies or denies it: a remainder, "impossible".
QUALIFIED = re.compile(
    r"\b(?:remainders?|leftover|borrow\w*|carry|carrying|carried|with \d+|with one|impossible|contradict\w*|incorrect"
    r"|false|(?:not|t|never) (?:true|possible|correct|right|valid))\b"
)
# Words of one or two letters that are not variables.
SHORT = (
    CLAUSE
    | MEASURES.keys()
    | set_of("of to in on by at he it we my no as an up us do go me ad am tv gb mb kb tb mg kw sq mph")
)


def words_of(text: str) -> list[str]:
    """Return the words of a token in lowercase."""
    return re.findall(r"[^\W\d_]+", re.sub(r"^\\[a-z]+", "", text.lower()))
