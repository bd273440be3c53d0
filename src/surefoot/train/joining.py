"""Join neighbouring steps, so that a model learns from steps of all lengths.

Most labelled data has one sentence per step, but many models write a paragraph with several calculations. A joined step
is correct if all its parts are, so its label is exact.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from surefoot.data.step_labels import WRONG_BELOW
from surefoot.train.example import Example

LENGTHS = (90, 140, 200)
"""Typical lengths of a joined step, in characters. One is drawn per solution."""
SENTENCE_ENDS = (".", "!", "?", ":", ";", ",")


def join_some(examples: Sequence[Example], share: float, seed: int) -> list[Example]:
    """Join steps in about `share` of the solutions. The seed and the solution decide which, and how."""
    joined = []
    for example in examples:
        rng = random.Random(f"join/{seed}/{example.question}/{example.steps}")
        joined.append(join_steps(example, rng) if rng.random() < share else example)
    return joined


def join_steps(example: Example, rng: random.Random) -> Example:
    """Join neighbouring steps up to lengths that vary around one that is drawn for the solution."""
    typical = rng.choice(LENGTHS)
    steps, targets = [], []
    for parts, labels in _groups(example, typical, rng):
        steps.append(_text(parts))
        targets.append(_target(labels))
    return Example(example.question, tuple(steps), tuple(targets), example.source)


def _groups(
    example: Example, typical: int, rng: random.Random
) -> Iterator[tuple[Sequence[str], Sequence[float | None]]]:
    start, size, limit = 0, 0, typical * rng.uniform(0.4, 1.6)
    for at, step in enumerate(example.steps):
        if at > start and size + len(step) > limit:
            yield example.steps[start:at], example.targets[start:at]
            start, size, limit = at, 0, typical * rng.uniform(0.4, 1.6)
        size += len(step)
    yield example.steps[start:], example.targets[start:]


def _text(parts: Sequence[str]) -> str:
    """One paragraph if the parts are sentences, else one line per part."""
    sentences = all(part.rstrip().endswith(SENTENCE_ENDS) for part in parts[:-1])
    return (" " if sentences else "\n").join(parts)


def _target(targets: Sequence[float | None]) -> float | None:
    """The lowest target. It is unknown if a part is, unless another part is incorrect."""
    known = [target for target in targets if target is not None]
    lowest = min(known, default=1.0)
    return lowest if lowest < WRONG_BELOW or len(known) == len(targets) else None
