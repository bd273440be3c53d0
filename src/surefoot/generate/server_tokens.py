"""Encode prompts with the tokenizer of the server, for callers that do not have it.

Invariant: no text becomes a token or a turn of the chat template. llama.cpp can encode plain text. vLLM and SGLang
cannot, so with them a text that adds a token or a turn is refused. That needs `/detokenize`; without it, only texts
that look like special tokens are refused, and `is_verified` is False.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from surefoot.client.transport import RejectedError
from surefoot.errors import CheckpointError, InputError, ServiceError
from surefoot.generate.chat_prompt import ChatPrompt
from surefoot.generate.connection import Connection
from surefoot.generate.detection import positive
from surefoot.generate.lookalikes import (
    SPACES,
    SPECIAL,
    THINKING,
    WITH_THINKING,
    is_structural,
    refuse_special,
    structure_error,
)
from surefoot.generate.prompt_encoder import PromptEncoder
from surefoot.generate.rendering import Probe, Slot, TemplateParts, fill_slots, plain_markers, refuse_markers
from surefoot.tokenization.settings import Message

ANCHOR = "\n"
"""A text in front of another one, so that the tokenizer does not put a space there."""
DATE = {"date_string": "26 Jul 2024"}
"""The date that Llama's templates show: always the same, so that a prompt does not change with the calendar."""

Tokenize = Callable[[str], Awaitable[list[int]]]


class TokenSource(Protocol):
    """Anything that turns questions and prefixes into token ids."""

    @property
    def parts(self) -> TemplateParts | None:
        """What the template writes, if that is known."""

    async def prompt_ids(self, question: str) -> list[int]:
        """Return the prompt up to the place where the answer begins. Raise a `SurefootError` if a text is refused."""

    async def prefix_ids(self, prefix: str) -> list[int]:
        """Return the beginning of an answer."""

    async def count(self, text: str) -> int:
        """Return the number of tokens of a generated text, whatever it spells."""


class LocalTokens:
    """The tokenizer is in this process."""

    def __init__(self, encoder: PromptEncoder) -> None:
        self.encoder = encoder
        self.parts: TemplateParts | None = encoder.parts

    async def prompt_ids(self, question: str) -> list[int]:
        """Return the prompt up to the place where the answer begins."""
        return self.encoder.prompt_ids(question)

    async def prefix_ids(self, prefix: str) -> list[int]:
        """Return the beginning of an answer."""
        return self.encoder.prefix_ids(prefix)

    async def count(self, text: str) -> int:
        """Return the number of tokens of a generated text."""
        return len(self.encoder.encode_answer(text))


class ServerTokens:
    """vLLM and SGLang: `/tokenize` renders and encodes conversations."""

    parts: TemplateParts | None = None

    def __init__(self, connection: Connection, model: str, prompt: ChatPrompt) -> None:
        self._connection, self._model, self._prompt = connection, model, prompt
        self._continue: Tokenize | None = None
        self._structure: dict[int, str] = {}
        """The template's tokens with the form of special ones, and what they spell."""
        self._expected: Counter[int] = Counter()
        """How often a prompt has each of them."""
        self._markers: tuple[str, ...] = ()
        self.is_verified = False
        """Whether the template's tokens are known, so that a text which adds one is found."""
        self.context: int | None = None
        """The most tokens of prompt and answer together, as vLLM says."""

    async def set_up(self) -> None:
        """Learn the template's tokens, and how the tokenizer treats the start of a text.

        Raise `RejectedError` if `/tokenize` does not take conversations.
        """
        probe = Probe.for_prompt(self._prompt)
        reply = await self._ask_chat(probe.plain)
        ids = read_ids(reply)
        self.context = positive(reply.get("max_model_len"))
        self._continue = await continuation_of(self._encode)
        try:
            rendered, *names = await self._spell(ids, reply.get("token_strs"))
        except RejectedError:
            return
        self._structure = {id: name.strip(SPACES) for id, name in zip(ids, names, strict=True) if is_structural(name)}
        self._expected = self._counts(ids)
        self._markers = plain_markers(self._pieces(probe.split(rendered)))
        self.is_verified = True

    async def prompt_ids(self, question: str) -> list[int]:
        """Return the prompt up to the place where the answer begins."""
        messages = self._prompt.messages(question)
        texts = [message["content"] for message in messages]
        refuse_markers(self._markers, *texts)
        refuse_special(*texts, pattern=WITH_THINKING)
        ids = read_ids(await self._ask_chat(messages))
        self._refuse_added(self._counts(ids) - self._expected)
        return ids

    async def prefix_ids(self, prefix: str) -> list[int]:
        """Return the beginning of an answer. Tags around thinking keep their tokens, as the model wrote them."""
        refuse_markers(self._markers, prefix)
        refuse_special(prefix)
        ids = await self._encode_continuation(prefix)
        self._refuse_added(
            Counter({id: n for id, n in self._counts(ids).items() if self._structure[id] not in THINKING})
        )
        return ids

    async def count(self, text: str) -> int:
        """Return the number of tokens of a generated text."""
        return len(await self._encode_continuation(text))

    async def _encode_continuation(self, text: str) -> list[int]:
        assert self._continue is not None
        return await self._continue(text) if text else []

    def _counts(self, ids: Sequence[int]) -> Counter[int]:
        return Counter(id for id in ids if id in self._structure)

    def _refuse_added(self, added: Counter[int]) -> None:
        if added:
            raise structure_error(self._structure[min(added)])

    def _pieces(self, parts: TemplateParts) -> list[int | str | Slot]:
        """The template as special tokens, texts between them, and slots."""
        ids = {name: id for id, name in self._structure.items()}
        pattern = re.compile("|".join(map(re.escape, ids)) or "$.")
        pieces: list[int | str | Slot] = []
        for part in parts.parts:
            if isinstance(part, Slot):
                pieces.append(part)
                continue
            at = 0
            for found in pattern.finditer(part):
                pieces += [part[at : found.start()], ids[found.group()]]
                at = found.end()
            pieces.append(part[at:])
        return pieces

    async def _spell(self, ids: list[int], names: Any) -> list[str]:
        """What all tokens spell together, and each of them alone. Raise `RejectedError` if the server does not say.

        vLLM has sent the names with the tokens, unless it is too old for that. SGLang decodes several lists at a time.
        """
        names = names if isinstance(names, list) else None
        tokens = [ids, *([id] for id in ids)] if names is None else ids
        body = {"model": self._model, "tokens": tokens, "skip_special_tokens": False}
        reply = await self._connection.ask("POST", "/detokenize", body)
        reply = reply if isinstance(reply, dict) else {}
        found = [reply.get("prompt"), *names] if names is not None else reply.get("text")
        if (
            not isinstance(found, list)
            or len(found) != len(ids) + 1
            or not all(isinstance(each, str) for each in found)
        ):
            raise ServiceError("The reply to /detokenize has no texts. Is it a vLLM or SGLang server?")
        return found

    async def _ask_chat(self, messages: Sequence[Message]) -> Any:
        body = {"model": self._model, "messages": list(messages), "chat_template_kwargs": DATE}
        return await self._connection.ask("POST", "/tokenize", body | {"return_token_strs": True})

    async def _encode(self, text: str) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return read_ids(await self._connection.ask("POST", "/tokenize", body))


class LlamaCppTokens:
    """llama.cpp: `/apply-template` renders, and `/tokenize` encodes text with or without special tokens."""

    def __init__(self, connection: Connection, prompt: ChatPrompt) -> None:
        self._connection, self._prompt = connection, prompt
        self.parts: TemplateParts | None = None
        self._pieces: tuple[int | str | Slot, ...] = ()
        self._continue: Tokenize | None = None
        self._structural: dict[int, bool] = {}
        self._own: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        """The template's tokens with the form of special ones."""
        self._markers: tuple[str, ...] = ()

    async def set_up(self, bos: str) -> None:
        """Take the chat template apart and encode what it writes itself."""
        self._continue = await continuation_of(self._plain)
        probe = Probe.for_prompt(self._prompt)
        plain, padded = await self._render(probe.plain), await self._render(probe.padded)
        self.parts = probe.read(plain, padded)
        opening = [] if bos and plain.startswith(bos) else await self._opening()
        pieces: list[int | str | Slot] = [*opening]
        for part in self.parts.parts:
            pieces += [part] if isinstance(part, Slot) else await self._template_pieces(part)
        self._pieces = tuple(pieces)
        self._markers = plain_markers(pieces)

    async def prompt_ids(self, question: str) -> list[int]:
        """Return the prompt up to the place where the answer begins."""
        texts = {message["role"]: message["content"] for message in self._prompt.messages(question)}
        for text in texts.values():
            await self._check(text, WITH_THINKING)
        runs = [await self._run_ids(run) if isinstance(run, str) else [run] for run in fill_slots(self._pieces, texts)]
        return [id for run in runs for id in run]

    async def prefix_ids(self, prefix: str) -> list[int]:
        """Return the beginning of an answer. Tags around thinking keep their tokens, as the model wrote them."""
        assert self._continue is not None
        await self._check(prefix, SPECIAL)
        return await self._continue(prefix) if prefix else []

    async def count(self, text: str) -> int:
        """Return the number of tokens of a generated text."""
        assert self._continue is not None
        return len(await self._continue(text)) if text else 0

    async def _run_ids(self, run: str) -> list[int]:
        """Encode the text between two special tokens. What the template writes itself is encoded once."""
        if run in self._pieces:
            self._own[run] = self._own.get(run) or await self._plain(run)
            return self._own[run]
        return await self._plain(run)

    async def _check(self, text: str, pattern: re.Pattern[str]) -> None:
        """Refuse a text that spells a turn of the template, or a token that the server finds in plain text, too."""
        refuse_markers(self._markers, text)
        names = {id: name for id, name in self._names.items() if pattern is WITH_THINKING or name not in THINKING}
        if not pattern.search(text) and not any(name in text for name in names.values()):
            return
        for id, piece in await self._tokens(text, special=False):
            if id in names or pattern.fullmatch(piece.strip()):
                raise InputError(
                    f"The text contains {piece!r}, which this server reads as a special token. Remove it, or pass the "
                    "folder or hub id of the model's tokenizer: tokenizer=..."
                )

    async def _template_pieces(self, part: str) -> list[int | str | Slot]:
        """A template's own text: plain text at its ends, which is encoded with the messages, and ids between."""
        tokens = [token for token in await self._tokens(part, special=True) if token[1]]
        self._names |= {id: piece.strip() for id, piece in tokens if is_structural(piece)}
        first = await self._first_structural(tokens)
        if first is None:
            return [part]
        last = await self._first_structural(tokens[::-1])
        assert last is not None
        start, end = part.find(first), part.rfind(last) + len(last)
        if start < 0 or end < len(last):
            raise CheckpointError("The server's tokens do not spell its chat template. Pass tokenizer=... instead.")
        inner = [id for id, _ in await self._tokens(part[start:end], special=True)]
        before: list[int | str | Slot] = [part[:start]] if start else []
        return [*before, *inner, *([part[end:]] if end < len(part) else [])]

    async def _first_structural(self, tokens: Sequence[tuple[int, str]]) -> str | None:
        assert self._continue is not None
        for id, piece in tokens:
            if id not in self._structural:
                self._structural[id] = await self._continue(piece) != [id] and len(piece) > 1
            if self._structural[id]:
                return piece
        return None

    async def _opening(self) -> list[int]:
        """The ids that the server puts in front of every prompt."""
        body = {"content": "a", "add_special": True, "parse_special": False}
        added, plain = read_ids(await self._connection.ask("POST", "/tokenize", body)), await self._plain("a")
        at = next((at for at in range(len(added)) if added[at : at + len(plain)] == plain), 0)
        return added[:at]

    async def _render(self, messages: Sequence[Message]) -> str:
        body = {"messages": list(messages), "chat_template_kwargs": DATE}
        try:
            reply = await self._connection.ask("POST", "/apply-template", body)
            return str(reply["prompt"])
        except RejectedError as error:
            system = ' If its template does not know system messages, pass system="".' if self._prompt.system else ""
            raise CheckpointError(f"The server cannot render its chat template: {error}{system}") from error
        except (KeyError, TypeError) as error:
            raise ServiceError("The reply to /apply-template has no prompt. Is it a llama.cpp server?") from error

    async def _plain(self, text: str) -> list[int]:
        return [id for id, _ in await self._tokens(text, special=False)]

    async def _tokens(self, text: str, *, special: bool) -> list[tuple[int, str]]:
        body = {"content": text, "add_special": False, "parse_special": special, "with_pieces": True}
        reply = await self._connection.ask("POST", "/tokenize", body)
        try:
            return [(int(token["id"]), _piece(token["piece"])) for token in reply["tokens"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceError("The reply to /tokenize has no tokens. Is it a llama.cpp server?") from error


def _piece(piece: Any) -> str:
    """The text of a token; empty if it is a part of a character."""
    return piece if isinstance(piece, str) else ""


def read_ids(reply: Any) -> list[int]:
    """Read the reply to /tokenize."""
    try:
        ids = reply["tokens"]
        if not all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in ids):
            raise TypeError("not token ids")
        return list(ids)
    except (KeyError, TypeError) as error:
        raise ServiceError("The reply to /tokenize has no token ids.") from error


async def continuation_of(encode: Tokenize) -> Tokenize:
    """Return a function that encodes text in the middle of another one.

    Tokenizers of the SentencePiece kind put a space in front of every text. With those, a line break is encoded in
    front and taken away again.
    """
    anchor, both, alone = await encode(ANCHOR), await encode(ANCHOR + "a"), await encode("a")
    if both[: len(anchor)] != anchor or both[len(anchor) :] == alone:
        return encode

    async def anchored(text: str) -> list[int]:
        ids = await encode(ANCHOR + text)
        if ids[: len(anchor)] != anchor:
            raise ServiceError("The server's tokenizer joins this text with the one before it. Pass tokenizer=...")
        return ids[len(anchor) :]

    return anchored
