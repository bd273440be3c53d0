"""Write the generated reference pages: the command line from its help texts, and the models from the catalog.

    python docs/scripts/write_reference.py

`tests/test_generated_docs.py` fails if a page differs from what this script writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from surefoot.cli.exit_codes import MEANINGS
from surefoot.cli.main import COMMANDS, load_command
from surefoot.cli.models import facts
from surefoot.critics.registry import all_critics
from surefoot.families import all_families
from surefoot.families.catalog import CATALOG

FOLDER = Path(__file__).parents[1] / "reference"
NOTICE = "<!-- Written by docs/scripts/write_reference.py. Change the source and run it again. -->"
OTHER_PANEL = "Options"


def cli_page() -> str:
    """Return the page about the command line."""
    lines = [
        "# Command line",
        "",
        NOTICE,
        "",
        "All commands and options, from the help texts of the program. `surefoot COMMAND --help` prints the same.",
        "Results go to standard output and everything else to standard error.",
        "",
        *table(
            ("command", ""), ((f"[`surefoot {name}`](#surefoot-{name})", text) for name, (_, text) in COMMANDS.items())
        ),
        "",
        *table(("exit code", ""), ((str(code), text) for code, text in MEANINGS.items())),
    ]
    for name in COMMANDS:
        lines += command_lines(f"surefoot {name}", load_command(name), level=2)
    return "\n".join(lines) + "\n"


def command_lines(name: str, command: Any, level: int) -> Iterator[str]:
    """Return the section of a command, and those of its subcommands."""
    yield from ("", f"{'#' * level} {name}", "", prose(command.help or ""))
    context = command.make_context(name, [], resilient_parsing=True)
    found: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            panel = "Arguments" if parameter.param_type_name == "argument" else parameter.rich_help_panel or OTHER_PANEL
            found.setdefault(panel, []).append((f"`{record[0].strip()}`", prose(record[1])))
    for panel, rows in found.items():
        yield from ("", *table((panel, ""), rows))
    examples = re.sub(r"\[/?bold\]Examples?\[/bold\]", "", command.epilog or "").strip()
    if examples:
        yield from ("", "```bash", examples, "```")
    for sub in getattr(command, "commands", {}).values():
        yield from command_lines(f"{name} {sub.name}", sub, level + 1)


def prose(text: str) -> str:
    """Return a help text on one line as Markdown. Angle brackets and square brackets stay text."""
    joined = " ".join(text.split())
    return re.sub(r"(`[^`]*`)|([\[\]*_])", lambda match: match[1] or "\\" + match[2], joined).replace("<", "&lt;")


def models_page() -> str:
    """Return the page with the catalog of models and critics."""
    lines = [
        "# Model catalog",
        "",
        NOTICE,
        "",
        f"The {len(CATALOG)} models that load by name, as `surefoot models` prints them.",
        "[Supported models](../families.md) describes the families, their prompts and what was checked.",
        'Other checkpoints of a family load with `surefoot.load(FOLDER, family="...")`.',
        "",
        "- **scale**: what a score is, see [Scales and calibration](../concepts/scales-and-calibration.md).",
        "- **context**: the prompt length, in tokens, that the authors publish.",
        "- **bf16**, **nf4**: GB of the weights in bfloat16, and with linear layers in nf4, computed from the shapes.",
        "- **F1**: published average on ProcessBench.",
        "- **checked**: token ids and read positions were compared with the makers' code, see",
        "  [Supported models](../families.md#families).",
        "",
        "A dash means: not published, or not checked.",
    ]
    rows = [facts(entry) for entry in CATALOG]
    order = list(all_families())
    rows.sort(key=lambda row: order.index(row["family"]))
    header = ("model", "scale", "context", "bf16", "nf4", "F1", "checked", "licence")
    for family, members in groupby(rows, key=lambda row: str(row["family"])):
        listed = list(members)
        lines += ["", f"## {family}", "", f"Read-out: {listed[0]['readout']}.", ""]
        lines += table(header, map(model_cells, listed))
    lines += ["", "## Critics", "", "Generative PRMs and prompts for chat models, see [Critics](../critics.md).", ""]
    critics = all_critics().values()
    cells = (
        (f"`{each.name}`", prose(each.description), ", ".join(each.models) or "any chat model") for each in critics
    )
    return "\n".join([*lines, *table(("critic", "", "models"), cells)]) + "\n"


def model_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of one model."""
    f1 = row["processbench_f1"]
    return (
        row["id"],
        row["scale"].replace("_", "-"),
        f"{row['context'] or '-'}",
        f"{row['bf16_bytes_about'] / 1e9:.1f}",
        f"{row['nf4_bytes_about'] / 1e9:.1f}",
        "-" if f1 is None else f"{f1:.1f}",
        row["checked"] or "-",
        row["licence"],
    )


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table. Bars inside cells are escaped, also in code, as GitHub expects."""
    escaped = (tuple(cell.replace("|", "\\|") for cell in cells) for cells in rows)
    return [f"| {' | '.join(cells)} |" for cells in (header, ("---",) * len(header), *escaped)]


PAGES = {"cli.md": cli_page, "models.md": models_page}
"""The generated pages by file name."""


if __name__ == "__main__":
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")
