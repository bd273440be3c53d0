"""A vLLM server as the engine of a scorer.

The rule: splitting, rendering and reporting happen here; vLLM is sent token ids, so no text can spell a marker, and
gives back two classes a marker, which have to be as many as there are steps. What it computes is vLLM's: its scores
move a little with the make-up of its batches (about 0.01 in bfloat16), and tokens are not shared.

Start the server with: python -m vllm.entrypoints.openai.api_server --model MODEL --runner pooling
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from surefoot.client.transport import Transport
from surefoot.core.prompt import Prompt
from surefoot.errors import OptionError, ServiceError
from surefoot.scoring.loading import with_engine
from surefoot.scoring.scorer import Scorer

PART_TOKENS = 32_768
"""Tokens of one request to vLLM, at most, unless a single prompt has more."""


def scorer_on_vllm(
    url: str,
    model: str | Path,
    *,
    served_name: str | None = None,
    api_key: str | None = None,
    max_tokens: int | None = None,
    timeout: float = 600.0,
    patience: float = 60.0,
) -> Scorer:
    """A scorer with all its verbs but `session`, whose numbers come from the vLLM server at `url`.

    `model` is the folder or hub id with the tokenizer; its weights are not read. `served_name` is the name under which
    vLLM serves the model, where it serves several.
    """
    transport = Transport(url, api_key=api_key, timeout=timeout, patience=patience, connections=4)
    served, limit = _served(transport, served_name)
    scorer = with_engine(
        model,
        VllmEngine(transport, served),
        identity=f"{url} {served} {model}",
        max_tokens=min(limit, max_tokens or limit),
    )
    if scorer.family.name != "qwen":
        raise OptionError(f"vLLM reads steps of Qwen's PRMs only, and this one is of the family {scorer.family.name}.")
    return scorer


class VllmEngine:
    """Scores of prompts, from vLLM's `/pooling`."""

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport = transport
        self._model = model

    def scores(self, prompts: Sequence[Prompt], done: Callable[[int], None] | None = None) -> list[torch.Tensor]:
        """For each prompt the scores at its reads."""
        rows = [torch.empty(0) for _ in prompts]
        for part in _parts(prompts):
            for place, row in zip(part, self._pooled([prompts[place] for place in part]), strict=True):
                rows[place] = row
            if done is not None:
                done(len(part))
        return rows

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
            raise ServiceError("vLLM's answer does not hold two classes a step. Is it serving a PRM?") from error
        if [len(row) for row in rows] != [len(prompt.reads) for prompt in prompts]:
            raise ServiceError("vLLM gave another number of scores than there are steps. Is it serving this model?")
        return rows


def _served(transport: Transport, name: str | None) -> tuple[str, int]:
    """The name and the longest prompt of the model that vLLM serves."""
    reply = transport.ask("GET", "/v1/models")
    try:
        limits: dict[str, Any] = {card["id"]: card["max_model_len"] for card in reply["data"]}
    except (KeyError, TypeError) as error:
        raise ServiceError("The server's list of models cannot be read. Is it vLLM?") from error
    if name is None and len(limits) == 1:
        name = next(iter(limits))
    if name not in limits:
        raise OptionError(
            f"The server has {', '.join(limits) or 'no models'}. Name one with served_name, or start it with one name."
        )
    return name, int(limits[name])


def _parts(prompts: Sequence[Prompt]) -> Iterator[list[int]]:
    """The places of prompts that have something to read, so many at a time."""
    part: list[int] = []
    tokens = 0
    for place, prompt in enumerate(prompts):
        if not prompt.reads:
            continue
        if part and tokens + len(prompt.ids) > PART_TOKENS:
            yield part
            part, tokens = [], 0
        part.append(place)
        tokens += len(prompt.ids)
    if part:
        yield part
