"""Load generators: the address of a server, a client object, a model's folder or hub id, or a file of recordings."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from surefoot.core.addresses import is_service
from surefoot.core.generation import Generator
from surefoot.core.options import Quantization
from surefoot.errors import OptionError
from surefoot.generate.chat_prompt import DEFAULT_SYSTEM, PLACE, ChatPrompt

if TYPE_CHECKING:
    from surefoot.generate.detection import DialectName

METHODS = ("check", "generate", "close")


def load_generator(
    what: Any,
    *,
    model: str | None = None,
    dialect: DialectName | None = None,
    tokenizer: str | Path | None = None,
    system: str | None = DEFAULT_SYSTEM,
    prompt: str = PLACE,
    api_key: str | None = None,
    timeout: float = 600.0,
    patience: float = 60.0,
    concurrency: int = 32,
    quantize: Quantization | None = None,
    max_batch: int = 32,
) -> Generator:
    """Return a generator for a server, a client, a model or recordings.

    `what` is the address of an OpenAI-compatible server (with or without `/v1`), an `openai.OpenAI` or
    `openai.AsyncOpenAI` object, the folder or hub id of a model for transformers, a `.jsonl` file of recorded
    solutions, or a generator, which is returned as it is.

    For servers: `model` chooses one of several served models. `dialect` is found by asking; set it (`vllm`, `sglang`,
    `llamacpp` or `openai`) if the server hides behind another name. `tokenizer` is the folder or hub id of the served
    model's tokenizer; with it, prompts are encoded here and sent as token ids. `api_key` defaults to the environment
    variable OPENAI_API_KEY. A request that failed on the way or was rejected for load is retried for `patience`
    seconds; one attempt may take `timeout` seconds; at most `concurrency` requests are sent at a time.

    For models in this process: `quantize` is `int8` (faster on CPUs) or `nf4` (less memory), and `max_batch` the most
    sequences at a time.

    `system` is the system message ("" for none), and `prompt` the user message, with `{question}` exactly once.

    >>> generator = surefoot.load_generator("http://127.0.0.1:8000", prompt="{question}\\nThink step by step.")
    """
    if _is_generator(what):
        return cast(Generator, what)
    chat = ChatPrompt(system, prompt)
    if is_service(what) or not isinstance(what, str | Path) or not str(what):
        _refuse_unused("the server decides that", quantize=quantize, max_batch=max_batch)
        served = {"model": model, "dialect": dialect, "tokenizer": tokenizer, "prompt": chat}
        return _for_server(what, served, api_key=api_key, timeout=timeout, patience=patience, concurrency=concurrency)
    servers = {"model": model, "dialect": dialect, "api_key": api_key, "timeout": timeout, "patience": patience}
    _refuse_unused(f"for servers only, and {str(what)!r} is not an address", **servers)
    if str(what).endswith((".jsonl", ".jsonl.gz")):
        from surefoot.generate.recorded import load_recorded

        unused: dict[str, Any] = {"tokenizer": tokenizer, "prompt": prompt}
        unused |= {"quantize": quantize, "max_batch": max_batch}
        _refuse_unused(f"{str(what)!r} holds recordings, which are read as they are", **unused)
        return load_recorded(Path(what))
    from surefoot.generate.local import LocalGenerator

    return LocalGenerator(
        what, system=system, prompt=prompt, tokenizer=tokenizer, quantize=quantize, max_batch=max_batch
    )


def _for_server(what: Any, served: dict[str, Any], *, concurrency: int, **options: Any) -> Generator:
    """Connect to an address, or use a client object. Imports the HTTP client, which other generators do not need."""
    if is_service(what):
        from surefoot.client.api_key import find_key
        from surefoot.generate.connection import KEY_VARIABLE, HttpConnection
        from surefoot.generate.server import ServerGenerator

        key = find_key(options.pop("api_key"), KEY_VARIABLE)
        return ServerGenerator(HttpConnection(what, api_key=key, concurrency=concurrency, **options), **served)
    from surefoot.generate.openai_client import ClientConnection, is_client
    from surefoot.generate.server import ServerGenerator

    if not is_client(what):
        raise OptionError(
            f"A generator cannot be made from {type(what).__name__!r}. Pass the address of a server, an OpenAI client, "
            "the folder or hub id of a model, or a .jsonl file of recorded solutions."
        )
    _refuse_unused("the client object has its own", **options)
    return ServerGenerator(ClientConnection(what, concurrency=concurrency), **served)


def _refuse_unused(why: str, **options: Any) -> None:
    """Raise if an option that has no effect was given."""
    defaults = inspect.signature(load_generator).parameters
    if unused := [name for name, value in options.items() if value != defaults[name].default]:
        raise OptionError(f"{', '.join(unused)}: {why}.")


def _is_generator(what: Any) -> bool:
    """Whether an object has the methods and properties of a generator. Properties are looked up on its class."""
    return all(callable(getattr(what, name, None)) for name in METHODS) and hasattr(type(what), "fingerprint")
