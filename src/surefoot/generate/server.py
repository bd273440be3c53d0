"""OpenAI-compatible servers as generators: vLLM, SGLang, llama.cpp, and whole answers from any other.

Token ids are sent where that is possible, so that the prefix is continued exactly and no text becomes structure.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from surefoot.client.transport import RejectedError
from surefoot.core.generation import Continuation, Generation, GenerationRequest, failed
from surefoot.errors import InputError, OptionError, SurefootError
from surefoot.generate.chat_prompt import ChatPrompt, check_text
from surefoot.generate.connection import Connection
from surefoot.generate.detection import DialectName, check_dialect
from surefoot.generate.dialects import Order, Outcome, Reply, body_of, path_of, read_reply, takes_n
from surefoot.generate.labels import UNSUPPORTED, label_ids, read_logprobs
from surefoot.generate.lookalikes import WITH_THINKING, refuse_special
from surefoot.generate.routing import Route, checks_texts, find_route
from surefoot.generate.server_tokens import LocalTokens, TokenSource
from surefoot.tokenization.tokenizer import PromptTokenizer

REMEMBERED = 256
"""Questions whose prompts are kept."""
WHOLE_ANSWERS = (
    "This server can write whole answers only: {why} Use a strategy that samples whole answers, or serve the model "
    "with vLLM, SGLang or llama.cpp."
)
NO_IDS = "This server takes no token ids. Serve the model with vLLM, SGLang or llama.cpp."
LABEL_DIALECTS = ("vllm", "sglang", "llamacpp")
UNCOUNTED = (
    "The server does not say how many tokens it generated. Pass the folder or hub id of the model's tokenizer "
    "(tokenizer=...), with which they are counted."
)


class ServerGenerator:
    """A model on a server. See `load_generator` for the options.

    generator = load_generator("http://127.0.0.1:8000")
    await generator.check()
    generation = await generator.generate(GenerationRequest("What is 2 + 3?", n=4))
    """

    def __init__(
        self,
        connection: Connection,
        *,
        model: str | None = None,
        dialect: DialectName | None = None,
        tokenizer: str | Path | None = None,
        prompt: ChatPrompt | None = None,
    ) -> None:
        check_dialect(dialect)
        self._connection = connection
        self._model, self._dialect, self._tokenizer = model, dialect, tokenizer
        self._prompt = prompt or ChatPrompt()
        self._route: Route | None = None
        self._pending: asyncio.Task[Route] | None = None
        self._prompts: OrderedDict[str, list[int]] = OrderedDict()
        self._limit_name = "max_tokens"
        self._counts_samples = True
        """Whether the server says how many tokens each of several samples has."""

    def __repr__(self) -> str:
        return f"<surefoot.ServerGenerator {self.name} at {self._connection.address}>"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_route": None, "_pending": None, "_prompts": OrderedDict()}

    @property
    def name(self) -> str:
        """The served model's name; before `check` the requested one, or the address."""
        if self._route is not None:
            return self._route.served.name
        return self._model or self._connection.address

    @property
    def fingerprint(self) -> str:
        """A hash of the model's name and the prompt. The server's address is not part of it."""
        route = self._checked()
        parts = None if route.tokens is None else route.tokens.parts
        template = None if parts is None else [part if isinstance(part, str) else repr(part) for part in parts.parts]
        served = route.served
        identity = [
            served.dialect,
            served.name,
            served.root,
            self._prompt.system or "",
            self._prompt.template,
            template,
        ]
        return sha256(json.dumps(identity).encode()).hexdigest()

    @property
    def continues(self) -> bool:
        """Whether the server continues a partial answer exactly."""
        return self._checked().continues

    @property
    def reads_labels(self) -> bool:
        """Whether the server reports the probabilities of given tokens."""
        route = self._checked()
        return route.tokens is not None and route.served.dialect in LABEL_DIALECTS

    @property
    def prompt(self) -> ChatPrompt:
        """What is put around a question."""
        return self._prompt

    @property
    def tokenizer(self) -> PromptTokenizer | None:
        """The model's tokenizer; None if only the server has it."""
        tokens = self._checked().tokens
        return tokens.encoder.tokenizer if isinstance(tokens, LocalTokens) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be checked."""
        return self._checked().warnings

    def _checked(self) -> Route:
        if self._route is None:
            raise OptionError("What the server offers is not known yet. Call `await generator.check()` first.")
        return self._route

    async def check(self) -> None:
        """Ask the server for its model, template and tokenizer, and raise if requests cannot succeed."""
        await self._ready()

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def _ready(self) -> Route:
        if self._route is None:
            loop = asyncio.get_running_loop()
            if self._pending is None or self._pending.get_loop() is not loop or self._pending.done():
                found = find_route(self._connection, self._model, self._dialect, self._tokenizer, self._prompt)
                self._pending = loop.create_task(found)
            self._route = await asyncio.shield(self._pending)
            self._pending = None
        return self._route

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue a solution. A failure becomes a continuation that ended with `error`."""
        try:
            route = await self._ready()
            if request.labels:
                return await self._read_labels(route, request)
            orders = await self._orders(route, request)
        except SurefootError as error:
            return failed(request, str(error))
        if not orders:
            ended = (Continuation("", "cut_off", 0, request.seed_of(index)) for index in range(request.n))
            return Generation(tuple(ended), 0, 0)
        parts = await asyncio.gather(*(self._send(route, order) for order in orders))
        return Generation(
            tuple(each for part in parts for each in part.continuations),
            sum(part.prompt_tokens for part in parts),
            sum(part.calls for part in parts),
        )

    async def _read_labels(self, route: Route, request: GenerationRequest) -> Generation:
        check_text(request.question, request.prefix, *request.labels)
        if not self.reads_labels or route.tokens is None:
            raise OptionError(UNSUPPORTED)
        ids = await self._ids(route.tokens, request)
        encoded = [await route.tokens.prefix_ids(label) for label in request.labels]
        if route.served.context is not None and len(ids) >= route.served.context:
            raise InputError(
                f"The prompt has {len(ids)} tokens, and {route.served.name} takes {route.served.context} with the next."
            )
        chosen = label_ids(request.labels, encoded)
        logprobs, calls = await read_logprobs(self._connection, route.served, ids, chosen)
        read = Continuation("", "answer", 0, request.seed, label_logprobs=logprobs)
        return Generation((read,), len(ids) * calls, calls)

    async def _ids(self, tokens: TokenSource, request: GenerationRequest) -> list[int]:
        """The prompt with the prefix."""
        if request.prompt_ids is not None:
            return [*request.prompt_ids, *await tokens.prefix_ids(request.prefix)]
        return [*await self._prompt_ids(tokens, request.question), *await tokens.prefix_ids(request.prefix)]

    async def _orders(self, route: Route, request: GenerationRequest) -> list[Order]:
        """The requests to send; none if the prefix fills the context."""
        check_text(request.question, request.prefix, *request.step_ends)
        if not route.continues and (request.prefix or request.step_ends or request.prompt_ids is not None):
            raise OptionError(WHOLE_ANSWERS.format(why=route.why))
        if route.served.dialect == "openai" and request.sampling.top_k:
            raise OptionError(
                f"top_k={request.sampling.top_k}: OpenAI's interface has no such option. Use `top_p`, or set the "
                "dialect if this is vLLM, SGLang or llama.cpp."
            )
        served, ids, messages = route.served, None, self._prompt.messages(request.question)
        if route.tokens is not None and route.continues:
            ids = await self._ids(route.tokens, request)
        elif request.prompt_ids is not None:
            raise OptionError(NO_IDS)
        else:
            if checks_texts(self._connection):
                refuse_special(*(message["content"] for message in messages), pattern=WITH_THINKING)
                refuse_special(request.prefix)
            messages = [*messages, {"role": "assistant", "content": request.prefix}] if request.prefix else messages
        max_tokens = request.max_tokens
        if ids is not None and served.context is not None:
            max_tokens = min(max_tokens, served.context - len(ids))
            if max_tokens < 1 and not request.prefix:
                raise InputError(
                    f"The question has {len(ids)} tokens, and {served.name} takes {served.context} at most."
                )
            if max_tokens < 1:
                return []
        # A chat completion tells the tokens of all samples together only.
        n = request.n if ids is not None and self._counts_samples and takes_n(served.dialect, request) else 1
        return [Order(request, served, at, n, max_tokens, ids, messages) for at in range(0, request.n, n)]

    async def _prompt_ids(self, tokens: TokenSource, question: str) -> list[int]:
        if question not in self._prompts:
            self._prompts[question] = await tokens.prompt_ids(question)
        self._prompts.move_to_end(question)
        while len(self._prompts) > REMEMBERED:
            self._prompts.popitem(last=False)
        return self._prompts[question]

    async def _send(self, route: Route, order: Order) -> Generation:
        try:
            reply = await self._ask(order)
        except SurefootError as error:
            return Generation(tuple(Continuation("", "error", 0, seed, str(error)) for seed in order.seeds), 0, 1)
        if order.n > 1 and any(outcome.tokens is None for outcome in reply.outcomes):
            self._counts_samples = False
        continuations = [
            await self._counted(route, outcome, seed) for seed, outcome in zip(order.seeds, reply.outcomes, strict=True)
        ]
        prompt = len(order.ids) if order.ids is not None else reply.prompt_tokens
        return Generation(tuple(continuations), prompt or 0, 1)

    async def _ask(self, order: Order) -> Reply:
        order = replace(order, limit_name=self._limit_name)
        try:
            reply = await self._connection.ask("POST", path_of(order), body_of(order))
        except RejectedError as error:
            # OpenAI's reasoning models know the limit by another name. Nothing has been generated yet.
            if order.ids is not None or "max_completion_tokens" not in str(error) or order.limit_name != "max_tokens":
                raise
            self._limit_name = "max_completion_tokens"
            return await self._ask(order)
        return read_reply(order, reply)

    async def _counted(self, route: Route, outcome: Outcome, seed: int) -> Continuation:
        """A continuation with its tokens. They are counted if the server does not say how many there are."""
        text, end, tokens, reason = outcome.text, outcome.end, outcome.tokens, outcome.reason
        if tokens is None and route.tokens is None:
            return Continuation("", "error", 0, seed, UNCOUNTED)
        if tokens is None and route.tokens is not None:
            try:
                tokens = await route.tokens.count(text) + (end == "answer")  # the end of the answer is a token, too
            except SurefootError as error:
                return Continuation("", "error", 0, seed, str(error))
        return Continuation(text, end, tokens or 0, seed, reason)
