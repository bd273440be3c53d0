r"""The answer that a solution states, and whether two answers mean the same.

The rule: an answer is found where it is stated, never guessed. The statements, strongest first: the last
`Final Answer:` line, the last `#### 42` line, the last balanced `\boxed{...}`, the last "the answer is ...". Every
search here takes time linear in the text, whatever the text is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from surefoot.errors import InputError, OptionError
from surefoot.solution import Span

MAX_TIMEOUT = 3600.0
MAX_COMPARED_CHARS = 2000

AnswerSource = Literal["final_answer", "hashes", "boxed", "phrase"]


@dataclass(frozen=True)
class Answer:
    r"""A stated answer: its cleaned value, and the span of the statement (the line, the `\boxed{...}`, the phrase)."""

    value: str
    start: int
    end: int
    source: AnswerSource


# Lines and the marks that open them. Each mark is matched at the start of one line only, and no two neighbouring
# repeats share a character, so that a line costs time linear in its length.
_LINE = re.compile(r"\S(?:[^\r\n]*\S)?")
_LEAD = r"(?P<lead>[\s#>*_+•-]*)"
_STEP = re.compile(_LEAD + r"(?ai:step)\s*\d+(?P<closed>[\s*_]*)(?:[:\uff1a]|[.)](?=[\s*_]|\Z)|\Z)")
_FINAL = re.compile(_LEAD + r"(?ai:(?:the\s+)?final\s+answer)(?P<closed>[\s*_]*)(?:(?P<colon>[:\uff1a])|\Z)")
_HASHES = re.compile(r"[\s>*_]*####(?!#)")
_OPENING_CHARS = frozenset("sStTfF#>*_+•-")
_DISPLAY_OPEN = ("\\[", "$$")
_DISPLAY_CLOSE = ("\\]", "$$")

# A blank line is a token because LaTeX allows none inside a box: a brace left open must not reach the next paragraph.
_BOX_TOKEN = re.compile(
    r"(?P<box>\\(?:boxed|fbox)(?![A-Za-z])[^\S\r\n]*(?:(?P<brace>\{)|(?P<bare>[\w.,/%+-]*\w%?)))"
    r"|(?P<escaped>\\[^\r\n])|(?P<open>\{)|(?P<close>\})|(?P<blank>(?:\r\n|\n|\r(?!\n))[^\S\r\n]*[\r\n]\s*)"
)
_PHRASE = re.compile(
    r"\bthe[^\S\r\n]+(?:final[^\S\r\n]+|correct[^\S\r\n]+)?answer[^\S\r\n]+is\b[^\S\r\n]*[:\uff1a]?", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.?](?=\s|\Z)|[\u3002\uff1f\r\n]")


def lines(text: str) -> list[Span]:
    r"""The lines that are not blank, trimmed. A line ends at `\n`, `\r\n` or `\r`, and nowhere else."""
    return [Span(*match.span()) for match in _LINE.finditer(text)]


def step_labels(text: str, rows: list[Span]) -> list[Span]:
    """The labels (`Step 3:`, `**Step 3**:`, `### Step 3`) of those `lines` of the text that open a step."""
    return [
        Span(row.start, _label_end(text, row, match))
        for row in rows
        if text[row.start] in _OPENING_CHARS and (match := _STEP.match(text, *row))
    ]


def answer_lines(text: str, rows: list[Span]) -> list[Answer]:
    """The answer lines among the `lines` of the text. A `Final Answer:` that nothing follows has an empty value."""
    boxes: list[_Box] | None = None
    found: list[Answer] = []
    for at, row in enumerate(rows):
        if text[row.start] not in _OPENING_CHARS or _STEP.match(text, *row):
            continue
        if hashes := _HASHES.match(text, *row):
            value = clean_answer(text[hashes.end() : row.end])
            if _looks_like_answer(value):
                found.append(Answer(value, row.start, row.end, "hashes"))
        elif final := _FINAL.match(text, *row):
            boxes = _boxes(text) if boxes is None else boxes
            value, last = _final_value(text, rows, at, _label_end(text, row, final), boxes)
            # A heading without a colon may open a whole section: it counts only when an answer follows at once.
            if final["colon"] or _looks_like_answer(value):
                found.append(Answer(value, row.start, rows[last].end, "final_answer"))
    return found


def find_answer(text: str) -> Answer | None:
    r"""The answer that `text` states, or None.

    `\fbox{...}` counts as `\boxed{...}`, and so does `\boxed 5` for one bare word or number. Of nested boxes the
    innermost is taken. Boxes that are never closed, or only after a blank line, and empty values are passed over.
    """
    _require_text(text, "find_answer() reads a solution's text")
    return stated_line(answer_lines(text, lines(text))) or answer_in_passing(text)


def answer_in_passing(text: str) -> Answer | None:
    """The answer that stands in the text, on no line of its own: in the last box, else in the last phrase."""
    for box in reversed(_boxes(text)):
        if value := _clean_edges(text[box.inner_start : box.inner_end]):
            return Answer(value, box.start, box.end, "boxed")
    return _last_phrase(text)


def stated_line(candidates: list[Answer]) -> Answer | None:
    """Of these answer lines, the one that states the answer: the last `Final Answer:`, else the last `####`."""
    for source in ("final_answer", "hashes"):
        for answer in reversed(candidates):
            if answer.source == source and answer.value:
                return answer
    return None


def closing_text(value: str) -> str:
    """The words of the closing step, in which a model judges the answer itself."""
    return f"The answer is \\boxed{{{value}}}"


def clean_answer(raw: str) -> str:
    r"""The value of a statement: the inside of its last `\boxed{}`, else what follows "the answer is", else all."""
    for box in reversed(_boxes(raw)):
        if value := _clean_edges(raw[box.inner_start : box.inner_end]):
            return value
    phrase = _last_phrase(raw)
    return phrase.value if phrase else _clean_edges(raw)


def same_answer(a: str, b: str, *, timeout: float = 3.0) -> bool | None:
    r"""Whether answer `b` means the same as the reference `a`; None when that could not be decided.

    Equal texts and plain numbers are compared here, exactly: `1,234.50` is `1234.5`, `\frac{1}{2}` is `0.5`, and
    `1/3` is not `0.333`. As in math-verify, `50%` is both `0.5` and `50`. Anything else is handed to math-verify, with
    `a` as its gold and `b` as its target: the two are not interchangeable there (the reference `1<x<2` accepts
    `(1,2)`, the reference `(1,2)` does not accept `1<x<2`). What math-verify cannot read is not the same: False. So is
    an empty answer, which is no answer.

    math-verify runs in a child process that is killed once `timeout` seconds have passed, so the limit holds for any
    input, in any thread, without signals. Starting a worker and waiting for a free one are not charged to `timeout`;
    each has a limit of its own (see `surefoot.answer_worker`), so that no thread waits for ever. Answers longer than
    2,000 characters that are not equal as text give None at once.
    """
    _require_text(a, "same_answer() compares two strings")
    _require_text(b, "same_answer() compares two strings")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= MAX_TIMEOUT:
        raise OptionError(f"timeout is {timeout!r}; give a number of seconds above 0 and up to {MAX_TIMEOUT:g}.")
    gold, target = _normal(a), _normal(b)
    if not gold or not target:
        return False
    if gold == target:
        return True
    if max(len(gold), len(target)) > MAX_COMPARED_CHARS:
        return None
    decided = _same_at_sight(gold, target)
    if decided is not None:
        return decided
    # Imported here: only callers that need math-verify pay for subprocess and the hooks around fork and exit.
    from surefoot import answer_worker

    return answer_worker.compare(gold, target, float(timeout))


# --- finding -----------------------------------------------------------------------------------------------------


class _Box(NamedTuple):
    start: int
    end: int
    inner_start: int
    inner_end: int


def _boxes(text: str) -> list[_Box]:
    """The balanced boxes that hold no other box, in order."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return []
    found: list[_Box] = []
    newest = -1  # where the latest closed box starts; a box that starts before it has that one inside
    stack: list[tuple[int, int] | None] = []  # open braces: a box's start and inner start, or None for a plain brace
    for token in _BOX_TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "box" and token["brace"]:
            stack.append((token.start(), token.end()))
        elif kind == "box":
            newest = token.start()
            found.append(_Box(token.start(), token.end(), token.start("bare"), token.end()))
        elif kind == "open":
            stack.append(None)
        elif kind == "close" and stack:
            opened = stack.pop()
            if opened is not None and opened[0] > newest:
                newest = opened[0]
                found.append(_Box(opened[0], token.end(), opened[1], token.start()))
        elif kind == "blank":
            stack.clear()
    return found


def _last_phrase(text: str) -> Answer | None:
    limit = len(text)
    for match in reversed(list(_PHRASE.finditer(text))):
        stop = _SENTENCE_END.search(text, match.end(), limit)
        end = stop.start() if stop else limit
        if value := _clean_edges(text[match.end() : end]):
            end = match.end() + len(text[match.end() : end].rstrip())
            return Answer(value, match.start(), end, "phrase")
        # Phrases share no text, so that however many are empty, each character is looked at once.
        limit = match.start()
    return None


def _label_end(text: str, line: Span, label: re.Match[str]) -> int:
    """Where the label ends, the emphasis that it opened included: all of `**Step 1:**`, but only `Step 1:` of
    `Step 1:**bold**`."""
    lead = label["lead"]
    opened = len(lead) - len(lead.rstrip("*_"))
    owed = opened - label["closed"].count("*") - label["closed"].count("_")
    end = label.end()
    while owed > 0 and end < line.end and text[end] in "*_":
        end += 1
        owed -= 1
    return end


def _final_value(text: str, rows: list[Span], at: int, start: int, boxes: list[_Box]) -> tuple[str, int]:
    """The value of the `Final Answer` line `rows[at]`, whose label ends at `start`, and the last row it takes."""
    display = text[start : rows[at].end].strip() in _DISPLAY_OPEN
    value = clean_answer(text[start : rows[at].end])
    last = at
    # The value may stand on the next line, and a line that only opens display math may stand before it.
    for _ in range(2):
        if value or last + 1 == len(rows) or _opens(text, rows[last + 1]):
            break
        last += 1
        start = rows[last].start
        display = display or text[start : rows[last].end] in _DISPLAY_OPEN
        value = clean_answer(text[start : rows[last].end])
    if not value:
        return "", at
    # A box may go on over several lines, as a matrix does.
    nearest = bisect_left(boxes, (start,))
    if nearest < len(boxes) and boxes[nearest].start < rows[last].end < boxes[nearest].end:
        box, reach = boxes[nearest], last + 1
        while rows[reach].end < box.end and not _opens(text, rows[reach]):
            reach += 1
        if not _opens(text, rows[reach]):
            value, last = clean_answer(text[box.start : box.end]), reach
    if display and last + 1 < len(rows) and text[slice(*rows[last + 1])].rstrip(".") in _DISPLAY_CLOSE:
        last += 1
    return value, last


def _opens(text: str, row: Span) -> bool:
    """Whether a mark of its own opens this row, so that it cannot carry on the row before."""
    return text[row.start] in _OPENING_CHARS and any(mark.match(text, *row) for mark in (_STEP, _FINAL, _HASHES))


_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_NUMBER_LIKE = re.compile(rf"[+-]?\s?\\?[$€£]?\s?[+-]?{_NUMBER}(?:\s?/\s?{_NUMBER})?\s?\\?[%°$€£]?")
_NUMBERED_HEADING = re.compile(r"\d+(?:\.\d+)*[.):]\s")
_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+|\\.", re.DOTALL)
_EXPRESSION = re.compile(r"[\sA-Za-z\u0391-\u03c90-9.,:;+\-\u2212*/^_=<>≤≥≠±\u00d7÷·√∞°%$€£!|()\[\]{}&'~]*")
_FUNCTIONS = frozenset(
    re.findall(r"\w+", "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log exp sqrt min max gcd lcm")
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_BARE_WORDS = re.compile(r"(?<![A-Za-z])[A-Za-z]{1,2}[ \t]+[A-Za-z]")
_MATHS = re.compile(r"[0-9=+\-\u2212*/^<>≤≥≠±√∞]|\A\(?[A-Za-z\u0391-\u03c9]\)?\Z")
_MAX_EXPRESSION = 200


def _looks_like_answer(value: str) -> bool:
    """Whether this is a number or a short expression, rather than the words of a heading."""
    if not value or len(value) > _MAX_EXPRESSION:
        return False
    if _NUMBER_LIKE.fullmatch(value):
        return True
    if _NUMBERED_HEADING.match(value):
        return False
    bare = _COMMAND.sub(" ", value)
    if not _EXPRESSION.fullmatch(bare) or _words(value) or _BARE_WORDS.search(bare):
        return False
    return bare != value or _MATHS.search(value) is not None


def _words(value: str) -> list[str]:
    r"""The words of prose: three letters or more, neither a function's name nor part of `\command` or `\text{...}`."""
    return [word.casefold() for word in _WORD.findall(_COMMAND.sub(" ", value)) if word.lower() not in _FUNCTIONS]


# --- cleaning ----------------------------------------------------------------------------------------------------

_MAX_LAYERS = 20  # wrappings taken off; hostile nesting must not cost a pass over the text for every layer


def _clean_edges(raw: str) -> str:
    value = raw.strip()
    for _ in range(_MAX_LAYERS):
        before = value
        for marks, inside in (("*", "**"), ("`", "`")):
            bare = value.strip(marks)
            if inside not in bare:
                value = bare.strip()
        value = _without_dollars(value)
        for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
            # An unpaired delimiter belongs to display math that goes on over other lines.
            if value.startswith(opening) and closing not in value[2:-2]:
                value = value[2:]
            if value.endswith(closing) and opening not in value:
                value = value[:-2]
            value = value.strip()
        if len(value) > 1 and value[0] == value[-1] == "_":
            value = value.strip("_").strip()
        if value.endswith((".", "。")):
            value = value[:-1].rstrip()
        if value == before:
            break
    if "\n" in value or "\r" in value:
        value = " ".join(line.strip() for line in value.splitlines())
    return value


def _without_dollars(value: str) -> str:
    """Without the dollars of `$5$` and `$$5$$`. One dollar before an amount is money and stays."""
    bare = value.lstrip("$")
    left = len(value) - len(bare)
    inner = bare.rstrip("$")
    right = len(bare) - len(inner)
    if inner.endswith("\\") and right:  # an escaped dollar is money too
        inner, right = inner + "$", right - 1
    if not inner:
        return ""
    if "$" in inner.replace("\\$", ""):
        return value
    if (left and right) or left > 1 or right > 1:
        return inner.strip()
    return value


# --- comparing ---------------------------------------------------------------------------------------------------

_SYNONYMS = re.compile(
    r"\\\\|\\[dt]frac(?![A-Za-z])|\\(?:left|right)(?![A-Za-z])|\\[!,;: ]|\{,\}|\\[%$]|\*\*|[\u2212\u00d7·÷π∞°≤≥≠]"
)
_PLAIN = {
    "\\\\": "\\\\", "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\left": "", "\\right": "", "\\!": "", "\\,": "",
    "\\;": " ", "\\:": " ", "\\ ": " ", "{,}": ",", "\\%": "%", "\\$": "", "**": "^", "\u2212": "-", "·": "\\cdot ",
    "\u00d7": "\\times ", "÷": "\\div ", "π": "\\pi ", "∞": "\\infty ", "°": "^\\circ ", "≤": "\\le ", "≥": "\\ge ",
    "≠": "\\ne ",
}  # fmt: skip
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}\\]*)\}")
_PROSE = re.compile(r"(?:[^\W\d_]|[\s.,'\u2019-])*")
_AMOUNT = re.compile(r"(?P<sign>[+-]?)\s?[$€£]?\s?(?P<inner>[+-]?)(?P<body>[^\s%][^%]*?)\s?(?P<percent>%?)")
_QUOTIENT = re.compile(rf"(?:(?P<whole>\d+)\s+)?(?P<top>{_NUMBER})\s?/\s?(?P<bottom>{_NUMBER})|(?P<only>{_NUMBER})")
_FRAC = re.compile(
    rf"(?P<whole>\d+)?\s?\\frac\s?(?:\{{\s?(?P<top>[+-]?{_NUMBER})\s?\}}\s?\{{\s?(?P<bottom>[+-]?{_NUMBER})\s?\}}"
    r"|(?P<digits>\d\d))"
)
_MAX_NUMBER_CHARS = 300


def _normal(raw: str) -> str:
    """The value with one spelling for what has several."""
    value = _SYNONYMS.sub(lambda match: _PLAIN[match.group()], clean_answer(raw))
    if whole := _TEXT.fullmatch(value):
        value = whole[1]
    return " ".join(value.split())


def _same_at_sight(a: str, b: str) -> bool | None:
    """What can be told without algebra of two answers that are not equal as text; None when it takes some."""
    first, second = _numbers(a), _numbers(b)
    if first and second:
        return not first.isdisjoint(second)
    if not _balanced(a) or not _balanced(b):
        return False
    # As algebra, `listen` and `silent` are the same product of letters. Words are compared as words.
    first_words, second_words = _words(a), _words(b)
    if first_words and second_words:
        if _PROSE.fullmatch(a) and _PROSE.fullmatch(b):
            return a.casefold() == b.casefold()
        if first_words != second_words:
            return False
    return None


def _numbers(value: str) -> frozenset[Fraction]:
    """The values that a plain number may stand for: one, or two for a percentage; none if it is not a plain number."""
    # The bound keeps hostile digits from costing anything, and stays below any limit that int() may be given.
    amount = _AMOUNT.fullmatch(value) if len(value) <= _MAX_NUMBER_CHARS else None
    if amount is None or (amount["sign"] and amount["inner"]):
        return frozenset()
    body = amount["body"]
    quotient = _FRAC.fullmatch(body) or _QUOTIENT.fullmatch(body)
    if quotient is None:
        return frozenset()
    parts = quotient.groupdict()
    if parts.get("only"):
        number = _fraction(parts["only"])
    else:
        digits = parts.get("digits")
        top, bottom = (digits[0], digits[1]) if digits else (parts["top"], parts["bottom"])
        # A sign inside a mixed number has no one meaning, and a zero below the line has none.
        if not _fraction(bottom) or (parts["whole"] and not (top + bottom).isalnum()):
            return frozenset()
        number = int(parts["whole"] or 0) + _fraction(top) / _fraction(bottom)
    if "-" in (amount["sign"], amount["inner"]):
        number = -number
    return frozenset((number, number / 100)) if amount["percent"] else frozenset((number,))


def _fraction(number: str) -> Fraction:
    return Fraction(number.replace(",", ""))


def _balanced(value: str) -> bool:
    depth = 0
    for token in _BOX_TOKEN.finditer(value):
        depth += (token.lastgroup == "open" or token["brace"] is not None) - (token.lastgroup == "close")
        if depth < 0:
            return False
    return depth == 0


def _require_text(value: object, why: str) -> None:
    if not isinstance(value, str):
        hint = " Decode the bytes first." if isinstance(value, (bytes, bytearray)) else ""
        raise InputError(f"{why}, and was given {type(value).__name__}.{hint}")
