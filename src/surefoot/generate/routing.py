"""Decide how requests reach a server, by asking it: whose tokenizer encodes prompts, and whether it continues steps.

Invariant: everything that would make requests fail is found here, before a token is generated.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from surefoot.client.transport import RejectedError
from surefoot.errors import CheckpointError, OptionError, ServiceError
from surefoot.generate.chat_prompt import ChatPrompt
from surefoot.generate.connection import Connection
from surefoot.generate.detection import DialectName, ServedModel, find_model
from surefoot.generate.prompt_encoder import PromptEncoder, find_tokenizer_folder
from surefoot.generate.server_tokens import LlamaCppTokens, LocalTokens, ServerTokens, TokenSource, read_ids

PROBE = "Let x = 3.5, so 12 * x + 7 = 49.\n\n  Größe: \\boxed{49} 你好\n"
"""A text that different vocabularies encode differently."""
NO_ENDPOINT = (401, 403, 404, 405, 501)
"""The endpoint is missing, or closed to this key."""
MALFORMED = (400, 422)
OPENAI = "api.openai.com"
UNVERIFIED = (
    "This server offers no way to check that a text adds no token and no turn of the chat template. Texts that look "
    "like well-known special tokens are refused; others may become structure. "
)
WITH_TOKENIZER = "Pass the model's tokenizer (tokenizer=...) to send every text as plain text."
SEEDS_IGNORED = "SGLang uses seeds only if it was started with --enable-deterministic-inference."
UNKNOWN = "it does not continue partial answers, or does not say that it is a server which does."
NO_TOKENIZE = (
    "it has no /tokenize, and its chat template may drop the white space at the end of a step. Pass the folder or hub "
    "id of the model's tokenizer (tokenizer=...), with which steps are continued."
)


@dataclass(frozen=True)
class Route:
    """How requests reach a server."""

    served: ServedModel
    tokens: TokenSource | None
    """What encodes prompts and counts tokens; None if the server renders and encodes conversations itself."""
    continues: bool
    why: str = ""
    """Why it does not continue partial answers."""
    warnings: tuple[str, ...] = ()
    """What could not be checked."""


async def find_route(
    connection: Connection,
    model: str | None,
    dialect: DialectName | None,
    tokenizer: str | Path | None,
    prompt: ChatPrompt,
) -> Route:
    """Ask a server what it is. Raise a `SurefootError` if requests cannot succeed."""
    served = await find_model(connection, model, dialect)
    bos = ""
    if served.dialect == "llamacpp":
        served, bos = await _llamacpp_properties(connection, served)
    if tokenizer is not None:
        local = await _local_tokens(tokenizer, prompt)
        if served.dialect == "openai":
            return _by_chat(connection, served, local)
        warnings = await _compare(connection, served, local.encoder, tokenizer)
        return Route(served, local, True, warnings=(*warnings, *_about_seeds(served)))
    if served.dialect == "openai":
        return _by_chat(connection, served, None)
    if served.dialect == "llamacpp":
        tokens = LlamaCppTokens(connection, prompt)
        await tokens.set_up(bos)
        return Route(served, tokens, continues=True)
    return await _with_server_tokens(connection, served, prompt)


def checks_texts(connection: Connection) -> bool:
    """Whether texts of a conversation are checked before they are sent. OpenAI encodes them as plain text."""
    return urlsplit(connection.address).hostname != OPENAI


def _by_chat(connection: Connection, served: ServedModel, local: LocalTokens | None) -> Route:
    """OpenAI, and servers that do not say what they are."""
    warnings = (UNVERIFIED.rstrip(),) if checks_texts(connection) else ()
    return Route(served, local, continues=False, why=UNKNOWN, warnings=warnings)


def _about_seeds(served: ServedModel) -> tuple[str, ...]:
    return (SEEDS_IGNORED,) if served.dialect == "sglang" else ()


async def _with_server_tokens(connection: Connection, served: ServedModel, prompt: ChatPrompt) -> Route:
    """vLLM and SGLang. Without /tokenize, only SGLang continues a chat with the exact prefix."""
    tokens = ServerTokens(connection, served.name, prompt)
    unverified = (UNVERIFIED + WITH_TOKENIZER, *_about_seeds(served))
    try:
        await tokens.set_up()
    except RejectedError as error:
        if error.status in NO_ENDPOINT or await _takes_no_messages(connection, served, error):
            exact = served.dialect == "sglang"
            return Route(served, None, continues=exact, why="" if exact else NO_TOKENIZE, warnings=unverified)
        raise CheckpointError(
            f"The server cannot render its chat template: {error} Serve an instruction-tuned model, or one with a chat "
            'template. If the template does not know system messages, pass system="".'
        ) from error
    # SGLang reports the limit of the tokenizer there, not that of the server.
    context = served.context or (tokens.context if served.dialect == "vllm" else None)
    warnings = _about_seeds(served) if tokens.is_verified else unverified
    return Route(replace(served, context=context), tokens, continues=True, warnings=warnings)


async def _takes_no_messages(connection: Connection, served: ServedModel, error: RejectedError) -> bool:
    """Whether `/tokenize` takes plain text only, as in SGLang before May 2026."""
    if served.dialect != "sglang" or error.status not in MALFORMED:
        return False
    try:
        read_ids(await connection.ask("POST", "/tokenize", {"model": served.name, "prompt": "a"}))
    except RejectedError:
        return False
    return True


async def _llamacpp_properties(connection: Connection, served: ServedModel) -> tuple[ServedModel, str]:
    """The model with its context and file, and the BOS token."""
    properties = await connection.ask("GET", "/props")
    try:
        # One less, so that a server with context shift never discards a part of the prompt.
        context = int(properties["default_generation_settings"]["n_ctx"]) - 1
        bos, root = str(properties.get("bos_token") or ""), properties.get("model_path")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServiceError("The reply to /props cannot be read. Is it a recent llama.cpp server?") from error
    root = root if isinstance(root, str) else None
    return replace(served, context=context if context > 0 else None, root=root), bos


async def _local_tokens(tokenizer: str | Path, prompt: ChatPrompt) -> LocalTokens:
    folder = await asyncio.to_thread(find_tokenizer_folder, tokenizer)
    return LocalTokens(await asyncio.to_thread(PromptEncoder.from_folder, folder, prompt))


async def _compare(
    connection: Connection, served: ServedModel, encoder: PromptEncoder, tokenizer: str | Path
) -> tuple[str, ...]:
    """Raise if the server encodes a text, or the template's special tokens, in another way. Return warnings."""
    field = "content" if served.dialect == "llamacpp" else "prompt"
    special = {name: [id] for name, id in encoder.template_tokens.items()}
    for text, ids in ({PROBE: encoder.tokenizer.encode(PROBE)[0]} | special).items():
        body = {"model": served.name, field: text, "add_special_tokens": False, "add_special": False}
        try:
            found = read_ids(await connection.ask("POST", "/tokenize", body))
        except RejectedError as error:
            return (f"Whether {tokenizer} is the tokenizer of {served.name} could not be checked: {error}",)
        if found != ids:
            raise OptionError(
                f"tokenizer={str(tokenizer)!r} is not the tokenizer of {served.name}: they encode {text[:40]!r} "
                "differently. Pass that of the served model, or none."
            )
    return ()
