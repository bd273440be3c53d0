"""`surefoot serve`: the command line of the service.

The rule: a wrong call is refused before a model is loaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surefoot.cli.options import MODEL, add_calibration_options, add_loading_options, loading_options
from surefoot.errors import MissingDependencyError, OptionError
from surefoot.families.mini import NAME
from surefoot.serve.settings import ModelSource, Settings, read_key

DONE = 0

ABOUT = (
    "Serves a model over HTTP: scores, rewards, vLLM's /pooling, and a page to see it work. It listens on this machine "
    "only, unless --host says otherwise."
)

LIMITS = {
    "max_body_bytes": "bytes of a request's body",
    "max_items": "items in a request",
    "max_item_chars": "characters of a question and its solution; a longer item is unscored",
    "max_requests": "requests being answered at a time",
    "queue_tokens": "tokens that may wait for each model",
}
TIMES = {
    "linger": "seconds that an idle engine waits for company",
    "batch_seconds": "seconds that a batch takes",
    "timeout": "seconds that a request may take",
    "drain_seconds": "seconds that accepted requests get to finish after SIGTERM",
}
"""Fields of `Settings`, and what the help says of them."""


def add_serve(commands: Any) -> None:
    """Adds `serve` to the commands of the program."""
    defaults = Settings()
    parser = commands.add_parser("serve", help="serve a model over HTTP", description=ABOUT)
    parser.add_argument(
        "--model",
        action="append",
        metavar="[NAME=]MODEL",
        help=f"{MODEL}, and the name to serve it under; may be repeated ({NAME})",
    )
    add_loading_options(parser)
    add_calibration_options(parser)
    parser.add_argument("--vllm", metavar="URL", help="a vLLM server that computes; only the tokenizer is read here")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    parser.add_argument("--port", type=_port, default=8000, help="port to listen on (8000); 0 takes a free one")
    parser.add_argument(
        "--api-key", metavar="FILE", help="file that holds the key which callers must send; `env`: SUREFOOT_API_KEY"
    )
    for name, about in LIMITS.items():
        value = getattr(defaults, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=_whole, default=value, metavar="N", help=f"{about}, at most ({value:,})"
        )
    for name, about in TIMES.items():
        value = getattr(defaults, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=_seconds, default=value, metavar="S", help=f"{about} ({value:g})"
        )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="lines for people or machines")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        from surefoot.serve.server import Plan, serve
    except ImportError as error:
        raise MissingDependencyError(f'{error}. Install what a service needs: pip install "surefoot[serve]"') from error
    settings = Settings(
        **{name: getattr(options, name) for name in (*LIMITS, *TIMES)},
        api_key=None if options.api_key is None else read_key(options.api_key),
    )
    loading = loading_options(options)
    if options.vllm:
        _check_vllm(options.model or [], loading)
    models = options.model or [NAME]
    if loading["calibration"] is not None and len(models) > 1:
        raise OptionError("A calibration belongs to one model: with --calibration, name one --model.")
    sources = tuple(_source(given, options.vllm, loading) for given in models)
    plan = Plan(sources, settings, options.log_format, options.log_level)
    serve(plan, host=options.host, port=options.port)
    return DONE


def _check_vllm(models: list[str], loading: dict[str, Any]) -> None:
    if len(models) != 1:
        raise OptionError("With --vllm, name one model: the one that the vLLM server has.")
    said = [name for name, value in loading.items() if name != "max_tokens" and value not in (None, "auto", {})]
    if said:
        raise OptionError(
            f"With --vllm its server loads the model, so {', '.join(said)} would do nothing: leave it out."
        )


def _source(given: str, vllm: str | None, loading: dict[str, Any]) -> ModelSource:
    name, equals, place = given.partition("=")
    if not equals or Path(given).is_dir():
        name, place = "", given
    if vllm is None:
        return ModelSource(place, name or None, loading)
    options = {"tokenizer": place, "max_tokens": loading["max_tokens"]}
    return ModelSource(f"vllm+{vllm}", name or ModelSource(place).served_name, options)


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError("give a number from 0 to 65535")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number above 0")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError("give a number of seconds")
    return number
