"""Numbers about the service, in the text format of Prometheus.

The rule: labels come from a closed set (routes, status codes, model names), never from what a caller sent, so that
their number stays bounded.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


@dataclass
class Counter:
    """A number that only grows, for each set of labels."""

    name: str
    about: str
    values: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, amount: float = 1.0, **labels: str) -> None:
        """So much more."""
        self.values[tuple(sorted(labels.items()))] += amount

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from _head(self.name, self.about, "counter")
        for labels, value in self.values.items():
            yield f"{self.name}{_braces(labels)} {value:.15g}"


@dataclass
class Gauge:
    """A number that is asked for when it is read."""

    name: str
    about: str
    read: Callable[[], dict[Labels, float]]

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from _head(self.name, self.about, "gauge")
        for labels, value in self.read().items():
            yield f"{self.name}{_braces(labels)} {value:.15g}"


@dataclass
class Histogram:
    """How often a number fell into which range."""

    name: str
    about: str
    bounds: tuple[float, ...]
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, value: float, **labels: str) -> None:
        """One more observation."""
        key = tuple(sorted(labels.items()))
        row = self.counts.setdefault(key, [0] * (len(self.bounds) + 1))
        row[bisect_left(self.bounds, value)] += 1
        self.sums[key] += value

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from _head(self.name, self.about, "histogram")
        for labels, row in self.counts.items():
            total = 0
            for bound, number in zip([*map("{:g}".format, self.bounds), "+Inf"], row, strict=True):
                total += number
                yield f"{self.name}_bucket{_braces((*labels, ('le', bound)))} {total}"
            yield f"{self.name}_sum{_braces(labels)} {self.sums[labels]:.15g}"
            yield f"{self.name}_count{_braces(labels)} {total}"


class Metrics:
    """All numbers of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests = Counter("surefoot_requests_total", "Requests answered, by route and status code.")
        self.items = Counter("surefoot_items_total", "Items answered, by model and by whether they were scored.")
        self.seconds = Histogram("surefoot_request_seconds", "From the first byte to the reply.", SECONDS)
        self.slices = Histogram("surefoot_slice_prompts", "Prompts that the engine computed together.", SIZES)
        self.slice_tokens = Histogram("surefoot_slice_tokens", "Tokens of such a slice, shared ones once.", TOKENS)
        self.tokens = Counter("surefoot_tokens_total", "Tokens computed, shared ones once.")
        self.busy = Counter("surefoot_engine_seconds_total", "Time that the engine was busy.")
        self.left = Counter("surefoot_disconnects_total", "Callers that left before their answer was there.")
        self.gauges: list[Gauge] = []

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        parts: tuple[Counter | Gauge | Histogram, ...] = (
            self.requests,
            self.items,
            self.seconds,
            self.slices,
            self.slice_tokens,
            self.tokens,
            self.busy,
            self.left,
            *self.gauges,
        )
        with self.lock:
            return "\n".join(line for part in parts for line in part.lines()) + "\n"


def _head(name: str, about: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for _, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for (name, _), value in zip(labels, escaped, strict=True)) + "}"
