"""`surefoot label --review`: serves the page on which people correct labels, or exports what they corrected.

With --review, the options that describe labelling are neither needed nor allowed.
"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from surefoot.cli.exit_codes import DONE
from surefoot.cli.groups import Command
from surefoot.cli.messages import flag
from surefoot.cli.options import MODEL_HELP, EnsembleOptions, chosen_models, complete_model
from surefoot.engine.threads import limit_threads
from surefoot.errors import MissingDependencyError, OptionError
from surefoot.scoring.scorer_like import as_scorer

REVIEW = "Review, instead of labelling"
SHARED = ("json", "quiet", "verbose", "combine", "missing_member")
"""Options that both labelling and a review have."""
SERVER = ("port", "no_browser", "model", "combine", "missing_member")
"""Options that an export does not have."""


@dataclass(frozen=True, kw_only=True)
class ReviewOptions:
    """Which labels people review, and how."""

    review: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Open a local page to correct the labels in FOLDER. QUESTIONS, --generator and --out are not needed.",
            rich_help_panel=REVIEW,
        ),
    ] = None
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, metavar="N", help="Port of the page; 0 takes a free one.", rich_help_panel=REVIEW
        ),
    ] = 0
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address only.", rich_help_panel=REVIEW)
    ] = False
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help=f"Show the scores of this PRM next to the labels. {MODEL_HELP} Repeat it for an ensemble.",
            autocompletion=complete_model,
            rich_help_panel=REVIEW,
        ),
    ] = None
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the corrected labels for `surefoot train`, without opening the page.",
            rich_help_panel=REVIEW,
        ),
    ] = None


OWN = tuple(field.name for field in fields(ReviewOptions))


class ReviewCommand(Command):
    """A command that does something else, with other options, if --review is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Requires nothing else if --review is given."""
        required = [param for param in self.params if param.required]
        if not any(word == "--review" or word.startswith("--review=") for word in args):
            return super().parse_args(ctx, args)
        try:
            for param in required:
                param.required = False
            return super().parse_args(ctx, args)
        finally:
            for param in required:
                param.required = True

    def invoke(self, ctx: Any) -> Any:
        """Runs the review instead of the command if --review is given."""
        given = {
            param.name: flag(param)
            for param in self.params
            if param.name is not None and ctx.get_parameter_source(param.name).name == "COMMANDLINE"
        }
        if "review" not in given:
            if alone := [text for name, text in given.items() if name in OWN]:
                raise OptionError(f"{alone[0]} is for a review. Add --review FOLDER, or leave it out.")
            return super().invoke(ctx)
        if other := [text for name, text in given.items() if name not in (*OWN, *SHARED)]:
            raise OptionError(f"{other[0]} is for labelling and cannot be combined with --review.")
        if "export" in given and (server := [text for name, text in given.items() if name in SERVER]):
            raise OptionError(f"{server[0]} is for the page, which --export does not open.")
        if "json" in given and "export" not in given:
            raise OptionError("With --review, --json is for the report of --export.")
        options = ReviewOptions(**{name: ctx.params[name] for name in OWN})
        ensemble = EnsembleOptions(**{field.name: ctx.params[field.name] for field in fields(EnsembleOptions)})
        return run_review(options, ensemble, as_json=ctx.params["json"])


def run_review(options: ReviewOptions, ensemble: EnsembleOptions, *, as_json: bool = False) -> int:
    """Exports corrected labels, or serves the page until Ctrl+C."""
    assert options.review is not None
    if options.export is not None:
        return _export(options.review, options.export, as_json)
    try:
        import filelock  # noqa: F401

        from surefoot.labelling.review.server import serve_review
    except ImportError as error:
        raise MissingDependencyError(f'{error}. Install what a review needs: pip install "surefoot[review]"') from error
    from surefoot.labelling.review.session import ReviewSession

    scorer, combined = None, ensemble.arguments(options.model)
    if options.model:
        limit_threads()
        scorer = as_scorer(chosen_models(options.model), **combined)
    session = ReviewSession(options.review, scorer)

    def tell(address: str) -> None:
        count = f"{len(session.solutions):,} solutions"
        print(f"surefoot: Review {count} at {address} (Ctrl+C ends the review).", file=sys.stderr, flush=True)

    serve_review(session, port=options.port, browser=not options.no_browser, tell=tell)
    print(session.summary)
    return DONE


def _export(folder: str, file: str, as_json: bool) -> int:
    from surefoot.labelling.review.corrected import corrected

    found = corrected(folder)
    rows = found.write(file)
    if as_json:
        print(json_format.dumps({"out": file, "rows": rows, **found.summary.to_dict()}))
    else:
        print(found.summary)
        print(f"{file}: {rows:,} rows")
    return DONE
