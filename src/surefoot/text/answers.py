r"""Find the answer that a solution states.

Invariant: an answer is only taken from an explicit statement, never guessed. In order of precedence: the last
`<answer>42</answer>` line, the last `Final Answer:` line, the last `#### 42` line, an `Answer: 42` that ends the text,
the last balanced `\boxed{...}`, the last "the answer is ...". A later box with a different value overrides an answer
line. Every search takes time linear in the length of any text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from surefoot.core.solution import Span
from surefoot.errors import InputError
from surefoot.text.arithmetic.words import CHANGING, CLAUSE, WORKING
from surefoot.text.thinking import find_sections, keep

AnswerSource = Literal["tags", "final_answer", "hashes", "boxed", "phrase"]


@dataclass(frozen=True)
class Answer:
    r"""A stated answer: its cleaned value, and the span of the statement (the line, the `\boxed{...}`, the phrase)."""

    value: str
    start: int
    end: int
    source: AnswerSource


# Lines and the markers that start them. A marker is matched only at the start of a line, and no two adjacent
# quantifiers can match the same character, so matching a line takes time linear in its length.
_LINE = re.compile(r"\S(?:[^\r\n]*\S)?")
_HTML = r"(?:b|strong|i|em|u|p|h[1-6]|span|div|li|mark)"
_LEAD = rf"(?P<lead>(?:[\s\ufeff\u200b#>*_+•-]|<(?ai:{_HTML})>)*)"
_CLOSED = rf"(?P<closed>(?:[\s*_]|</(?ai:{_HTML})>)*)"
_STEP = re.compile(_LEAD + r"(?ai:step)\s*\d+" + _CLOSED + r"(?:[:\uff1a]|[.)](?=[\s*_]|\Z)|\Z)")
_FINAL = re.compile(_LEAD + r"(?ai:(?:the\s+)?final\s+answer)" + _CLOSED + r"(?:(?P<colon>[:\uff1a])|\Z)")
_ANSWER = re.compile(_LEAD + r"(?ai:(?:the\s+)?answer|答案)" + _CLOSED + r"[:\uff1a]")
_HASHES = re.compile(r"[\s>*_]*####(?!#)")
_TAGS = re.compile(
    r"<answer>(?P<value>(?:(?!</?answer>).){1,400})</answer>(?P<alone>[^\S\r\n]*\.?[^\S\r\n]*(?![^\r\n]))?",
    re.IGNORECASE | re.DOTALL,
)
_HTML_END = re.compile(rf"(?:\s?</{_HTML}>)+", re.IGNORECASE)
_APART_MARKS = re.compile(r"[^\S\r\n]+(?P<marks>[*_]+)(?=\s|\Z)")
_BULLET = re.compile(r"[-+*•]\s+")
_DISPLAY_OPEN = ("\\[", "$$")
_DISPLAY_CLOSE = ("\\]", "$$")

# A blank line is a token because LaTeX allows none inside a box: an unclosed brace must not reach the next paragraph.
BOX_TOKEN = re.compile(
    r"(?P<box>\\(?:boxed|fbox)(?![A-Za-z])[^\S\r\n]*(?:(?P<brace>\{)|(?P<bare>[\w.,/%+-]*\w%?)))"
    r"|(?P<escaped>\\[^\r\n])|(?P<open>\{)|(?P<close>\})|(?P<blank>(?:\r\n|\n|\r(?!\n))[^\S\r\n]*[\r\n]\s*)"
)
# After the weaker phrases, only a value that looks like an answer counts.
_PHRASE = re.compile(
    r"\b(?:the|my|our)[^\S\r\n]+(?:final[^\S\r\n]+|correct[^\S\r\n]+)?answer[^\S\r\n]+is\b[^\S\r\n]*[:\uff1a]?"
    r"|(?P<weaker>\bfinal[^\S\r\n]+answer[^\S\r\n]*(?:is\b[^\S\r\n]*[:\uff1a]?|[:\uff1a=])"
    r"|答案[是为][^\S\r\n]*[:\uff1a]?)",
    re.IGNORECASE,
)
_ASIDE = re.compile(r",[^\S\r\n]+[A-Za-z]{2,}[A-Za-z' -]*\Z")
_SENTENCE_END = re.compile(r"[.?](?=\s|\Z)|[\u3002\uff1f\r\n]")


def lines(text: str, within: Span | None = None) -> list[Span]:
    r"""Return the non-blank lines, trimmed. Only `\n`, `\r\n` and `\r` end a line."""
    return [Span(*match.span()) for match in _LINE.finditer(text, *(within or (0, len(text))))]


def step_labels(text: str, rows: list[Span]) -> list[Span]:
    """Return the labels (`Step 3:`, `**Step 3**:`, `### Step 3`) of those `lines` of the text that start a step."""
    return [Span(row.start, _label_end(text, row, match)) for row in rows if (match := _STEP.match(text, *row))]


def answer_lines(text: str, rows: list[Span]) -> list[Answer]:
    """Return the answer lines among the `lines` of the text. A `Final Answer:` without a value has an empty one.

    `Answer:` may also start a whole solution, so it counts only at the very end, followed by just a number (`5`,
    `5 apples`) or a short expression, and only if no other answer line has a value. Lines that a later box overrides
    are omitted.
    """
    boxes: list[_Box] | None = None
    found: list[Answer] = []
    for at, row in enumerate(rows):
        if _STEP.match(text, *row):
            continue
        if tags := _TAGS.match(text, row.start):
            value = clean_answer(tags["value"])
            if value and tags["alone"] is not None:
                found.append(Answer(value, row.start, tags.end(), "tags"))
        elif hashes := _HASHES.match(text, *row):
            value = clean_answer(text[hashes.end() : row.end])
            if _looks_like_answer(value):
                found.append(Answer(value, row.start, row.end, "hashes"))
        elif label := _FINAL.match(text, *row) or _ANSWER.match(text, *row):
            boxes = _boxes(text) if boxes is None else boxes
            start = _label_end(text, row, label)
            value, last = _final_value(text, rows, at, start, boxes)
            end = rows[last].end
            if label.re is _FINAL:
                # A heading without a colon may start a whole section: it counts only if an answer follows directly.
                counts = label["colon"] is not None or _looks_like_answer(value)
            else:
                alone = end == rows[-1].end and not any(answer.value for answer in found)
                counts = alone and _looks_like_answer(_clean_edges(text[start:end]))
            if counts:
                found.append(Answer(value, row.start, end, "final_answer"))
    return _without_overridden(text, found)


def _without_overridden(text: str, found: list[Answer]) -> list[Answer]:
    """Remove the answer lines before a later box that has a different value."""
    line, box = stated_line(found), _last_box(text) if found else None
    if line is None or box is None or box.start < line.end or box.value == line.value:
        return found
    return [answer for answer in found if answer.start > box.start]


def find_answer(text: str) -> Answer | None:
    r"""Return the answer that `text` states, or None.

    `####` must be followed by a number with at most three words (`5 apples`) or a short expression; otherwise it is a
    heading. An `Answer: 42` line (see `answer_lines`) has the source `final_answer`. `\fbox{...}` counts as
    `\boxed{...}`, and so does `\boxed 5` for one bare word or number. Of nested boxes, the innermost counts. Boxes that
    are never closed, or only after a blank line, are ignored, and so are empty values. What a reasoning model states
    inside `<think>` counts only if its response states nothing.
    """
    require_text(text, "find_answer() expects a string")
    return next((found for spans in find_sections(text) if (found := read_statements(text, spans).answer)), None)


def reference_answer(gold: str) -> str:
    """Return the answer in a gold text: the one that a gold solution states, such as GSM8K's `#### 14`, else all of it.

    >>> reference_answer("2 * 7 = 14\\n#### 14"), reference_answer(" 14 ")
    ('14', '14')
    """
    stated = find_answer(gold)
    return stated.value if stated else gold.strip()


class Statements(NamedTuple):
    """What a part of a text states: its answer lines, the line that decides, and the answer."""

    lines: list[Answer]
    line: Answer | None
    answer: Answer | None


def read_statements(text: str, spans: Sequence[Span]) -> Statements:
    """Read the answers within these spans of the text, as if the rest were not there."""
    part = keep(text, spans)
    candidates = answer_lines(part, [row for span in spans for row in lines(part, span)])
    line = stated_line(candidates)
    return Statements(candidates, line, line or answer_in_passing(part))


def answer_in_passing(text: str) -> Answer | None:
    """Return the answer that is stated within the text: by the last tags, the last box or the last phrase."""
    return _last_tags(text) or _last_box(text) or _last_phrase(text)


def stated_line(candidates: list[Answer]) -> Answer | None:
    """Return the answer line that decides: the last one of the strongest kind that has a value."""
    for source in ("tags", "final_answer", "hashes"):
        for answer in reversed(candidates):
            if answer.source == source and answer.value:
                return answer
    return None


def closing_text(value: str) -> str:
    """Return the text of the closing step, in which a model judges the answer itself."""
    return f"The answer is \\boxed{{{value}}}"


def clean_answer(raw: str) -> str:
    r"""Return the value of a statement: the content of its last tags or `\boxed{}`, else the text after "the answer
    is", else the whole statement."""
    inside = answer_in_passing(raw)
    return inside.value if inside else _clean_edges(raw)


def require_text(value: object, why: str) -> None:
    """Raise InputError unless `value` is a str. The message starts with `why`."""
    if not isinstance(value, str):
        hint = " Decode the bytes first." if isinstance(value, (bytes, bytearray)) else ""
        raise InputError(f"{why}, but got {type(value).__name__}.{hint}")


# --- finding -----------------------------------------------------------------------------------------------------


class _Box(NamedTuple):
    start: int
    end: int
    inner_start: int
    inner_end: int


def _boxes(text: str) -> list[_Box]:
    """Return the balanced boxes that contain no other box, in order."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return []
    found: list[_Box] = []
    newest = -1  # the start of the box that was closed last; a box that starts before it contains it
    stack: list[tuple[int, int] | None] = []  # open braces: a box's start and inner start, or None for a plain brace
    for token in BOX_TOKEN.finditer(text):
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


def _last_tags(text: str) -> Answer | None:
    for tags in reversed(list(_TAGS.finditer(text))):
        if value := clean_answer(tags["value"]):
            return Answer(value, tags.start(), tags.end(), "tags")
    return None


def _last_box(text: str) -> Answer | None:
    for box in reversed(_boxes(text)):
        if value := _clean_edges(text[box.inner_start : box.inner_end]):
            return Answer(value, box.start, box.end, "boxed")
    return None


def _last_phrase(text: str) -> Answer | None:
    """Return the last phrase whose value looks like an answer, else the last with any value ("the answer is yes")."""
    limit = len(text)
    other: Answer | None = None
    for match in reversed(list(_PHRASE.finditer(text))):
        start = match.end()
        stop = _SENTENCE_END.search(text, start, limit)
        end = stop.start() if stop else limit
        if text[start:end].strip() in ("", *_DISPLAY_OPEN) and (below := _value_below(text, end, limit)):
            return Answer(below[0], match.start(), below[1], "phrase")
        # The value may be followed by an aside ("7, as required") or by an exclamation mark that is not a factorial.
        for most in (end, start + len(text[start:end].rstrip().rstrip("!")), _aside(text, start, end)):
            value = _clean_edges(text[start:most])
            if not value:
                continue
            found = Answer(value, match.start(), start + len(text[start:most].rstrip()), "phrase")
            if _looks_like_answer(value) and not value.endswith("!"):
                return found
            other = other or (None if match["weaker"] else found)
        # Phrases do not overlap, so each character is examined only a few times, however many phrases there are.
        limit = match.start()
    return other


def _value_below(text: str, start: int, limit: int) -> tuple[str, int] | None:
    """Return the value on the next line (or on the one after, if display math starts first) and that line's end."""
    for line in islice(_LINE.finditer(text, start, limit), 2):
        value = _clean_edges(line.group())
        if value:
            return (value, line.end()) if _looks_like_answer(value) else None
    return None


def _aside(text: str, start: int, end: int) -> int:
    """Return where a comma separates the value from an aside without a value, or `end`."""
    aside = _ASIDE.search(text, start, end)
    return end if aside is None else aside.start()


def _label_end(text: str, line: Span, label: re.Match[str]) -> int:
    """Return where the label ends, including the emphasis that it opened: all of `**Step 1:**` and `**Step 1: **`, but
    only `Step 1:` of `Step 1:**bold**`."""
    lead = label["lead"]
    opened = len(lead) - len(lead.rstrip("*_"))
    owed = opened - label["closed"].count("*") - label["closed"].count("_")
    end = label.end()
    if html := _HTML_END.match(text, end, line.end):
        end = html.end()
    while owed > 0 and end < line.end and text[end] in "*_":
        end += 1
        owed -= 1
    apart = _APART_MARKS.match(text, end, line.end) if owed > 0 else None
    return apart.end() if apart and len(apart["marks"]) == owed else end


def _final_value(text: str, rows: list[Span], at: int, start: int, boxes: list[_Box]) -> tuple[str, int]:
    """Return the value of the answer line `rows[at]`, whose label ends at `start`, and the last row it covers."""
    display = text[start : rows[at].end].strip() in _DISPLAY_OPEN
    value = clean_answer(text[start : rows[at].end])
    last = at
    # The value may be on the next line, after a line that only starts display math.
    for _ in range(2):
        if value or last + 1 == len(rows) or _opens(text, rows[last + 1]):
            break
        last += 1
        bullet = _BULLET.match(text, *rows[last])
        start = bullet.end() if bullet else rows[last].start
        display = display or text[start : rows[last].end] in _DISPLAY_OPEN
        value = clean_answer(text[start : rows[last].end])
    if not value:
        return "", at
    # A box may span several lines, as a matrix does.
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
    """Whether this row starts with a marker, so that it cannot continue the row before."""
    return any(mark.match(text, *row) for mark in (_STEP, _FINAL, _ANSWER, _HASHES, _TAGS))


NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
TEXT_COMMAND = r"\\(?:text|textbf|textnormal|textrm|mathrm|mathbf|mbox)\s*"

# A capitalized word means a heading (`2 Setup`), not what was counted (`5 apples`, `5 USD`).
_NUMBER_LIKE = re.compile(
    rf"[+-]?\s?\\?[$€£]?\s?[+-]?{NUMBER}(?:\s?/\s?{NUMBER})?\s?\\?[%°$€£]?(?:\s(?:[a-z]+|[A-Z]+)){{0,3}}"
)
_NUMBERED_HEADING = re.compile(r"\d+(?:\.\d+)*[.):]\s")
_COMMAND = re.compile(TEXT_COMMAND + r"\{[^{}]*\}|\\[A-Za-z]+|\\.", re.DOTALL)
_EXPRESSION = re.compile(r"[\sA-Za-z\u0391-\u03c90-9.,:;+\-\u2212*/^_=<>≤≥≠±\u00d7÷·√∞°%$€£!|()\[\]{}&'~]*")
_FUNCTIONS = frozenset((
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "exp",
    "sqrt", "min", "max", "gcd", "lcm",
))  # fmt: skip
_WORD = re.compile(r"[^\W\d_]{3,}")
_COUNTED = re.compile(r"[^\W\d_]{2,}|a")
_AMOUNT_CHANGING = CHANGING | CLAUSE | WORKING | {"pi", "to", "over", "point"}
_BARE_WORDS = re.compile(r"(?<![A-Za-z])[A-Za-z]{1,2}[ \t]+[A-Za-z]")
_MATHS = re.compile(r"[0-9=+\-\u2212*/^<>≤≥≠±√∞]|\A\(?[A-Za-z\u0391-\u03c9]\)?\Z")
_MAX_EXPRESSION = 200


def _looks_like_answer(value: str) -> bool:
    """Whether this is a number, with or without a unit, or a short expression, rather than the words of a heading."""
    if not value or len(value) > _MAX_EXPRESSION or _NUMBERED_HEADING.match(value):
        return False
    if _NUMBER_LIKE.fullmatch(value):
        return True
    bare = _COMMAND.sub(" ", value)
    if not _EXPRESSION.fullmatch(bare) or prose_words(value) or _BARE_WORDS.search(bare):
        return False
    return bare != value or _MATHS.search(value) is not None


def counted_amount(value: str) -> str | None:
    """Return the amount before up to five words that say what is counted (`14 eggs`, `$5 in total`), or None.

    None if one of the words could change the amount: `14 dozen`, `2 and a half`, `3 squared`, a variable.
    """
    parts = value.split()
    words = 0
    while words < min(5, len(parts) - 1) and _COUNTED.fullmatch(parts[-1 - words]):
        words += 1
    if not words or any(word.lower() in _AMOUNT_CHANGING for word in parts[-words:]):
        return None
    return " ".join(parts[:-words])


def prose_words(value: str) -> list[str]:
    r"""Return the words of three letters or more that are neither function names nor in `\command` or `\text{...}`."""
    return [word.casefold() for word in _WORD.findall(_COMMAND.sub(" ", value)) if word.lower() not in _FUNCTIONS]


# --- cleaning ----------------------------------------------------------------------------------------------------

_HTML_EDGES = re.compile(rf"\A<{_HTML}>\s?|\s?(?:</{_HTML}>|<br ?/?>)\Z", re.IGNORECASE)
# A tick, the end of a proof, or a reason in parentheses after the value: `5 ✓`, `42 (since 6*7 = 42)`.
_AFTERTHOUGHT = re.compile(
    r"(?<=\S)\s?[✓✔✅☑∎■□🎉\ufe0f]\Z"
    r"|(?<=\S)\s\((?:since|because|as|i\.e\.|that is|which|where|so|from|rounded|approx\.?|approximately|about|or|note)"
    r"(?:[\s,][^()]*(?:\([^()]*\)[^()]*)*)?\)\Z",
    re.IGNORECASE,
)
_ENDLESS = re.compile(r"\.\d+\.\.\.\Z")
_MAX_LAYERS = 20  # of wrapping to remove; hostile nesting must not cost one pass over the text per layer


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
            # An unpaired delimiter belongs to display math that spans several lines.
            if value.startswith(opening) and closing not in value[2:-2]:
                value = value[2:]
            if value.endswith(closing) and opening not in value:
                value = value[:-2]
            value = value.strip()
        value = _AFTERTHOUGHT.sub("", _HTML_EDGES.sub("", value))
        if len(value) > 1 and value[0] == value[-1] == "_":
            value = value.strip("_").strip()
        if value.endswith((".", "。")) and not _ENDLESS.search(value):
            value = value[:-1].rstrip()
        if value == before:
            break
    if "\n" in value or "\r" in value:
        value = " ".join(line.strip() for line in value.splitlines())
    return value


def _without_dollars(value: str) -> str:
    """Remove the math delimiters of `$5$` and `$$5$$`. A single dollar sign before an amount is money and stays."""
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
