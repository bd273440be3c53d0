"""Options of the commands that measure a model on labelled data: `surefoot eval` and `surefoot calibrate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.options import MODEL, Json, Name, OptionalModels, Quiet, ScorerOptions, Verbose, chosen_models
from surefoot.core.addresses import is_server, is_vllm
from surefoot.errors import InputError, OptionError

if TYPE_CHECKING:
    from surefoot.core.calibration import Calibration
    from surefoot.scoring.score_cache import ScoreCache

DATA, CACHE, INTERVALS = "Data", "Score cache", "Confidence intervals"
DATA_HELP = "JSON or JSONL file, gzipped or not, a folder of them, or a hub data set."


Cache = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Where scores are stored, so that none is computed twice.",
        show_default="SUREFOOT_CACHE, or a file in the user's cache folder",
        rich_help_panel=CACHE,
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compute every score and store none.", rich_help_panel=CACHE)]
Draws = Annotated[
    int, typer.Option(metavar="B", help="Bootstrap draws; 0 for no intervals.", rich_help_panel=INTERVALS)
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the bootstrap.", rich_help_panel=INTERVALS)]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Options of every command that measures a model."""

    model: OptionalModels = None
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Use the step scores in this field of the data instead of a model.",
            rich_help_panel=MODEL,
        ),
    ] = None
    name: Name = None
    model_options: ScorerOptions
    cache: Cache = None
    no_cache: NoCache = False
    draws: Draws = 1000
    seed: Seed = 0
    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False

    def check(self) -> None:
        """Rejects options that contradict each other."""
        from surefoot.core.intervals import Bootstrap

        Bootstrap(self.draws, self.seed)
        if (not self.model) == (self.scores is None):
            raise OptionError("Give either --model, or --scores with the field that holds step scores.")
        self.model_options.ensemble.arguments(self.model)
        if self.cache is not None and self.no_cache:
            raise OptionError("Give --cache or --no-cache, not both.")

    def run(
        self,
        benchmark: Callable[..., Any],
        rows: Sequence[Any],
        calibration: Calibration | Sequence[Calibration] | None = None,
        **settings: Any,
    ) -> Any:
        """Loads the model and calls a function of `surefoot.evaluate` with it."""
        if not rows:
            raise InputError("The data has no rows.")
        settings |= {"seed": self.seed, "draws": self.draws, "name": self.name or self.scores}
        if not self.model:
            return benchmark(None, rows, **settings)
        with self._open_cache(self.model) as cache:
            scorer = self.model_options.load(chosen_models(self.model), calibration=calibration, cache=cache)
            return benchmark(scorer, rows, progress=not self.quiet, **settings)

    def print(self, result: Any) -> None:
        """Prints the result as a table or as JSON."""
        print(json.dumps(result.to_dict(), ensure_ascii=False) if self.json else result)

    def _open_cache(self, models: Sequence[str]) -> ScoreCache | nullcontext[None]:
        # A server may change its weights behind the same address, so its scores are stored only on request.
        only_servers = all(map(is_server, models))
        if self.no_cache or (self.cache is None and (only_servers or any(map(is_vllm, models)))):
            return nullcontext()
        from surefoot.scoring.score_cache import ScoreCache

        return ScoreCache(self.cache)
