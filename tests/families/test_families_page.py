"""`docs/families.md` and the README against the catalog: what was checked against which code, and memory.

After a change of the catalog, `PYTHONPATH=src python tests/families/test_families_page.py` rewrites the column
"checked against".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.families import CatalogEntry, find_models
from surefoot.families.catalog import CATALOG

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "families.md"
HEADER = "| family | models | prompt | read-out | checked against |"
CELL = re.compile(r"(?<!\\)\|")
"""Where a cell ends. A bar inside a cell is escaped."""


def checked_against(rows: list[CatalogEntry]) -> str:
    """The cell of a family: a source and the result. Models that were compared with other code are named."""
    found: dict[str, list[str]] = {}
    for row in rows:
        text = "our own model" if row.family == "mini" else "not checked"
        if row.makers is not None:
            difference = row.makers.difference
            result = "exact" if difference is None else f"documented difference: {difference}"
            assumed = f" (assumes {row.makers.assumes})" if row.makers.assumes else ""
            text = f"{row.makers.source}: {result}{assumed}"
        found.setdefault(text.replace("|", "\\|"), []).append(row.id.rsplit("/", 1)[-1])
    most, *others = sorted(found, key=lambda text: -len(found[text]))
    return "<br>".join([most, *(f"{', '.join(found[text])}: {text}" for text in others)])


def table(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows of the table of families: their line numbers and cells."""
    start = lines.index(HEADER)
    for number in range(start + 2, len(lines)):
        if not lines[number].startswith("|"):
            return
        yield number, [cell.strip() for cell in CELL.split(lines[number])[1:-1]]


def rewritten(text: str) -> str:
    """The page with the column as the catalog demands it."""
    lines = text.split("\n")
    for number, cells in table(lines):
        rows = [row for row in CATALOG if row.family == cells[0].strip("`")]
        lines[number] = f"| {' | '.join([*cells[:4], checked_against(rows)])} |"
    return "\n".join(lines)


def test_the_page_lists_every_family_once() -> None:
    listed = [cells[0].strip("`") for _, cells in table(PAGE.read_text(encoding="utf-8").split("\n"))]
    assert sorted(listed) == sorted({row.family for row in CATALOG})


def test_the_page_says_what_was_checked() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for (_, now), (_, wanted) in zip(table(text.split("\n")), table(rewritten(text).split("\n")), strict=True):
        assert now == wanted, "Run: PYTHONPATH=src python tests/families/test_families_page.py"


def gigabytes(model: str, kind: str) -> str:
    """Memory of a model's weights, or the size of its files with the output layer, as the documentation shows it."""
    (row,) = find_models(model)
    size = row.size
    return "{:.1f}".format(
        {
            "bfloat16": row.bytes(nf4=False),
            "nf4": row.bytes(nf4=True),
            # Embeddings keep the format of the file, which is bfloat16.
            "float32": 4 * size.linear + 2 * size.embeddings,
            "file": 2 * (size.linear + 2 * size.embeddings),
        }[kind]
        / 1e9
    )


QWEN, EURUS, PSA = "Qwen/Qwen2.5-Math-PRM-7B", "PRIME-RL/EurusPRM-Stage1", "openreasoner/Math-psa"
NF4 = ["5.4", "5.0", "5.6"]
"""Resident memory of the 7B model in nf4 while loading, after it and while scoring, by bench/memory.py."""
COSTS = ["1", "1.1", "5.3", "1.4", "1.2"]
"""vLLM's reserved memory, and the memory of each method, by bench/costs.py."""
MEASURED = [*COSTS, "1.3", "0.8", "0.94", "1.25", *NF4]
"""Memory, by bench/costs.py, bench/engine.py --growth and bench/memory.py."""
INSTALLED = ["6", "2"]
"""Disk space of an environment with and without CUDA, as in CONTRIBUTING.md."""


@pytest.mark.parametrize(
    ("file", "figures", "measured"),
    [
        ("README.md", [], MEASURED[-1:]),
        (
            "docs/getting-started.md",
            [*INSTALLED, (QWEN, "file"), (QWEN, "bfloat16"), (QWEN, "float32"), (QWEN, "nf4")],
            [],
        ),
        ("docs/performance.md", [], MEASURED),
        ("docs/families.md", [(PSA, "bfloat16"), (EURUS, "bfloat16"), (EURUS, "nf4")], []),
        ("docs/scoring.md", [], ["15"]),
        ("docs/engine.md", ["3.4", "2.0", "15"], NF4),
        ("docs/training.md", [], []),
        ("docs/serving.md", [], []),
        ("docs/rl.md", [(QWEN, "file")], []),
        ("docs/evaluation.md", [], []),
    ],
)
def test_memory_figures_are_those_of_the_catalog(
    file: str, figures: list[str | tuple[str, str]], measured: list[str]
) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    shown = re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)\sGB\b", text)
    assert shown == [*(each if isinstance(each, str) else gigabytes(*each) for each in figures), *measured]


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
