"""`surefoot models`: lists the models that load by name. Nothing is downloaded or loaded."""

from __future__ import annotations

import json as json_format
import shutil
import sys
from typing import TYPE_CHECKING, Any

import typer

from surefoot.cli.exit_codes import DONE
from surefoot.cli.groups import Command
from surefoot.cli.options import JsonLines, examples
from surefoot.display.terminal import paint, wants_colour

if TYPE_CHECKING:
    from surefoot.families import CatalogEntry

GB = 1e9
HEAD = ("model", "family", "scale", "context", "bf16", "nf4", "F1", "licence")

app = typer.Typer(add_completion=False)


@app.command(cls=Command, epilog=examples("surefoot models", "surefoot models --json"))
def models(*, json: JsonLines = False) -> int:
    """List the models that load by name, with the memory that their weights take in bfloat16 and with linear layers in
    nf4 (computed from the model's shape), and their published average F1 on ProcessBench."""
    from surefoot.families import all_families, all_models

    rows = [facts(entry) for entry in all_models()]
    if json:
        for row in rows:
            print(json_format.dumps(row, ensure_ascii=False))
        return DONE
    _print_table([HEAD, *(_cells(row) for row in rows)])
    print("\nbf16, nf4: memory of the weights in GB, about. F1: ProcessBench.")
    print("-: not published. Read-out by family:")
    for name, family in sorted(all_families().items()):
        print(f"  {name:<11} {family.readout}")
    return DONE


def _print_table(table: list[tuple[str, ...]]) -> None:
    """Prints one line per model, or two in a terminal that is too narrow for one."""
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < sum(widths) + 2 * (len(widths) - 1)
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        text = f"{line[0]}\n  {'  '.join(cells[1:])}" if narrow else "  ".join(cells)
        print(paint(text.rstrip(), "1", line is HEAD and wants_colour(sys.stdout)))


def facts(known: CatalogEntry) -> dict[str, Any]:
    """One model as plain data."""
    from surefoot.evaluate.published import published_processbench
    from surefoot.families import all_families, with_options

    family = with_options(all_families()[known.family], known.options)
    published = published_processbench(known.id)
    return {
        "id": known.id,
        "family": known.family,
        "readout": family.readout,
        "scale": family.scale,
        "context": known.context,
        "licence": known.licence,
        "processbench_f1": None if published is None else published.average,
        "parameters_about": known.parameters,
        "bf16_bytes_about": round(known.bytes(nf4=False)),
        "nf4_bytes_about": round(known.bytes(nf4=True)),
        "options": dict(known.options),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    f1 = row["processbench_f1"]
    return (
        row["id"],
        row["family"],
        row["scale"],
        str(row["context"] or "-"),
        f"{row['bf16_bytes_about'] / GB:.1f}",
        f"{row['nf4_bytes_about'] / GB:.1f}",
        "-" if f1 is None else f"{f1:.1f}",
        row["licence"],
    )
