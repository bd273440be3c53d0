"""`surefoot convert`: translates files of labelled steps between formats, and says what was lost."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.exit_codes import DONE
from surefoot.cli.groups import Command
from surefoot.cli.options import OUTPUT, Json, examples
from surefoot.data.formats import FORMATS, WRITTEN

if TYPE_CHECKING:
    from surefoot.data.convert import Conversion

INPUT = "Input"
LISTED = ", ".join(WRITTEN)


def complete_format(incomplete: str) -> list[str]:
    """The formats, for the shell."""
    return [name for name in FORMATS if name.startswith(incomplete)]


def complete_written(incomplete: str) -> list[str]:
    """The formats that can be written, for the shell."""
    return [name for name in WRITTEN if name.startswith(incomplete)]


app = typer.Typer(add_completion=False)


@app.command(
    cls=Command,
    epilog=examples(
        "surefoot convert phase2_train.jsonl --to trl --out stepwise.jsonl",
        "surefoot convert phase2_train.jsonl --to surefoot --alternatives --out s.jsonl",
        "surefoot convert labels/labels.jsonl --to trl --out stepwise.jsonl",
        "surefoot convert peiyi9979/Math-Shepherd --to trl --out stepwise.jsonl.gz",
    ),
)
def convert(
    *,
    source: Annotated[
        str,
        typer.Argument(metavar="DATA", help="JSONL file or JSON list, gzipped or not; a folder of them; or a hub id."),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help=f"Format to write: {LISTED}.",
            autocompletion=complete_written,
            rich_help_panel=OUTPUT,
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="JSONL file to write.", rich_help_panel=OUTPUT)],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="Format of the input: one of these, or labels, the labels.jsonl of `surefoot label`.",
            show_default="detected from the first row of each file",
            autocompletion=complete_format,
            rich_help_panel=INPUT,
        ),
    ] = None,
    alternatives: Annotated[
        bool,
        typer.Option(
            "--alternatives",
            help="Also write one solution per rated alternative step of PRM800K, which ends with it.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Convert labelled steps to another format. Prints how many labels, steps or fields the format could not represent.
    The file is written completely or not at all. docs/training.md describes the formats."""
    from surefoot.data.convert import convert as convert_files

    done = convert_files(source, out, to=to, from_=from_, alternatives=alternatives)
    if json:
        print(json_format.dumps(done.to_dict(), ensure_ascii=False))
    else:
        _print_summary(done, out)
    return DONE


def _print_summary(done: Conversion, out: str) -> None:
    names = ", ".join(sorted(set(done.formats.values())))
    print(f"Read {done.rows_read} rows ({names}), wrote {done.rows_written} rows ({done.to}) to {out}.")
    if not done.losses:
        print("Nothing was lost.")
        return
    print("Lost or changed:")
    for loss, count in done.losses.items():
        print(f"  {loss.what}: {count} {loss.unit}")
