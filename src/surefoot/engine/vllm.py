"""A vLLM server as an engine: token ids go out, scores come back.

vLLM receives token ids, so no text can spell a marker, and must return two classes per marker. Its scores vary slightly
with the composition of its batches (about 0.01 in bfloat16), and it computes shared tokens more than once.

Start the server with: python -m vllm.entrypoints.openai.api_server --model MODEL --runner pooling
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.client.transport import Transport
from surefoot.core.prompt import Prompt
from surefoot.data.batching import bounded_batches
from surefoot.engine.results import PackResult, PackResults, without_reads
from surefoot.errors import OptionError, ServiceError

PART_TOKENS = 32_768
"""The maximum number of tokens per request to vLLM, unless a single prompt has more."""


class VllmEngine:
    """Computes prompts with vLLM's `/pooling` endpoint."""

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport = transport
        self._model = model

    def packs(self, prompts: Sequence[Prompt]) -> PackResults:
        """Compute the scores at the reads of each prompt, and yield after each request to vLLM."""
        yield from without_reads(prompts)
        readable = [at for at, prompt in enumerate(prompts) if prompt.reads]
        for part in bounded_batches(readable, lambda at: len(prompts[at].ids), max_weight=PART_TOKENS):
            rows = self._pooled([prompts[index] for index in part])
            tokens = sum(len(prompts[index].ids) for index in part)
            yield PackResult(tokens, tuple(zip(part, rows, strict=True)))

    def _pooled(self, prompts: list[Prompt]) -> list[torch.Tensor]:
        body = {
            "model": self._model,
            "input": [list(prompt.ids) for prompt in prompts],
            "task": "token_classify",
            "encoding_format": "float",
        }
        reply = self._transport.ask("POST", "/pooling", body)
        try:
            data = sorted(reply["data"], key=lambda row: row["index"])
            rows = [torch.tensor(row["data"], dtype=torch.float32).reshape(-1, 2)[:, 1] for row in data]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ServiceError("vLLM's reply does not have two classes per step. Does it serve a PRM?") from error
        if [len(row) for row in rows] != [len(prompt.reads) for prompt in prompts]:
            raise ServiceError(
                "vLLM returned a different number of scores than there are steps. Does it serve this model?"
            )
        return rows


@dataclass(frozen=True)
class ServedModel:
    """A model that a vLLM server offers."""

    name: str
    path: str
    """The folder or hub id that the server loaded, as the server sees it."""
    max_tokens: int


def served_model(transport: Transport, name: str | None = None) -> ServedModel:
    """Ask a vLLM server for its model; `name` chooses one of several."""
    reply = transport.ask("GET", "/v1/models")
    try:
        cards: dict[str, Any] = {card["id"]: card for card in reply["data"]}
        limits = {name: int(card["max_model_len"]) for name, card in cards.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError("The server's list of models cannot be read. Is it a vLLM server?") from error
    if name is None and len(cards) == 1:
        name = next(iter(cards))
    if name is None or name not in cards:
        raise OptionError(
            f"The server offers {', '.join(cards) or 'no models'}. Choose one with `served_name`, or serve only one."
        )
    return ServedModel(name, str(cards[name].get("root") or name), limits[name])
