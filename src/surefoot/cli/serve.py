"""`surefoot serve`: serves models over HTTP. A wrong call fails before a model is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surefoot.cli.exit_codes import DONE
from surefoot.cli.groups import SeveralValues, with_groups
from surefoot.cli.options import (
    MODEL,
    OWN_MODEL_HELP,
    CalibrationOptions,
    EnsembleOptions,
    LoadingOptions,
    Threads,
    examples,
    read_key,
)
from surefoot.core.addresses import is_server, is_service, is_vllm
from surefoot.engine.threads import limit_threads
from surefoot.errors import MissingDependencyError, OptionError
from surefoot.scoring.combining import Combine
from surefoot.scoring.load_options import DEFAULT_MODEL

if TYPE_CHECKING:
    from surefoot.serve.settings import ModelSource

SERVER, LIMITS, TIMES, LOG = "Server", "Limits", "Times", "Log"
SERVER_OPTIONS = ("tokenizer", "served_name", "api_key")


def _seconds(number: float) -> float:
    if not 0 <= number < math.inf:
        raise typer.BadParameter("give a number of seconds, 0 or more")
    return number


def _limit(about: str) -> Any:
    return typer.Option(min=1, metavar="N", help=about, rich_help_panel=LIMITS)


def _time(about: str) -> Any:
    return typer.Option(metavar="S", help=about, callback=_seconds, rich_help_panel=TIMES)


@dataclass(frozen=True)
class Limits:
    """Fields of `surefoot.serve.settings.Settings`, with the same defaults."""

    max_header_bytes: Annotated[int, _limit("Bytes in the headers of a request.")] = 32 << 10
    max_body_bytes: Annotated[int, _limit("Bytes in the body of a request.")] = 8 << 20
    max_items: Annotated[int, _limit("Items in a request.")] = 1024
    max_item_chars: Annotated[int, _limit("Characters of a question and its solution. A longer item is unscored.")] = (
        200_000
    )
    max_requests: Annotated[int, _limit("Requests in progress at the same time.")] = 1024
    queue_tokens: Annotated[int, _limit("Maximum number of queued tokens per model.")] = 500_000
    linger: Annotated[float, _time("How long an idle engine waits for more requests to batch.")] = 0.003
    batch_seconds: Annotated[float, _time("How long a batch may take before other requests get their turn.")] = 0.25
    timeout: Annotated[float, _time("How long a request may take.")] = 600.0
    header_timeout: Annotated[float, _time("How long the headers of a request may take to arrive.")] = 10.0
    body_timeout: Annotated[float, _time("How long the body of a request may take to arrive.")] = 60.0
    drain_seconds: Annotated[float, _time("How long accepted requests may take to finish after SIGTERM.")] = 30.0


@dataclass(frozen=True, kw_only=True)
class ServedEnsemble(EnsembleOptions):
    """Whether the models are served as one ensemble, and how."""

    combine: Annotated[
        Combine | None,
        typer.Option(
            metavar="RULE",
            help="Serve all models as one ensemble: mean or min of their scores, or calibrated, the mean of calibrated "
            "ones.",
            show_default="serves each model by its name",
            rich_help_panel=MODEL,
        ),
    ] = None


app = typer.Typer(add_completion=False)


@app.command(
    cls=SeveralValues,
    epilog=examples(
        "surefoot serve",
        "surefoot serve --model prm/ --host 0.0.0.0 --api-key key.txt",
        "surefoot serve --model small=mini --model large=Qwen/Qwen2.5-Math-PRM-7B",
        "surefoot serve --model mini --model Qwen/Qwen2.5-Math-PRM-7B --combine mean",
        "surefoot serve --model vllm+http://127.0.0.1:8001 --tokenizer prm/",
    ),
)
@with_groups
def serve(
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]MODEL",
            help=f"{OWN_MODEL_HELP} NAME is what callers see. Repeat it for several models, or for an ensemble with "
            "--combine.",
            show_default=DEFAULT_MODEL,
            rich_help_panel=MODEL,
        ),
    ] = None,
    ensemble: ServedEnsemble,
    loading: LoadingOptions,
    threads: Threads = None,
    model_api_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with the key for the server of --model, or env for the variable SUREFOOT_API_KEY.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    calibration: CalibrationOptions,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. The default is reachable from this machine only.",
            metavar="ADDRESS",
            rich_help_panel=SERVER,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, metavar="N", help="Port to listen on; 0 takes a free one.", rich_help_panel=SERVER
        ),
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with the key that callers must send, or env for the variable SUREFOOT_API_KEY.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    limits: Limits,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of log lines.", rich_help_panel=LOG)
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="Minimum log level.", rich_help_panel=LOG)
    ] = "info",
) -> int:
    """Serve models over HTTP: scores, rewards, vLLM's /pooling, and a page to try them. The service listens on this
    machine only, unless --host says otherwise."""
    models = model or [DEFAULT_MODEL]
    ensemble.arguments(models)
    if ensemble.missing_member is not None and ensemble.combine is None:
        raise OptionError("--missing-member is for an ensemble. Add --combine, or the models are served one by one.")
    if threads is not None:
        if any(is_vllm(_named(each)[1]) for each in models):
            raise OptionError("--threads is for models in this process, not for one on a vLLM server.")
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read by torch, which the next line imports
    try:
        from surefoot.serve.server import Plan, serve
        from surefoot.serve.settings import Settings
    except ImportError as error:
        raise MissingDependencyError(f'{error}. Install what a service needs: pip install "surefoot[serve]"') from error
    limit_threads()
    settings = Settings(**asdict(limits), api_key=None if api_key is None else read_key(api_key))
    arguments = loading.given()
    if model_api_key is not None:
        arguments["api_key"] = read_key(model_api_key)
    plan = Plan(
        sources(models, arguments, calibration),
        settings,
        log_format,
        log_level,
        ensemble.combine,
        ensemble.missing_member or "unscored",
    )
    serve(plan, host=host, port=port)
    return DONE


def sources(
    models: Sequence[str], arguments: dict[str, Any], calibration: CalibrationOptions
) -> tuple[ModelSource, ...]:
    """The models to serve, each with the arguments that it can take and its calibration if there are any."""
    from surefoot.scoring.member_options import options_of_each

    each = options_of_each([_named(model)[1] for model in models], arguments, server=SERVER_OPTIONS)
    if calibration.calibration:
        found = calibration.read()
        read = found if isinstance(found, list) else [found]
        if len(read) != len(models):
            raise OptionError("A calibration belongs to one model. Give one --calibration per --model, in their order.")
        each = [options | {"calibration": one} for options, one in zip(each, read, strict=True)]
    return tuple(map(_source, models, each))


def _source(given: str, arguments: dict[str, Any]) -> ModelSource:
    """Reads MODEL or NAME=MODEL. A model on a server is called like its tokenizer unless it has a name."""
    from surefoot.serve.settings import ModelSource

    name, source = _named(given)
    already_served = is_service(source) and "critic" not in arguments  # which is reported when it is loaded
    if not name and is_server(source) and not already_served:
        if "tokenizer" not in arguments:
            raise OptionError(f"Name the model that {source} serves: --model NAME={source}.")
        name = ModelSource(arguments["tokenizer"]).served_name
    return ModelSource(source, name or None, arguments)


def _named(given: str) -> tuple[str, str]:
    """Splits NAME=MODEL. Without a name, the name is empty."""
    name, equals, source = given.partition("=")
    return ("", given) if not equals or Path(given).is_dir() or "/" in name else (name, source)
