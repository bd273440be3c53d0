"""Forward passes: prompts in, scores at their read positions out.

A prompt's scores do not depend on the other prompts of the call, except for rounding. There is one forward pass per
pack. Hidden states are read as soon as a pack has run, and only the keys and values that the next pack inherits are
kept. Concurrent calls take turns, pack by pack. A runner works only in the process that created it: see `forks`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core.prompt import Prompt
from surefoot.engine import attention
from surefoot.engine.forks import check_process
from surefoot.engine.results import PackResult, PackResults, collect, without_reads
from surefoot.engine.segments import divide
from surefoot.engine.thread_limit import ThreadLimit
from surefoot.engine.trie import Indices, Pack, build_trie
from surefoot.engine.unread_rows import leave_out_unread_rows, reading_only
from surefoot.errors import CheckpointError, SurefootError

logger = logging.getLogger("surefoot")

Head = Callable[[Tensor, Tensor | None], Tensor]
"""Maps float32 hidden states, one per row, to one score or one row of numbers each. The second argument holds the
vocabulary ids whose log-probabilities are read, or is None."""

SMALLEST_BUDGET = 16
CPU_BUDGET = 512
FAST_CPU_BUDGET = 1024
"""In half precision and in 8 bits, products are fastest with more rows."""
DENSE_BUDGET = 4096
LARGEST_BUDGET = 8192
WIDTH_STEP = 128
MIN_ROWS = 16
"""With fewer rows, MKL divides a matrix product among threads in a way that changes its rounding."""


class Runner:
    """A backbone that runs packs of at most `budget` tokens, fewer if memory does not suffice."""

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        *,
        device: torch.device,
        dtype: torch.dtype,
        attention_name: str,
        compile: bool = False,
        budget: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.backbone = backbone
        self.head = head
        self.attention = attention_name
        self.lock = threading.RLock()
        """Held during a pack. The buffer for keys and values belongs to the pack that is being computed."""
        self._process = os.getpid()
        self._threads = ThreadLimit(threads)
        self._embedding = backbone.get_submodule("embed_tokens")
        if not compile:
            leave_out_unread_rows(backbone)
        self._compile = compile
        self._compiled: Callable[..., Any] | None = None
        self._buffer = self.new_buffer(0)
        self.budget = budget or self._budget()

    def check_process(self) -> None:
        """Raise an error in a forked child, in which computing would wait forever."""
        check_process(self._process)

    def scores(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """Compute the scores at each prompt's reads, on the CPU in float32: one number or one row of numbers per read.

        Prompts without reads get an empty tensor.
        """
        return collect(self.packs(prompts))

    @torch.inference_mode()
    def packs(self, prompts: Sequence[Prompt]) -> PackResults:
        """Compute prompts like `scores`, and yield after each pack.

        Between packs nothing is locked, so other calls may run. Closing the generator cancels the rest.
        """
        self.check_process()
        yield from without_reads(prompts)
        waiting = [number for number, prompt in enumerate(prompts) if prompt.reads]
        while waiting:
            completed: set[int] = set()
            for result in self._run_trie([prompts[number] for number in waiting]):
                rows = tuple((waiting[at], row) for at, row in result.completed)
                completed.update(number for number, _ in rows)
                yield PackResult(result.tokens, rows)
            # If memory ran out, prompts are left over, and the budget is smaller now.
            waiting = [number for number in waiting if number not in completed]

    def _run_trie(self, prompts: Sequence[Prompt]) -> PackResults:
        """Compute prompts that have reads. Ends early if memory does not suffice for a pack."""
        with self.lock:
            self._compile_if_requested()
        trie = build_trie(prompts, self.budget, fixed_size=self._compiled is not None)
        read_keys = np.unique(np.concatenate(trie.read_keys))
        last_reads = np.array([tokens.max() for tokens in trie.reads])
        order = np.argsort(last_reads)
        single_read = len(trie.ids) == len(prompts[0].ids) and len(prompts[0].reads) == 1
        # Packs read in the order of the trie, so their scores are in the order of the sorted read keys.
        scores = torch.empty(0, device="cpu")
        read = completed = 0
        inherited: Tensor | None = None
        for pack in trie.packs():
            computed = self.run(pack, inherited)
            if computed is None:
                return
            own, inherited = computed
            if len(own):
                scores = scores if read else own.new_empty(len(read_keys), *own.shape[1:])
                scores[read : read + len(own)] = own
                read += len(own)
            before, completed = completed, int(np.searchsorted(last_reads, int(pack.keys[-1]) + 1, sorter=order))
            rows: list[tuple[int, Tensor]] = []
            for at in order[before:completed].tolist():
                row = scores[np.searchsorted(read_keys, trie.read_keys[at])]
                if not single_read:
                    yield from self._recompute_non_finite(prompts[at], row)
                rows.append((at, row))
            yield PackResult(len(pack.ids), tuple(rows))

    def _recompute_non_finite(self, prompt: Prompt, scores: Tensor) -> PackResults:
        """Replace scores that are not finite by what the model computes for that read alone.

        A non-finite value spreads to every token of its pack: masked attention weights are 0, and 0 times infinity is
        not 0. Only a step that fails by itself may be reported as not finite.
        """
        finite = scores.isfinite().reshape(len(scores), -1).all(1)
        for index in (~finite).nonzero().flatten().tolist():
            end = prompt.reads[index] + 1
            for result in self.packs([Prompt(prompt.ids[:end], (end - 1,), 0, prompt.targets[index : index + 1])]):
                for _, alone in result.completed:
                    scores[index] = alone[0]
                yield PackResult(result.tokens)

    @torch.inference_mode()
    def run(self, pack: Pack, inherited: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Run one forward pass, given the keys and values that the pack inherits.

        Returns the scores at the pack's reads, and its kept keys and values: [layer, key or value, head, token, size].
        Returns None if memory did not suffice; the budget is then halved.
        """
        rows = self._embedding.get_parameter("weight").shape[0]
        if (largest := int(pack.ids.max())) >= rows:  # on CUDA this would end the process
            raise CheckpointError(
                f"The tokenizer produced token {largest}, but the model has only {rows} embeddings. They do not belong "
                "together."
            )
        with self.lock:
            try:
                with self._limited_threads():
                    return self._forward(pack, inherited)
            except torch.OutOfMemoryError as error:
                problem = str(error)
            # Outside the handler, whose traceback would keep the tensors of the failed pass alive.
            self._shrink(len(pack.ids), problem)
        return None

    def _limited_threads(self) -> AbstractContextManager[object]:
        """A compiled pass is compiled again for another number of threads, so theirs is constant."""
        return self._threads.applied(adapt=self._compiled is None) if self.device.type == "cpu" else nullcontext()

    def _forward(self, pack: Pack, inherited: Tensor | None) -> tuple[Tensor, Tensor]:
        tokens = len(pack.ids)
        fixed = self._compiled is not None and tokens == self.budget
        # Few widths mean few recompilations. No token attends to the gap between the inherited and the pack's own keys.
        columns = -(-pack.inherited // WIDTH_STEP) * WIDTH_STEP if fixed else pack.inherited
        keys_values = self._reserve(columns + tokens)
        keys_values[:, :, :, pack.inherited : columns] = 0
        if inherited is not None:
            keys_values[:, :, :, : pack.inherited] = inherited
        forward = self._compiled if fixed and self._compiled is not None else self.backbone
        rows = self._repeated(np.searchsorted(pack.queries, pack.reads))
        # A trainer's autocast must not change the precision that the model was loaded with.
        with torch.autocast(self.device.type, enabled=False), reading_only(rows):
            states = forward(
                inputs_embeds=self._embedding(self._tensor(pack.ids))[None].to(self.dtype),
                position_ids=self._tensor(pack.positions)[None],
                use_cache=False,
                keys_values=keys_values,
                **self._mask(pack, tokens, columns, fixed=fixed),
            ).last_hidden_state[0]
            scores = self._read(pack, states, rows)
        kept = self._tensor(np.where(pack.kept < pack.inherited, pack.kept, pack.kept - pack.inherited + columns))
        return scores, keys_values[:, :, :, kept]

    def _read(self, pack: Pack, states: Tensor, rows: Tensor) -> Tensor:
        """Apply the head at the pack's reads."""
        if not len(rows):
            return torch.empty(0, device="cpu")
        targets = self._repeated(pack.targets) if (pack.targets >= 0).any() else None
        return self.head(states[rows].float(), targets)[: len(pack.reads)].cpu()

    def _repeated(self, per_read: Indices) -> Tensor:
        """Repeat the last element if there are few: on a CPU, products of few rows are rounded differently."""
        extra = MIN_ROWS - len(per_read) if 0 < len(per_read) < MIN_ROWS and self.device.type == "cpu" else 0
        return self._tensor(np.pad(per_read, (0, extra), "edge"))

    def _tensor(self, indices: Indices) -> Tensor:
        return torch.from_numpy(indices).to(self.device)

    def _mask(self, pack: Pack, rows: int, columns: int, *, fixed: bool) -> dict[str, Any]:
        if self.attention == "sdpa" and self.device.type == "cpu" and not fixed:
            return {"segments": divide(pack, self.dtype)}
        if self.attention in ("sdpa", "eager"):
            return {"attention_mask": attention.dense_mask(pack, rows, columns, self.dtype, self.device)}
        starts = attention.sequence_starts(pack) if self.attention == "flash_attention_2" else None
        if starts is not None:
            return {"sequence_starts": starts.to(self.device), "longest": int(starts.diff().max())}
        return {"attention_mask": attention.block_mask(pack, rows, columns, self.device)}

    def _compile_if_requested(self) -> None:
        if self._compile and self._compiled is None:
            logger.warning("Compiling the forward pass. This takes about a minute, once.")
            self._compiled = torch.compile(self.backbone)

    @property
    def token_bytes(self) -> int:
        """The memory that the keys and values of one token take."""
        one = self.new_buffer(1)
        return one.numel() * one.element_size()

    def new_buffer(self, tokens: int) -> Tensor:
        """Allocate keys and values for `tokens` tokens: [layer, key or value, head, token, size]."""
        config: Any = self.backbone.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, tokens, size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _reserve(self, tokens: int) -> Tensor:
        """A view of the key-value buffer with room for `tokens` tokens."""
        if self._buffer.shape[3] < tokens:
            self._buffer = self.new_buffer(0)  # release the old one first
            self._buffer = self.new_buffer(-(-tokens // 256) * 256)
        return self._buffer[:, :, :, :tokens]

    def _shrink(self, tokens: int, problem: str) -> None:
        self._buffer = self.new_buffer(0)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if tokens > self.budget:
            return  # the budget has shrunk since this pack was cut, because another call ran out of memory
        if self.budget <= SMALLEST_BUDGET:
            raise SurefootError(
                f"Not even a pack of {tokens} tokens fits into memory ({problem}). Lower `max_tokens`, load the model "
                'with quantize="nf4", or free memory on the device.'
            )
        self.budget = max(SMALLEST_BUDGET, self.budget // 2)
        logger.warning(
            "Out of memory with %d tokens in a pack; continuing with at most %d tokens per pack.", tokens, self.budget
        )

    def _budget(self) -> int:
        """How many tokens a pack may hold.

        On the CPU, matrix products are fastest at a few hundred rows, and a dense mask grows quadratically. On CUDA a
        quarter of the free memory is available for a pack's activations and its keys and values.
        """
        if self.device.type != "cuda":
            return CPU_BUDGET if self.dtype == torch.float32 else FAST_CPU_BUDGET
        config: Any = self.backbone.config
        free, _ = torch.cuda.mem_get_info(self.device)
        activations = self.dtype.itemsize * (8 * config.hidden_size + 3 * config.intermediate_size)
        largest = DENSE_BUDGET if self.attention in ("sdpa", "eager") else LARGEST_BUDGET
        return int(min(largest, max(CPU_BUDGET, free // 4 // (activations + self.token_bytes))))
