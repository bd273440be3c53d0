"""Decide how requests reach a server, by asking it: whose tokenizer encodes prompts, and whether it continues steps.

Invariant: everything that would make requests fail is found here, before a token is generated.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot.client.transport import RejectedError
from surefoot.errors import CheckpointError, OptionError, ServiceError
from surefoot.generate.chat_prompt import ChatPrompt
from surefoot.generate.connection import Connection
from surefoot.generate.detection import DialectName, ServedModel, find_model
from surefoot.generate.prompt_encoder import PromptEncoder, find_tokenizer_folder
from surefoot.generate.server_tokens import LlamaCppTokens, LocalTokens, ServerTokens, TokenSource, read_ids

PROBE = "Let x = 3.5, so 12 * x + 7 = 49.\n\n  Größe: \\boxed{49} 你好\n"
"""A text that different vocabularies encode differently."""
NO_ENDPOINT = (404, 405, 501)
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
            return Route(served, local, continues=False, why=UNKNOWN)
        return Route(served, local, True, warnings=await _compare(connection, served, local.encoder, tokenizer))
    if served.dialect == "openai":
        return Route(served, None, continues=False, why=UNKNOWN)
    if served.dialect == "llamacpp":
        tokens = LlamaCppTokens(connection, prompt)
        await tokens.set_up(bos)
        return Route(served, tokens, continues=True)
    return await _with_server_tokens(connection, served, prompt)


async def _with_server_tokens(connection: Connection, served: ServedModel, prompt: ChatPrompt) -> Route:
    """vLLM and SGLang. Without /tokenize, only SGLang continues a chat with the exact prefix."""
    tokens = ServerTokens(connection, served.name, prompt)
    try:
        await tokens.set_up()
    except RejectedError as error:
        if error.status in NO_ENDPOINT:
            exact = served.dialect == "sglang"
            return Route(served, None, continues=exact, why="" if exact else NO_TOKENIZE)
        raise CheckpointError(
            f"The server cannot render its chat template: {error} Serve an instruction-tuned model, or one with a chat "
            'template. If the template does not know system messages, pass system="".'
        ) from error
    # SGLang reports the limit of the tokenizer there, not that of the server.
    context = served.context or (tokens.context if served.dialect == "vllm" else None)
    return Route(replace(served, context=context), tokens, continues=True)


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
