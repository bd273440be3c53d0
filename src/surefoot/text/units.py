"""Read what a number measures or counts: `km per hour`, `red apples`, nothing."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from surefoot.text.arithmetic.words import CHANGING, CLAUSE, WORKING, set_of
from surefoot.text.unit_table import CURRENCIES, MEASURED, READINGS, Powers, Unit

# Words that name no unit and no thing: they do not change what an amount is.
_FILLERS = set_of(
    "of the in total all altogether overall left remaining only exactly unit units is was long wide high tall deep old "
    "away far for on at worth apiece"
)
_PER = frozenset(("per", "each", "every", "/"))
_ARTICLES = frozenset(("a", "an"))
_DIMENSIONS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_EXPONENTS = {"squared": 2, "^2": 2, "^{2}": 2, "cubed": 3, "^3": 3, "^{3}": 3}
_DEGREE = frozenset(("°", "degree", "degrees", "deg"))
_SCALES = {"c": "°C", "celsius": "°C", "f": "°F", "fahrenheit": "°F"}
_HANDLED = set_of("k m percent pct squared cubed")
_AMOUNT_CHANGING = (CHANGING - _HANDLED) | CLAUSE | WORKING | set_of("pi to over point")
_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman", "mice": "mouse", "dice": "die"}
_ABBREVIATED = re.compile(r"\b(sq|cu|ft|in|lb|lbs|oz|hr|hrs|min|sec)\.", re.IGNORECASE)
_TOKEN = re.compile(r"[$€£¥₹¢°%/]|\^\s?\{?\s?[23]\s?\}?|[^\W\d_]+(?:['\u2019][^\W\d_]+)?|\S")
_VARIABLES = re.compile(r"[abcxyz]+|[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]+")
_MAX_TOKENS = 12


class Measure(NamedTuple):
    """What a number measures or counts."""

    units: tuple[Unit, ...]
    """The possible readings. A word that is no unit is counted: it is a base unit of its own."""
    words: frozenset[str] = frozenset()
    """Further words, as in `5 km away`."""
    ambiguous: bool = False
    """Whether this could also be a variable: the `m` of `5 m`."""

    @property
    def plain(self) -> bool:
        """Whether this says nothing: `5`, `5 in total`."""
        return all(not unit.powers for unit in self.units)

    @property
    def percent(self) -> bool:
        return all(unit.powers == {("percent", 1)} for unit in self.units)


class _Term(NamedTuple):
    """A word or symbol that is no filler."""

    token: str
    power: int
    """Negative after `per`."""


def read_measure(text: str, *, marked: bool = False) -> Measure | None:
    r"""Read what follows a number. None if it could change the number or be part of a formula.

    `marked`: it was in `\text{...}`, so that a letter is not a variable.

    >>> read_measure("km/h") == read_measure("kilometers per hour")
    True
    """
    tokens = [token.replace(" ", "") for token in _TOKEN.findall(_ABBREVIATED.sub(r"\1", text))]
    terms = _terms(tokens) if len(tokens) <= _MAX_TOKENS else None
    if terms is None:
        return None
    units: list[tuple[Unit, ...]] = []
    nouns: list[_Term] = []
    words: set[str] = set()
    for token, power in terms:
        if readings := _readings(token):
            units.append(tuple(unit.raised(power) for unit in readings))
        elif not _is_noun(token, marked):
            return None
        elif power > 0 and any(each[0].powers and _above(each[0].powers) for each in units):
            words.add(_singular(token))  # `5 km away`
        else:
            nouns.append(_Term(_singular(token), power))
    if all(_above(unit[0].powers) for unit in units) and units:
        words |= {noun.token for noun in nouns if noun.power > 0}  # `5 red km`
        nouns = [noun for noun in nouns if noun.power < 0]
    lone = [token for token, _ in terms if len(token) == 1 and token.isalpha()]
    ambiguous = bool(lone) and not marked and len(terms[0].token) == 1 and terms[0].token.isalpha()
    return Measure(
        tuple(_product(chosen, _things(nouns)) for chosen in product(*units))[:8], frozenset(words), ambiguous
    )


def _terms(tokens: list[str]) -> list[_Term] | None:
    """Return the words that matter, with their powers; None if this is not a measure."""
    terms: list[_Term] = []
    sign = dimension = 1
    before = ""
    for at, token in enumerate(tokens):
        lower = token.lower()
        if lower in _EXPONENTS:
            if not terms or before in _PER:
                return None
            last = terms.pop()
            terms.append(_Term(last.token, last.power * _EXPONENTS[lower]))
        elif lower in _PER or (lower in _ARTICLES and terms and before not in _FILLERS):
            sign = -1
            if at + 1 == len(tokens) and lower != "each":
                return None
        elif lower in _DIMENSIONS:
            dimension = _DIMENSIONS[lower]
        elif lower in _SCALES and before in _DEGREE and terms:
            terms[-1] = _Term(_SCALES[lower], terms[-1].power)
        elif lower not in _ARTICLES and (lower not in _FILLERS or (lower == "in" and _is_inch(tokens, at))):
            terms.append(_Term(token, sign * dimension))
            dimension = 1
        before = lower
    return terms


def _is_inch(tokens: list[str], at: int) -> bool:
    following = tokens[at + 1].lower() if at + 1 < len(tokens) else ""
    before = tokens[at - 1].lower() if at else ""
    return len(tokens) == 1 or following in _EXPONENTS or following in _PER or before in _DIMENSIONS


def _readings(token: str) -> tuple[Unit, ...]:
    return READINGS.get(token) or (READINGS.get(token.lower(), ()) if len(token) > 2 else ())


def _is_noun(token: str, marked: bool) -> bool:
    if not token[0].isalpha() or token.lower() in _AMOUNT_CHANGING:
        return False
    return (len(token) > 2 or marked) and not _VARIABLES.fullmatch(token)


def _above(powers: Powers) -> bool:
    return any(power > 0 for _, power in powers)


def alternatives(measure: Measure) -> set[Fraction]:
    """Return the factors of all known units that measure the same, such as those of all lengths."""
    found = set()
    for unit in measure.units:
        if len(unit.powers) == 1:
            ((base, power),) = unit.powers
            for other in (each for readings in READINGS.values() for each in readings):
                if other.powers == unit.powers:
                    found.add(other.factor)
                elif other.powers == {(base, 1)} and not other.offset:
                    found.add(other.factor**power)
        elif unit.powers == {("meter", 1), ("second", -1)}:
            lengths = [each[0].factor for each in READINGS.values() if each[0].powers == {("meter", 1)}]
            times = [each[0].factor for each in READINGS.values() if each[0].powers == {("second", 1)}]
            found |= {above / below for above in lengths for below in times}
    return found


def rate_of(over: Unit, unit: Unit) -> bool:
    """Whether `over` is money or a count per something, and `unit` is the same without `per`."""
    above = frozenset(each for each in over.powers if each[1] > 0)
    return (
        above != over.powers
        and above == unit.powers
        and all(name in CURRENCIES or name not in MEASURED for name, _ in above)
    )


def measured(unit: Unit) -> bool:
    """Whether this is a unit of the table, rather than a counted thing or nothing."""
    return bool(unit.powers) and all(name in MEASURED for name, _ in unit.powers)


def nested(first: Powers, second: Powers) -> bool:
    """Whether both count the same thing, one of them with more words: `apples`, `red apples`."""
    if len(first) != 1 or len(second) != 1:
        return False
    ((one, a),), ((other, b),) = first, second
    if a != b or one in MEASURED or other in MEASURED:
        return False
    return set(one.split()) <= set(other.split()) or set(other.split()) <= set(one.split())


def _product(units: tuple[Unit, ...], things: Powers) -> Unit:
    total: dict[str, int] = dict(things)
    factor = Fraction(1)
    for unit in units:
        factor *= unit.factor
        for name, power in unit.powers:
            total[name] = total.get(name, 0) + power
    offset = units[0].offset if len(units) == 1 else Fraction(0)
    return Unit(factor, frozenset((name, power) for name, power in total.items() if power), offset)


def _things(nouns: list[_Term]) -> Powers:
    above = " ".join(noun.token for noun in nouns if noun.power > 0)
    below = " ".join(noun.token for noun in nouns if noun.power < 0)
    return frozenset((name, sign) for name, sign in ((above, 1), (below, -1)) if name)


def _singular(word: str) -> str:
    word = word.lower()
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
