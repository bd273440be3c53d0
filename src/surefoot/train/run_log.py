"""Write the log of a run (JSONL) and its loss curve, as text and, if matplotlib is installed, as an image.

Invariant: the log has one line per step and one per evaluation, and looks the same whether or not the run was resumed.
"""

from __future__ import annotations

import json
from itertools import compress
from pathlib import Path
from typing import Any

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 72


class Log:
    """The file log.jsonl, to which lines are appended."""

    def __init__(self, file: Path, step: int) -> None:
        """Continue after `step`: remove later lines, whose work was lost, and the line of the export."""
        found = read_log(file) if file.is_file() else []
        kept = [bool(step) and row["step"] <= step and "exported" not in row for row in found]
        rows = list(compress(found, kept))
        self.removed = [row for row, keep in zip(found, kept, strict=True) if not keep]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        self._file = file

    def has(self, name: str, step: int) -> bool:
        """Whether the log has a line for that step with that field."""
        return any(row["step"] == step and name in row for row in read_log(self._file))

    def add(self, **row: Any) -> None:
        """Append one line."""
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def read_log(file: Path) -> list[dict[str, Any]]:
    """Return all complete lines of a log, without a last line that was truncated by a crash."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def draw_curve(file: Path) -> str:
    """Return the loss curve as one line of text; also write it next to the log, with an image if possible."""
    steps = (row for row in read_log(file) if "loss" in row and not {"evaluated", "exported"} & row.keys())
    points = [(row["step"], row["loss"]) for row in steps]
    if not points:
        return "no steps yet"
    size = max(1, -(-len(points) // WIDTH))
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    losses = [sum(loss for _, loss in group) / len(group) for group in groups]
    low, high = min(losses), max(losses)
    heights = [round((loss - low) / (high - low or 1.0) * (len(BARS) - 1)) for loss in losses]
    text = f"loss {losses[0]:.3f} {''.join(BARS[height] for height in heights)} {losses[-1]:.3f}"
    file.with_name("loss.txt").write_text(text + "\n", encoding="utf-8")
    _picture(file, points)
    return text


def _picture(file: Path, points: list[tuple[int, float]]) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    axes.plot(*zip(*points, strict=True), linewidth=0.8)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    figure.savefig(file.with_name("loss.png"), dpi=120)
    pyplot.close(figure)
