"""`surefoot models`: lists the models that load by name. Nothing is downloaded or loaded."""

from __future__ import annotations

import json as json_format
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.exit_codes import DONE
from surefoot.cli.groups import Command
from surefoot.cli.options import JsonLines, complete_family, examples
from surefoot.display.terminal import paint, wants_colour
from surefoot.errors import OptionError

if TYPE_CHECKING:
    from surefoot.families import CatalogEntry

GB = 1e9
UNITS = {"": GB, "MB": 1e6, "GB": GB, "TB": 1e12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
SHARE, REST = 0.1, 0.75 * GB
"""What a model needs besides its weights, about: a share of them for activations, and the libraries."""
MARGIN = f"{SHARE:.0%} and {REST / GB} GB"
SCALES = {"probability": "prob", "log_ratio": "log-ratio"}
"""Short names of scales; the others are short enough."""
NUMBERS = (False, False, True, True, True, True, False, False)
"""Which columns are aligned to the right."""
INDENT = "  "
SELECTION = "Selection"

app = typer.Typer(add_completion=False)


@app.command(
    cls=Command,
    epilog=examples("surefoot models", "surefoot models --fits 8GB", "surefoot models --family qwen --json"),
)
def models(
    *,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only models of this family.",
            autocompletion=complete_family,
            rich_help_panel=SELECTION,
        ),
    ] = None,
    fits: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help=f"Only models that fit into this memory, such as 8GB: weights plus {MARGIN}.",
            rich_help_panel=SELECTION,
        ),
    ] = None,
    critics: Annotated[
        bool,
        typer.Option("--critics", help="List critics with their options instead.", rich_help_panel=SELECTION),
    ] = False,
    json: JsonLines = False,
) -> int:
    """List the models that load by name, with the memory that their weights take in bfloat16 and with linear layers in
    nf4 (computed from the model's shape), their published average F1 on ProcessBench, whether Surefoot was checked
    against their makers' code, and their licences."""
    from surefoot.families import all_families, all_models

    if critics:
        if family is not None or fits is not None:
            raise OptionError("--critics lists all critics. Leave out --family and --fits.")
        _print_critics(json)
        return DONE
    families = all_families()
    if family is not None and family not in families:
        raise OptionError(f"--family {family} is unknown. Choose one of: {', '.join(sorted(families))}.")
    room = None if fits is None else _bytes(fits)
    rows = [facts(entry, room) for entry in all_models() if family in (None, entry.family)]
    if room is not None:
        rows = [row for row in rows if row["fits"] is not None]
    if json:
        for row in rows:
            print(json_format.dumps(row, ensure_ascii=False))
    elif rows:
        order = list(families)
        _print_groups(sorted(rows, key=lambda row: order.index(row["family"])), fits)
    else:
        print(f"No such model fits into {fits}: weights plus {MARGIN}.")
    return DONE


def _print_critics(json: bool) -> None:
    """Prints every critic with the models that are made for it, and its options."""
    from surefoot.critics.registry import all_critics

    colour = wants_colour(sys.stdout)
    for critic in all_critics().values():
        if json:
            row = {"critic": critic.name, "description": critic.description, "models": list(critic.models)}
            print(json_format.dumps(row | {"options": critic.options}, ensure_ascii=False))
            continue
        print(paint(critic.name, "1", colour) + f"  {critic.description}")
        print(f"{INDENT}models: {', '.join(critic.models) or 'any chat model'}")
        listed = ", ".join(f"{name}={_shorten(str(value), 20)!s}" for name, value in critic.options.items())
        print(textwrap.fill(f"options: {listed}", 100, initial_indent=INDENT, subsequent_indent=INDENT * 2))
        print()


def facts(known: CatalogEntry, room: float | None = None) -> dict[str, Any]:
    """One model as plain data. With `room`, in bytes, also the format of the weights that fits."""
    from surefoot.evaluate.published import published_processbench
    from surefoot.families import all_families, with_options

    family = with_options(all_families()[known.family], known.options)
    published, makers = published_processbench(known.id), known.makers
    row: dict[str, Any] = {
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
        "checked": None if makers is None else "exact" if makers.difference is None else "differs",
        "makers": None if makers is None else dict(vars(makers)),
    }
    if room is not None:
        enough = (name for name in ("bf16", "nf4") if row[f"{name}_bytes_about"] * (1 + SHARE) + REST <= room)
        row["fits"] = next(enough, None)
    return row


def _bytes(text: str) -> float:
    """Reads a size: 8GB, 7.5 GB, 24GiB; without a unit, GB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip(), re.IGNORECASE)
    if found is None or found[2].upper() not in UNITS:
        raise OptionError(f"--fits {text}: give a size such as 8GB or 24GiB.")
    return float(found[1]) * UNITS[found[2].upper()]


def _print_groups(rows: Sequence[dict[str, Any]], fits: str | None) -> None:
    """Prints one heading per family, then one line per model, or two in a terminal that is too narrow for one."""
    notes = list(dict.fromkeys(row["makers"]["difference"] for row in rows if row["checked"] == "differs"))
    memory = ("bf16", "nf4") if fits is None else ("fits", "GB")
    head = ("model", "scale", "context", *memory, "F1", "checked", "licence")
    cells = {row["id"]: _cells(row, notes) for row in rows}
    widths = [max(map(len, column)) for column in zip(head, *cells.values(), strict=True)]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    narrow = columns is not None and columns < len(INDENT) + sum(widths) + 2 * (len(widths) - 1)
    colour = wants_colour(sys.stdout)

    def line(texts: Sequence[str]) -> str:
        aligned = zip(texts, widths, NUMBERS, strict=True)
        first, *rest = (text.rjust(width) if number else text.ljust(width) for text, width, number in aligned)
        facts = INDENT + INDENT + "  ".join(rest).rstrip() if narrow else "  ".join(rest).rstrip()
        if narrow and columns is not None and len(facts) > columns:
            facts = facts[: columns - 1] + "…"
        return f"{INDENT}{first.rstrip()}\n{facts}" if narrow else f"{INDENT}{first}  {facts}"

    print(paint(line(head), "1", colour))
    for family, group in groupby(rows, key=lambda row: row["family"]):
        members = list(group)
        print()
        print(paint(_shorten(f"{family}: {members[0]['readout']}", columns), "1", colour))
        for row in members:
            print(line(cells[row["id"]]))
    print()
    for text in _legend(fits, notes):
        print(textwrap.fill(text, columns or 100, subsequent_indent="    " if text.startswith("[") else ""))


def _shorten(text: str, columns: int | None) -> str:
    return text if columns is None or len(text) <= columns else text[: columns - 1] + "…"


def _legend(fits: str | None, notes: Sequence[str]) -> Iterable[str]:
    if fits is None:
        yield "bf16, nf4: memory of the weights in GB, about; --fits 8GB lists what fits."
    else:
        yield f"fits, GB: the format that fits into {fits} and the memory of its weights, about; with {MARGIN} more."
    yield "context: tokens of the longest prompt that the model was made for; longer prompts get a warning."
    yield (
        "scale: prob is a probability. F1: ProcessBench. checked: compared with the makers' code; equal token "
        "ids and read positions (exact), or different as the note says (differs). -: not published or not checked."
    )
    for number, note in enumerate(notes, start=1):
        yield f"[{number}] {note}"


def _cells(row: dict[str, Any], notes: Sequence[str]) -> tuple[str, ...]:
    f1, fits = row["processbench_f1"], row.get("fits")
    sizes = {name: f"{row[f'{name}_bytes_about'] / GB:.1f}" for name in ("bf16", "nf4")}
    checked = row["checked"] or "-"
    if checked == "differs":
        checked += f" [{notes.index(row['makers']['difference']) + 1}]"
    return (
        row["id"],
        SCALES.get(row["scale"], row["scale"]),
        str(row["context"] or "-"),
        *(sizes.values() if fits is None else (fits, sizes[fits])),
        "-" if f1 is None else f"{f1:.1f}",
        checked,
        row["licence"],
    )
