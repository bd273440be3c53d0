r"""Unify notations of the same mathematics, so that answers can be compared as text and parsed by math-verify.

Invariant: normalization takes time linear in the length of any text, and keeps its meaning.
"""

from __future__ import annotations

import re
import unicodedata

from surefoot.text.answers import TEXT_COMMAND

_SYNONYMS = {
    "\\\\": "\\\\", "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\left": "", "\\right": "",
    "\\displaystyle": "", "\\!": "", "\\,": "", "\\;": " ", "\\:": " ", "\\ ": " ", "\\quad": " ", "\\qquad": " ",
    "~": " ", "{,}": ",", "\\%": "%", "\\$": "$", "**": "^", "\\leq": "\\le", "\\geq": "\\ge", "\\neq": "\\ne",
    "\\leqslant": "\\le", "\\geqslant": "\\ge", "\\lt": "<", "\\gt": ">", "\\lbrace": "\\{", "\\rbrace": "\\}",
    "\\langle": "(", "\\rangle": ")", "\\varnothing": "\\emptyset", "\\degree": "^\\circ ", "\\imath": "i",
    "\\infin": "\\infty", "\u2212": "-", "\u2013": "-", "\u2012": "-", "\uff0d": "-", "\u00d7": "\\times ",
    "·": "\\cdot ", "\u22c5": "\\cdot ", "÷": "\\div ", "∞": "\\infty ", "°": "^\\circ ", "≤": "\\le ",
    "≥": "\\ge ", "≠": "\\ne ", "±": "\\pm ", "∪": "\\cup ", "∩": "\\cap ", "∅": "\\emptyset ", "ℝ": "\\mathbb{R}",
    "\u2044": "/", "…": "...", "\\ldots": "...", "\\dots": "...", "\\cdots": "...", "∈": "\\in ", "≈": "\\approx ",
    ">=": "\\ge ", "<=": "\\le ", "!=": "\\ne ", "\\textdollar": "$", "\\euro": "€", "\\pounds": "£",
    "\u27e8": "(", "\u27e9": ")", "\uff0c": ",", "\uff05": "%",
}  # fmt: skip
_SYNONYM = re.compile(
    "|".join(
        re.escape(name) + (r"(?![A-Za-z])" if name[-1].isalpha() and name[0] == "\\" else "")
        for name in sorted(_SYNONYMS, key=len, reverse=True)
    )
    + r"|\\[bB]igg?[lr]?(?![A-Za-z])"
)
_GREEK = {chr(code): f"\\{name} " for code, name in (
    (0x3B1, "alpha"), (0x3B2, "beta"), (0x3B3, "gamma"), (0x3B4, "delta"), (0x3B8, "theta"), (0x3BB, "lambda"),
    (0x3BC, "mu"), (0x3C0, "pi"), (0x3C1, "rho"), (0x3C3, "sigma"), (0x3C4, "tau"), (0x3C6, "phi"), (0x3C9, "omega"),
)}  # fmt: skip
_GREEK_LETTER = re.compile("[" + "".join(_GREEK) + "]")
_FRACTIONS = {
    char: unicodedata.normalize("NFKC", char).replace("\u2044", "/") for char in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}  # fmt: skip
_FRACTION = re.compile(r"(\d?)\s?([" + "".join(_FRACTIONS) + "])")
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"
_SUPERSCRIPT = re.compile(f"[{_SUPERSCRIPTS}]+")
_PLAIN_DIGITS = str.maketrans(_SUPERSCRIPTS, "0123456789+-")
_ROOT = re.compile(r"√\s?(?:\(([^()]*)\)|(\w+))")
_COLOR = re.compile(r"\\(?:text)?color\s?\{[^{}]*\}\s?")
_FUNCTION = re.compile(r"(?<![A-Za-z\\])(arcsin|arccos|arctan|sin|cos|tan|ln|log|pi)(?![A-Za-z])")
_MATRIX = re.compile(
    r"(?:\\left)?[(\[]\s*\\begin\{array\}\{[^{}]*\}|\\begin\{(?:[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr|\s]*\})?"
)
_MATRIX_END = re.compile(r"\\end\{array\}\s*(?:\\right)?[)\]]|\\end\{(?:[pbB]?matrix|smallmatrix|array)\}")
_OPEN_INTERVAL = re.compile(r"\](?P<inner>[^\[\]()]*)\[")
_TEXT = re.compile(TEXT_COMMAND + r"\{([^{}\\]*)\}")
_BRACED = re.compile(r"\{([^{},\\]*)\}")
_LETTER_I = re.compile(r"\\(?:mathrm|text|mathit)\s?\{\s?([ie])\s?\}")
_THIN = re.compile(r",\\!\s?")
_DOLLARS = re.compile(r"(?<!\\)\$([^$]+)\$(?!\d)")
_SEPARATED = re.compile(r"(?<=\d);\s?(?=[\d-])")


def normalize(answer: str) -> str:
    r"""Return a cleaned answer with one notation per meaning: `\frac` for `\dfrac`, pmatrix for bmatrix.

    >>> normalize("\\dfrac{1}{2}")
    '\\frac{1}{2}'
    """
    value = _DOLLARS.sub(r"\1", _THIN.sub(",", unicodedata.normalize("NFC", answer)))
    value = _FRACTION.sub(lambda match: f"{match[1]} {_FRACTIONS[match[2]]}".strip(), value)
    value = _SUPERSCRIPT.sub(lambda match: f"^{{{match.group().translate(_PLAIN_DIGITS)}}}", value)
    value = _MATRIX_END.sub(r"\\end{pmatrix}", _MATRIX.sub(r"\\begin{pmatrix}", value))
    value = _SYNONYM.sub(lambda match: _SYNONYMS.get(match.group(), ""), value)
    value = _LETTER_I.sub(r"\1", _COLOR.sub("", value))
    value = _GREEK_LETTER.sub(lambda match: _GREEK[match.group()], value)
    value = _ROOT.sub(lambda match: f"\\sqrt{{{match[1] or match[2]}}}", value)
    value = _OPEN_INTERVAL.sub(r"(\g<inner>)", value)
    if whole := _TEXT.fullmatch(value.strip()) or _BRACED.fullmatch(value.strip()):
        value = whole[1]
    return " ".join(_SEPARATED.sub(", ", value).split())


def without_text(answer: str) -> str:
    r"""Return the answer with the content of each `\text{...}` in its place."""
    return " ".join(_TEXT.sub(r"\1", answer).split())


def as_latex(answer: str) -> str:
    r"""Return a normalized answer in which functions and `pi` are commands: `\cos(x)` for `cos(x)`."""
    return _FUNCTION.sub(r"\\\1 ", answer)
