"""`surefoot models`: what is known of the models that load by name.

The rule: facts as published and sizes as computed; nothing is downloaded and nothing is loaded.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from surefoot.families import CatalogEntry, all_families, all_models, with_options

GB = 1e9
HEAD = ("model", "family", "scale", "context", "bf16", "nf4", "F1", "licence")


def add_models(commands: Any) -> None:
    """Adds `models` to the commands of the program."""
    parser = commands.add_parser("models", help="the models that are known by name", description=ABOUT)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=_models)


ABOUT = (
    "Lists the models that load by name. Memory is about what the weights take, in GB, computed from the model's "
    "shape: in bfloat16, and with linear layers in nf4. F1 is the published average on ProcessBench."
)


def _models(options: argparse.Namespace) -> int:
    rows = [facts(known) for known in all_models()]
    if options.json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return 0
    table = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print("\nMemory in GB, about. - is not published. What is read, by family:")
    for name, family in sorted(all_families().items()):
        print(f"  {name:<11} {family.readout}")
    return 0


def facts(known: CatalogEntry) -> dict[str, Any]:
    """One model as plain data."""
    from surefoot.evaluate.published import published_processbench

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
