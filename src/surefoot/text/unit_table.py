"""Units of measurement and currencies, with exact conversion factors.

Why not pint: it reads any letter as a unit (`5 a` is five years), knows no currencies and no `14 eggs`, and converts
with floats by default. Answers need few units, read carefully.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from surefoot.text.arithmetic.words import set_of

Powers = frozenset[tuple[str, int]]


class Unit(NamedTuple):
    """One reading of a unit: `factor` and `powers` in base units. `offset` is for temperatures."""

    factor: Fraction
    powers: Powers
    offset: Fraction = Fraction(0)

    def raised(self, power: int) -> Unit:
        """Return the unit to a power: the square meter, or the -1 of `per hour`."""
        powers = frozenset((name, own * power) for name, own in self.powers)
        return Unit(self.factor**power, powers, self.offset)


def _unit(factor: str | int | Fraction, name: str, power: int = 1, offset: str = "0") -> Unit:
    return Unit(Fraction(factor), frozenset({(name, power)}), Fraction(offset))


# names, factor, base, power: the exact value in the base unit
_TABLE: tuple[tuple[str, str, str, int], ...] = (
    ("m meter metre", "1", "meter", 1), ("km kilometer kilometre", "1000", "meter", 1),
    ("cm centimeter centimetre", "0.01", "meter", 1), ("mm millimeter millimetre", "0.001", "meter", 1),
    ("nm nanometer nanometre", "1e-9", "meter", 1),
    ("inch inches in", "0.0254", "meter", 1), ("ft foot feet", "0.3048", "meter", 1), ("yd yard", "0.9144", "meter", 1),
    ("mi mile", "1609.344", "meter", 1),
    ("g gram gramme", "1", "gram", 1), ("kg kilogram kilo", "1000", "gram", 1), ("mg milligram", "0.001", "gram", 1),
    ("tonne", "1000000", "gram", 1), ("ton", "907184.74", "gram", 1), ("ton", "1000000", "gram", 1),
    ("lb pound", "453.59237", "gram", 1), ("oz ounce", "28.349523125", "gram", 1),
    ("s sec second", "1", "second", 1), ("ms millisecond", "0.001", "second", 1), ("min minute", "60", "second", 1),
    ("h hr hour", "3600", "second", 1), ("day", "86400", "second", 1), ("wk week", "604800", "second", 1),
    ("fortnight", "1209600", "second", 1), ("month", "1", "month", 1), ("yr year", "12", "month", 1),
    ("decade", "120", "month", 1), ("century centurie", "1200", "month", 1),
    ("L l liter litre", "0.001", "meter", 3), ("mL ml milliliter millilitre", "0.000001", "meter", 3),
    ("cl centiliter", "0.00001", "meter", 3), ("gal gallon", "0.003785411784", "meter", 3),
    ("qt quart", "0.000946352946", "meter", 3), ("pt pint", "0.000473176473", "meter", 3),
    ("cup", "0.0002365882365", "meter", 3), ("tbsp tablespoon", "0.00001478676478125", "meter", 3),
    ("tsp teaspoon", "0.00000492892159375", "meter", 3), ("ha hectare", "10000", "meter", 2),
    ("acre", "4046.8564224", "meter", 2),
    ("percent pct", "1", "percent", 1), ("degree deg", "1", "degree", 1),
    ("$ dollar USD usd buck", "1", "dollar", 1), ("\u00a2 cent penny pennie", "0.01", "dollar", 1),
    ("dime", "0.1", "dollar", 1), ("nickel", "0.05", "dollar", 1),
    ("\u20ac euro EUR", "1", "euro", 1), ("euro-cent", "0.01", "euro", 1),
    ("\u00a3 pound GBP quid", "1", "sterling", 1), ("pence penny pennie", "0.01", "sterling", 1),
    ("\u00a5 yen JPY", "1", "yen", 1), ("yuan RMB CNY", "1", "yuan", 1), ("\u20b9 rupee INR", "1", "rupee", 1),
    ("peso", "1", "peso", 1), ("franc CHF", "1", "franc", 1), ("ruble rouble", "1", "ruble", 1), ("won", "1", "won", 1),
    ("N newton", "1", "newton", 1), ("J joule", "1", "joule", 1), ("kJ kilojoule", "1000", "joule", 1),
    ("W watt", "1", "watt", 1), ("kW kilowatt", "1000", "watt", 1), ("V volt", "1", "volt", 1), ("ohm", "1", "ohm", 1),
    ("Hz hertz", "1", "hertz", 1), ("mol mole", "1", "mole", 1), ("Pa pascal", "1", "pascal", 1),
    ("kB kilobyte", "1000", "byte", 1), ("MB megabyte", "1000000", "byte", 1), ("GB gigabyte", "1000000000", "byte", 1),
    ("cal calorie", "1", "calorie", 1), ("kcal kilocalorie", "1000", "calorie", 1), ("rad radian", "1", "radian", 1),
)  # fmt: skip
CURRENCIES = set_of("dollar euro sterling yen yuan rupee peso franc ruble won")
MEASURED = frozenset(base for _, _, base, _ in _TABLE) | {"kelvin"}
"""The names of the base units."""


def _readings() -> dict[str, tuple[Unit, ...]]:
    found: dict[str, tuple[Unit, ...]] = {}
    for names, factor, base, power in _TABLE:
        for name in names.split():
            unit = _unit(factor, base, power)
            for form in (name, name + "s") if len(name) > 1 and name[-1] != "s" else (name,):
                found[form] = (*found.get(form, ()), unit)
    speed = frozenset({("meter", 1), ("second", -1)})
    found["mph"] = (Unit(Fraction("0.44704"), speed),)
    found["kph"] = found["kmh"] = (Unit(Fraction(5, 18), speed),)
    found["°C"] = found["celsius"] = (_unit(1, "kelvin", offset="273.15"),)
    found["°F"] = found["fahrenheit"] = (_unit(Fraction(5, 9), "kelvin", offset="459.67"),)
    found["kelvin"] = found["K"] = (_unit(1, "kelvin"),)
    found["°"] = found["degree"]
    found["%"] = found["percent"]
    return found


READINGS = _readings()
"""The readings of every unit by its name or symbol. `pound` has two: mass and money."""
