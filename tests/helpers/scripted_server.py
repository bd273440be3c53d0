"""A server on loopback that answers from a script and remembers what it was asked, and scripts in the wire formats of
vLLM, SGLang and OpenAI.

These are no real servers. Fields and end states follow their code, read in these versions:

- vLLM a014e35: `entrypoints/openai/completion/protocol.py` and `serving.py` (choices, `stop_reason`, `token_ids`),
  `v1/engine/detokenizer.py` and `output_processor.py` (stop strings), `v1/engine/parallel_sampling.py` (the seed of
  choice i is `seed + i`), `sampling_params.py` (no `n` above 1 with greedy decoding), `entrypoints/serve/tokenize/`.
- SGLang cce0a12: `srt/entrypoints/openai/protocol.py`, `serving_completions.py`, `serving_chat.py` (`matched_stop`,
  `continue_final_message`) and `serving_tokenize.py`. Until May 2026 its `/tokenize` took no conversations.
- OpenAI: the public reference of chat completions.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request that reached the server."""

    method: str
    path: str
    body: Json
    key: str | None


@dataclass(frozen=True)
class Answer:
    """What the server replies: JSON data, or a text that may be anything."""

    data: Any = None
    status: int = 200
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    drop: bool = False
    """Close the connection without a reply."""


Script = Callable[[Asked], Answer]
NOT_FOUND = Answer({"error": {"message": "Not Found", "type": "NotFoundError", "param": None, "code": 404}}, 404)


class ScriptedServer:
    """The address of a server and what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.url = ""
        self._running = 0
        self._lock = threading.Lock()

    def to(self, path: str) -> list[Asked]:
        """The requests to an endpoint."""
        return [each for each in self.asked if each.path == path]

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            found = self.script(asked)
            time.sleep(found.seconds)
            return found
        finally:
            with self._lock:
                self._running -= 1


@contextmanager
def scripted(script: Script) -> Iterator[ScriptedServer]:
    """Run a server until the block ends."""
    server = ScriptedServer(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            key = self.headers.get("authorization")
            answer = server.answer(Asked(self.command, self.path, json.loads(content or b"{}"), key))
            if answer.drop:
                self.close_connection = True
                return
            body = (json.dumps(answer.data) if answer.text is None else answer.text).encode()
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json" if answer.text is None else "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client has given up

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@dataclass(frozen=True)
class Chain:
    """A model whose next token is one of a few, given the current one. Others go on as `start`."""

    tokenizer: Any
    """A tokenizer of transformers with a chat template."""
    following: Mapping[str, Sequence[str]]
    start: str
    end: str = "<|im_end|>"

    def id(self, text: str) -> int:
        (id,) = self.tokenizer.encode(text, add_special_tokens=False)
        return int(id)

    def write(self, ids: Sequence[int], limit: int, stop: Sequence[str], seed: int) -> tuple[str, str, list[int], Any]:
        """Text, `stop` or `length`, the tokens, and what stopped it: a string, or the end token."""
        choose, table = Random(seed), {self.id(text): options for text, options in self.following.items()}
        last, text = ids[-1], ""
        new: list[int] = []
        while len(new) < limit:
            name = choose.choice(table.get(last, [self.start]))
            last = self.id(name)
            new.append(last)
            if name == self.end:
                return text, "stop", new, last
            text = self.tokenizer.decode(new)
            for each in stop:
                if each in text:
                    return text[: text.index(each)], "stop", new, each
        return text, "length", new, None


def vllm(
    chain: Chain, *, tokenize: bool = True, detokenize: bool = True, token_ids: bool = True, context: int = 200
) -> Script:
    """vLLM's replies. Without `token_ids`, as before it had that field."""

    def script(asked: Asked) -> Answer:
        body = asked.body
        if asked.path == "/v1/models":
            card = {"id": "policy", "object": "model", "owned_by": "vllm", "root": "org/policy", "parent": None}
            return Answer({"object": "list", "data": [card | {"max_model_len": context}]})
        if asked.path == "/tokenize" and tokenize:
            ids = _tokenized(chain, body)
            names = chain.tokenizer.convert_ids_to_tokens(ids) if body.get("return_token_strs") else None
            return Answer({"count": len(ids), "max_model_len": context, "tokens": ids, "token_strs": names})
        if asked.path == "/detokenize" and tokenize and detokenize:
            assert all(isinstance(id, int) for id in body["tokens"])
            return Answer({"prompt": chain.tokenizer.decode(body["tokens"])})
        if asked.path == "/v1/completions":
            if body["n"] > 1 and body["temperature"] == 0:
                return _bad("n must be 1 when using greedy sampling, got 2.")
            if len(body["prompt"]) + body["max_tokens"] > context:
                return _bad(f"This model's maximum context length is {context} tokens.")
            choices, total = [], 0
            for index in range(body["n"]):
                text, finish, new, stop = chain.write(
                    body["prompt"], body["max_tokens"], body.get("stop", []), body["seed"] + index
                )
                reason = stop if isinstance(stop, str) else None  # null at the end-of-turn token
                choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
                given = {"token_ids": new if body.get("return_token_ids") else None} if token_ids else {}
                choices.append(choice | {"stop_reason": reason, "prompt_logprobs": None} | given)
                total += len(new)
            usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": total, "total_tokens": 0}
            return Answer({"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": usage})
        if asked.path == "/v1/chat/completions":
            return _chat(chain, body, "stop_reason")
        return NOT_FOUND

    return script


def sglang(chain: Chain, *, tokenize: bool = True, messages: bool = True, keep_stop: bool = False) -> Script:
    """SGLang's replies. With `keep_stop` the text includes the stop string, as with `no_stop_trim`.

    Without `messages`, `/tokenize` takes plain text only.
    """

    def script(asked: Asked) -> Answer:
        body = asked.body
        if asked.path == "/v1/models":
            card = {"id": "policy", "object": "model", "owned_by": "sglang", "root": "policy", "max_model_len": 200}
            return Answer({"object": "list", "data": [card]})
        if asked.path == "/tokenize" and tokenize:
            if "prompt" not in body and not messages:
                problem = "[{'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}]"
                return Answer({"object": "error", "message": problem, "type": "Bad Request", "code": 400}, 400)
            ids = _tokenized(chain, body)
            return Answer({"tokens": ids, "count": len(ids), "max_model_len": 200})
        if asked.path == "/detokenize" and tokenize:
            lists, hidden = body["tokens"], body.get("skip_special_tokens", True)
            return Answer({"text": [chain.tokenizer.decode(ids, skip_special_tokens=hidden) for ids in lists]})
        if asked.path == "/v1/completions":
            if body["top_k"] == 0 or body["n"] != 1:
                return Answer({"object": "error", "message": "top_k must be -1 or at least 1", "code": 400}, 400)
            text, finish, new, stop = chain.write(
                body["prompt"], body["max_tokens"], body.get("stop", []), body["seed"]
            )
            text += stop if keep_stop and isinstance(stop, str) else ""
            choice = {"index": 0, "text": text, "finish_reason": finish, "matched_stop": stop, "token_ids": new}
            usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(new)}
            return Answer({"id": "1", "object": "text_completion", "choices": [choice], "usage": usage})
        if asked.path == "/v1/chat/completions":
            return _chat(chain, body, "matched_stop")
        return NOT_FOUND

    return script


def openai(chain: Chain, *, usage: bool = True, reasoning: bool = False) -> Script:
    """OpenAI's replies. With `reasoning`, as its reasoning models, which know the limit by another name."""

    def script(asked: Asked) -> Answer:
        body = asked.body
        if asked.path == "/v1/models":
            cards = [{"id": name, "object": "model", "owned_by": "system"} for name in ("policy", "other")]
            return Answer({"object": "list", "data": cards})
        if asked.path != "/v1/chat/completions":
            return NOT_FOUND
        if reasoning and "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens' is not supported with this model. "
            return _bad(message + "Use 'max_completion_tokens' instead.")
        reply = _chat(chain, body | {"max_tokens": body.get("max_tokens") or body.get("max_completion_tokens")}, None)
        if not usage:
            del reply.data["usage"]
        return reply

    return script


def _bad(message: str) -> Answer:
    return Answer({"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}, 400)


def _tokenized(chain: Chain, body: Json) -> list[int]:
    """As the servers do: special tokens in a text become such."""
    if "messages" in body:
        ids = chain.tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=False)
    else:
        ids = chain.tokenizer.encode(body["prompt"], add_special_tokens=body.get("add_special_tokens", True))
    return list(ids)


def _chat(chain: Chain, body: Json, stop_field: str | None) -> Answer:
    """A chat completion. SGLang encodes the beginning of an answer on its own and keeps its white space."""
    messages, prefix = list(body["messages"]), ""
    if body.get("continue_final_message"):
        prefix = messages.pop()["content"]
    ids = _tokenized(chain, {"messages": messages})
    ids += chain.tokenizer.encode(prefix, add_special_tokens=False)
    choices, total = [], 0
    for index in range(body["n"]):
        text, finish, new, stop = chain.write(ids, body["max_tokens"], body.get("stop", []), body["seed"] + index)
        choice: Json = {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        choices.append(choice if stop_field is None else choice | {stop_field: stop})
        total += len(new)
    usage = {"prompt_tokens": len(ids), "completion_tokens": total, "total_tokens": len(ids) + total}
    return Answer({"id": "chat-1", "object": "chat.completion", "choices": choices, "usage": usage})
