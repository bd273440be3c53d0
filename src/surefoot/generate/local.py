"""A generator that runs a causal language model in this process, through transformers.

Invariant: a continuation depends on its request and its seed, not on the requests that are in the same batch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path

from surefoot.core.generation import Continuation, Generation, GenerationRequest, failed
from surefoot.core.options import Quantization
from surefoot.data.files import hash_file
from surefoot.engine.quantization import computation
from surefoot.errors import CheckpointError, OptionError, SurefootError
from surefoot.generate.chat_prompt import DEFAULT_SYSTEM, PLACE, ChatPrompt
from surefoot.generate.labels import label_ids
from surefoot.generate.local_batching import BatchWorker, Inbox, describe, group_sequences
from surefoot.generate.local_decoding import Decoder, RunningBatch, SequenceRequest
from surefoot.generate.local_model import LoadedModel, find_model_folder, load_model, weight_files
from surefoot.generate.local_text import TextStream
from surefoot.generate.prompt_encoder import PromptEncoder, find_tokenizer_folder
from surefoot.tokenization.settings import TokenizerSettings, read_tokenizer_settings
from surefoot.tokenization.tokenizer import PromptTokenizer

logger = logging.getLogger("surefoot")

JOIN_PART = 8
"""Sequences join a running batch when there is room for this part of the largest one."""
TOKENIZER_FILES = ("*token*.json", "*.model", "*.tiktoken", "vocab.json", "vocab.txt", "merges.txt", "*.jinja")


class LocalGenerator:
    """Continues solutions with a language model in this process. `model` is a folder or a hub id.

        generator = LocalGenerator("Qwen/Qwen2.5-Math-1.5B-Instruct", max_batch=64)
        generation = await generator.generate(GenerationRequest("What is 2 + 3?", n=4, step_end="\\n\\n"))

    Up to `max_batch` sequences are decoded at a time; those of new requests take the place of finished ones. `quantize`
    is `int8` (faster on CPUs) or `nf4` (a quarter of the memory of bfloat16). Only the request's `Sampling` decides how
    tokens are chosen; the penalties and defaults in generation_config.json are not used. Special tokens have no text,
    except those that end the answer.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        system: str | None = DEFAULT_SYSTEM,
        prompt: str = PLACE,
        device: str = "auto",
        dtype: str = "auto",
        quantize: Quantization | None = None,
        revision: str | None = None,
        max_batch: int = 32,
        tokenizer: str | Path | None = None,
    ) -> None:
        if max_batch < 1:
            raise OptionError(f"max_batch={max_batch}: pass a number above 0.")
        self._prompt = ChatPrompt(system, prompt)
        folder = find_model_folder(model, revision)
        self._tokenizer_folder = folder if tokenizer is None else find_tokenizer_folder(tokenizer)
        self._name = folder.resolve().name if Path(model).expanduser().is_dir() else str(model)
        try:
            self._encoder = PromptEncoder.from_folder(self._tokenizer_folder, self._prompt)
        except CheckpointError as error:
            raise CheckpointError(f"{self._tokenizer_folder}: {error}") from error
        self._files = {file: _status(file) for file in _text_files(folder, self._tokenizer_folder)}
        self._loaded = load_model(folder, device=device, dtype=dtype, quantize=quantize)
        self._quantize: Quantization | None = quantize
        self._max_batch = max_batch if self._loaded.pads else 1
        settings = read_tokenizer_settings(self._tokenizer_folder)
        self._decoder = _decoder(self._loaded, self._encoder, settings, self._tokenizer_folder)
        self._worker = BatchWorker(self._run)

    def __repr__(self) -> str:
        return f"<surefoot.LocalGenerator {self.name} on {self._loaded.device}>"

    @property
    def name(self) -> str:
        """The name of the folder, or the hub id."""
        return self._name

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the weights, the config, the tokenizer, the prompt and the precision. It reads all weights once."""
        digest = sha256()
        settings = asdict(self._prompt) | {
            "dtype": str(self._loaded.dtype),
            "computation": computation(self._quantize, self._loaded.device),
        }
        parts = [json.dumps(settings, sort_keys=True)]
        for file, status in self._files.items():
            if _status(file) != status:
                raise CheckpointError(f"{file} changed after the model was loaded. Load the model again.")
            parts += [file.name, _hash(file, *status)]
        for part in map(str.encode, parts):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    @property
    def continues(self) -> bool:
        """True: a model in this process continues any prefix."""
        return True

    @property
    def reads_labels(self) -> bool:
        """True: the probability of every token is known."""
        return True

    @property
    def prompt(self) -> ChatPrompt:
        """What is put around a question."""
        return self._prompt

    @property
    def tokenizer(self) -> PromptTokenizer:
        """The model's tokenizer."""
        return self._encoder.tokenizer

    async def check(self) -> None:
        """Raise if a prompt cannot be encoded or leaves no room for an answer."""
        prompt = await asyncio.to_thread(self._encoder.prompt_ids, "What is 2 + 3?")
        if problem := self._problem(prompt):
            raise OptionError(problem)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue a solution, in a batch with other requests that wait."""
        return await asyncio.wrap_future(self._worker.submit(request))

    async def close(self) -> None:
        """Stop the thread that runs the model. Requests that are not complete fail."""
        await asyncio.to_thread(self._worker.close)

    def _run(self, inbox: Inbox) -> Iterator[tuple[int, Generation]]:
        """Decode all continuations, and those of requests that arrive meanwhile."""
        batch, waiting = RunningBatch(self._decoder), deque[SequenceRequest]()
        done: dict[int, dict[int, Continuation]] = {}
        while True:
            for number, request in inbox.new():
                prompt, labels, problem = self._encode(request)
                if prompt and request.prefix and not labels and self._decoder.room(prompt) == 0:
                    full = (Continuation("", "cut_off", 0, request.seed_of(index)) for index in range(request.n))
                    yield number, Generation(tuple(full), 0, 0)
                elif problem is None:
                    waiting += [SequenceRequest(prompt, request, index, number, labels) for index in range(request.n)]
                else:
                    yield number, failed(request, problem)
            if not waiting and not batch:
                return
            for each, continuation in self._advance(batch, waiting, inbox.is_over):
                found = done.setdefault(each.owner, {})
                found[each.index] = continuation
                if inbox.is_over(each.owner):
                    del done[each.owner]
                elif len(found) == each.request.n:
                    del done[each.owner]
                    ordered = tuple(found[index] for index in range(each.request.n))
                    yield each.owner, Generation(ordered, len(each.prompt), each.request.n)

    def _advance(
        self, batch: RunningBatch, waiting: deque[SequenceRequest], is_over: Callable[[int], bool]
    ) -> list[tuple[SequenceRequest, Continuation]]:
        """Let sequences join the batch and compute one token of each. Return those that are finished.

        If that fails, each of the sequences is decoded alone, so that one does not fail the others.
        """
        batch.stop(is_over)
        room, joining = self._max_batch - len(batch), list[SequenceRequest]()
        # Joining copies the cache of the others, so a few sequences wait for more.
        if batch.is_open and (not batch or room >= max(1, self._max_batch // JOIN_PART)):
            while waiting and len(joining) < room:
                if not is_over((each := waiting.popleft()).owner):
                    joining.append(each)
        stranded: list[SequenceRequest] = []
        groups = deque(group_sequences(joining, self._max_batch))
        try:
            while groups and batch.is_open:
                batch.add(groups[0])
                groups.popleft()
            batch.step()
        except BaseException as error:  # a crash inside tokenizers is not an Exception
            logger.warning("A batch failed (%s). Its sequences are decoded alone.", describe(error))
            stranded = [*batch.abandon(), *(groups.popleft() if groups else ())]
        waiting.extendleft(each for group in reversed(groups) for each in reversed(group))
        return [*batch.collect(), *((each, self._alone(each, is_over)) for each in stranded)]

    def _alone(self, wanted: SequenceRequest, is_over: Callable[[int], bool]) -> Continuation:
        """Decode one sequence from its beginning."""
        batch = RunningBatch(self._decoder)
        try:
            batch.add([wanted])
            while batch:
                batch.stop(is_over)
                batch.step()
        except BaseException as error:
            return Continuation("", "error", 0, wanted.request.seed_of(wanted.index), describe(error))
        ((_, continuation),) = batch.collect()
        return continuation

    def _encode(self, request: GenerationRequest) -> tuple[tuple[int, ...], tuple[int, ...], str | None]:
        """The prompt of a request, its labels, and why it cannot be used."""
        try:
            start = request.prompt_ids
            start = tuple(self._encoder.prompt_ids(request.question)) if start is None else start
            prompt = (*start, *self._encoder.prefix_ids(request.prefix))
            labels = label_ids(request.labels, self._encoder.tokenizer.encode_continuation(*request.labels))
        except SurefootError as error:
            return (), (), str(error)
        except BaseException as error:  # a crash inside tokenizers is not an Exception
            return (), (), describe(error)
        if not prompt:
            return (), (), "The chat template writes nothing, so there is no prompt."
        return prompt, labels, self._problem(prompt)

    def _problem(self, prompt: Sequence[int]) -> str | None:
        """Why the model cannot continue a prompt."""
        if self._decoder.room(prompt) == 0:
            context = self._decoder.context
            return (
                f"The prompt has {len(prompt)} tokens, so the model's context of {context} has no room for an answer."
            )
        if self._loaded.vocabulary is not None and max(prompt) >= self._loaded.vocabulary:
            return "The prompt has tokens that the model does not know. Use the tokenizer of this model."
        return None


def _text_files(folder: Path, tokenizer: Path) -> list[Path]:
    """The files that decide the text."""
    named = [folder / name for name in ("config.json", "generation_config.json")]
    found = {file for pattern in TOKENIZER_FILES for file in tokenizer.glob(pattern)}
    return [file for file in [*weight_files(folder), *named, *sorted(found)] if file.is_file()]


def _decoder(loaded: LoadedModel, encoder: PromptEncoder, settings: TokenizerSettings, folder: Path) -> Decoder:
    tokenizer = encoder.tokenizer
    named = tokenizer.special_tokens.get(settings.eos_token or "")
    ends = loaded.end_ids if named is None else loaded.end_ids | {named}
    if not ends:
        raise CheckpointError(
            f"{loaded.folder} names no end-of-turn token, so no answer would ever be complete. Add eos_token_id to its "
            "generation_config.json."
        )
    (anchor,) = tokenizer.encode_continuation(".")
    return Decoder(
        model=loaded.model,
        device=loaded.device,
        stream=partial(TextStream, tokenizer.decode, anchor[-1]),
        ends=ends,
        hidden=_special_ids(folder, tokenizer),
        context=loaded.context,
    )


def _special_ids(folder: Path, tokenizer: PromptTokenizer) -> frozenset[int]:
    """The added tokens that tokenizer.json marks as special. The others, such as `<think>`, are text."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return tokenizer.special_ids
    added = json.loads(file.read_text(encoding="utf-8"))["added_tokens"]
    return frozenset(token["id"] for token in added if token.get("special"))


def _status(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=256)
def _hash(file: Path, size: int, mtime: int) -> str:
    """The hash of a file, computed once while its size and time of change stay the same."""
    return hash_file(file)
