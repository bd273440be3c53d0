"""A real scorer that counts its calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import surefoot
from surefoot.core.protocols import Item


class Counting(surefoot.Scorer):
    def __init__(self, scorer: surefoot.Scorer) -> None:
        super().__init__(scorer.pipeline, scorer.engines, scorer.fingerprint)
        self.calls: list[int] = []

    def score_stream(self, items: Iterable[Item], *args: Any, **options: Any) -> Iterator[surefoot.SolutionScore]:
        asked = list(items)
        self.calls.append(len(asked))
        return super().score_stream(asked, *args, **options)
