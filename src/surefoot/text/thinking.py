"""Tell the thinking of a reasoning model from its response.

The tags are `<think>` and `<thinking>`. An opening tag counts at the start of a line, so that a sentence may mention
it. If the first tag is a closing one, the text starts inside the thinking, because many chat templates open it in the
prompt. A block that is never closed reaches to the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from surefoot.core.solution import Span

_TAG = re.compile(
    r"(?:\A\ufeff?|(?<=[\r\n]))[^\S\r\n]*(?P<open><think(?:ing)?>)|(?P<close></think(?:ing)?>)", re.IGNORECASE
)


class Sections(NamedTuple):
    """The parts of a text, without the tags between them."""

    response: tuple[Span, ...]
    thinking: tuple[Span, ...]

    @property
    def all(self) -> tuple[Span, ...]:
        """Both, in order."""
        return tuple(sorted(self.thinking + self.response))


def find_sections(text: str) -> Sections:
    """Return the spans of the thinking and of the response.

    >>> text = "<think>2 + 3 = 5</think>It is 5."
    >>> [text[slice(*span)] for span in find_sections(text).response]
    ['', 'It is 5.']
    """
    thinking: list[Span] = []
    response: list[Span] = []
    at = 0
    inside = tagged = False
    for tag in _TAG.finditer(text):
        if tag["open"]:
            if inside:
                continue
            response.append(Span(at, tag.start("open")))
        elif inside or not tagged:
            thinking.append(Span(at, tag.start()))
        else:  # closes nothing
            continue
        inside, tagged, at = bool(tag["open"]), True, tag.end()
    (thinking if inside else response).append(Span(at, len(text)))
    return Sections(tuple(response), tuple(thinking))


def after_thinking(text: str) -> str:
    """Return what follows the last block of thinking: all of the text if there is none, and nothing if it is open.

    >>> after_thinking("<think>Is it 4?</think>It is 5.")
    'It is 5.'
    """
    sections = find_sections(text)
    if not sections.thinking:
        return text
    end = max(span.end for span in sections.thinking)
    return "".join(text[span.start : span.end] for span in sections.response if span.start > end)


def keep(text: str, spans: Sequence[Span]) -> str:
    """Return the text with line ends in the place of everything outside `spans`, so that positions stay the same."""
    if list(spans) == [(0, len(text))]:
        return text
    pieces = []
    at = 0
    for start, end in spans:
        pieces += ["\n" * (start - at), text[start:end]]
        at = end
    return "".join([*pieces, "\n" * (len(text) - at)])
