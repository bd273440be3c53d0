"""Forward passes: prompts in, scores at their read positions out.

The rule: what else is in the call does not change a prompt's scores beyond rounding. One forward pass a pack; hidden
states are read as soon as a pack is done, and only the keys and values live on that the next pack inherits; no logits
over the vocabulary are made here. A runner serves one caller at a time: threads wait for each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.core.prompt import Prompt
from surefoot.engine import attention
from surefoot.engine.trie import Indices, Pack, build_trie
from surefoot.errors import CheckpointError, SurefootError

logger = logging.getLogger("surefoot")

Read = Callable[[Tensor, Tensor | None], Tensor]
"""From float32 hidden states, one row each, to one score or one row of numbers each. The second argument are the
vocabulary ids that the reads ask for, if they ask for any."""

SMALLEST_BUDGET = 16
CPU_BUDGET = 512
DENSE_BUDGET = 4096
LARGEST_BUDGET = 8192
WIDTH_STEP = 128
COMPILE_TOKENS = 60_000


class Runner:
    """A backbone that runs packs of at most `budget` tokens, fewer where memory does not suffice."""

    def __init__(
        self,
        backbone: nn.Module,
        read: Read,
        *,
        device: torch.device,
        dtype: torch.dtype,
        attention_name: str,
        compile: bool | Literal["auto"] = False,
        budget: int | None = None,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.backbone = backbone
        self.attention = attention_name
        self.lock = threading.RLock()
        self._read = read
        self._embedding = backbone.get_submodule("embed_tokens")
        self._compile = compile
        self._compiled: Callable[..., Any] | None = None
        self._buffer = self.new_buffer(0)
        self.budget = budget or self._budget()

    @torch.inference_mode()
    def scores(self, prompts: Sequence[Prompt], done: Callable[[int], None] | None = None) -> list[Tensor]:
        """For each prompt the scores at its reads, on the CPU in float32: one number a read, or one row of numbers.

        `done` is told, after every pack, for how many more prompts all reads are there.
        """
        found: list[Tensor | None] = [None if prompt.reads else torch.empty(0, device="cpu") for prompt in prompts]
        with self.lock:
            while waiting := [number for number, row in enumerate(found) if row is None]:
                rows = self._run_trie([prompts[number] for number in waiting], done or (lambda count: None))
                for number, row in zip(waiting, rows, strict=True):
                    found[number] = row
        return [row for row in found if row is not None]

    def _run_trie(self, prompts: Sequence[Prompt], done: Callable[[int], None]) -> list[Tensor | None]:
        """The scores of every prompt, or of those that were finished when memory ran out."""
        self._compile_if_it_pays(prompts)
        trie = build_trie(prompts, self.budget, fill=self._compiled is not None)
        asks = np.unique(np.concatenate(trie.asks))
        last_reads = np.sort([tokens.max() for tokens in trie.reads])
        found = [torch.empty(0, device="cpu")]
        inherited: Tensor | None = None
        finished = computed = 0
        for pack in trie.packs():
            ran = self.run(pack, inherited)
            if ran is None:
                break
            own, inherited = ran
            if len(own):
                found.append(own)
            computed = int(pack.keys[-1]) + 1
            before, finished = finished, int(np.searchsorted(last_reads, computed))
            done(finished - before)
        # Packs read in the order of the trie, so what they found stands in the order of what was asked.
        scores = torch.cat(found[1:] or found)
        rows = [
            scores[np.searchsorted(asks, own)] if tokens.max() < computed else None
            for own, tokens in zip(trie.asks, trie.reads, strict=True)
        ]
        if len(trie.ids) > len(prompts[0].ids) or len(prompts[0].reads) > 1:
            for prompt, row in zip(prompts, rows, strict=True):
                self._read_again_alone(prompt, row)
        return rows

    def _read_again_alone(self, prompt: Prompt, scores: Tensor | None) -> None:
        """Replaces scores that are not finite by what the model gives for that step and no other.

        A number that is not finite spreads to every token of its pack: attention weighs what must not be seen with 0,
        and 0 times infinity is not 0. Only a step that fails by itself may be told so.
        """
        if scores is None:
            return
        finite = scores.isfinite().reshape(len(scores), -1).all(1)
        for place in (~finite).nonzero().flatten().tolist():
            end = prompt.reads[place] + 1
            (alone,) = self.scores([Prompt(prompt.ids[:end], (end - 1,), 0, prompt.targets[place : place + 1])])
            scores[place] = alone[0]

    @torch.inference_mode()
    def run(self, pack: Pack, inherited: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """One forward pass, given the keys and values that the pack inherits.

        Gives the scores at the pack's reads, and the keys and values that it is to keep:
        [layer, key or value, head, token, size]. Gives nothing when memory did not suffice; the budget is then halved.
        """
        rows = self._embedding.get_parameter("weight").shape[0]
        if (largest := int(pack.ids.max())) >= rows:  # on CUDA it would end the process
            raise CheckpointError(
                f"The tokenizer gives token {largest}, and the model knows {rows}. They do not belong together."
            )
        try:
            return self._forward(pack, inherited)
        except torch.OutOfMemoryError as error:
            problem = str(error)
        # Outside of the handler, whose traceback would keep the failed pass's tensors alive.
        self._shrink(len(pack.ids), problem)
        return None

    def _forward(self, pack: Pack, inherited: Tensor | None) -> tuple[Tensor, Tensor]:
        tokens = len(pack.ids)
        fixed = self._compiled is not None and tokens == self.budget
        # Few widths mean few recompilations. The room between the inherited keys and the pack's own is seen by nobody.
        columns = -(-pack.inherited // WIDTH_STEP) * WIDTH_STEP if fixed else pack.inherited
        keys_values = self._room(columns + tokens)
        keys_values[:, :, :, pack.inherited : columns] = 0
        if inherited is not None:
            keys_values[:, :, :, : pack.inherited] = inherited
        forward = self._compiled if fixed and self._compiled is not None else self.backbone
        # A trainer's autocast must not change the precision that the model was loaded with.
        with torch.autocast(self.device.type, enabled=False):
            states = forward(
                inputs_embeds=self._embedding(self._tensor(pack.ids))[None].to(self.dtype),
                position_ids=self._tensor(pack.positions)[None],
                use_cache=False,
                keys_values=keys_values,
                **self._mask(pack, tokens, columns),
            ).last_hidden_state[0]
            scores = self._scores_at(pack, states)
        keep = self._tensor(np.where(pack.keep < pack.inherited, pack.keep, pack.keep - pack.inherited + columns))
        return scores, keys_values[:, :, :, keep]

    def _scores_at(self, pack: Pack, states: Tensor) -> Tensor:
        """What the head says at the pack's reads."""
        if not len(pack.reads):
            return torch.empty(0, device="cpu")
        reads = self._tensor(np.searchsorted(pack.queries, pack.reads))
        targets = self._tensor(pack.targets) if (pack.targets >= 0).any() else None
        return self._read(states[reads].float(), targets).cpu()

    def _tensor(self, indices: Indices) -> Tensor:
        return torch.from_numpy(indices).to(self.device)

    def _mask(self, pack: Pack, rows: int, columns: int) -> dict[str, Any]:
        if self.attention in ("sdpa", "eager"):
            return {"attention_mask": attention.dense_mask(pack, rows, columns, self.dtype, self.device)}
        starts = attention.sequence_starts(pack) if self.attention == "flash_attention_2" else None
        if starts is not None:
            return {"sequence_starts": starts.to(self.device), "longest": int(starts.diff().max())}
        return {"attention_mask": attention.block_mask(pack, rows, columns, self.device)}

    def _compile_if_it_pays(self, prompts: Sequence[Prompt]) -> None:
        """Compiles the forward pass when told to, or when the job is long enough to win the time back."""
        if self._compiled is not None or self._compile is False:
            return
        if self._compile == "auto":
            pays = self.device.type == "cpu" and self.dtype != torch.float32
            if not pays or sum(len(prompt.ids) for prompt in prompts) < COMPILE_TOKENS:
                return
        logger.warning("Compiling the forward pass. This takes a minute or so, once; compile=False does without.")
        self._compiled = torch.compile(self.backbone)

    @property
    def token_bytes(self) -> int:
        """Memory that the keys and values of one token take."""
        one = self.new_buffer(1)
        return one.numel() * one.element_size()

    def new_buffer(self, tokens: int) -> Tensor:
        """Room for the keys and values of so many tokens: [layer, key or value, head, token, size]."""
        config: Any = self.backbone.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, tokens, size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _room(self, tokens: int) -> Tensor:
        """The buffer of keys and values, cut to this many tokens."""
        if self._buffer.shape[3] < tokens:
            self._buffer = self.new_buffer(0)  # the old one is given back first
            self._buffer = self.new_buffer(-(-tokens // 256) * 256)
        return self._buffer[:, :, :, :tokens]

    def _shrink(self, tokens: int, problem: str) -> None:
        self._buffer = self.new_buffer(0)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.budget <= SMALLEST_BUDGET:
            raise SurefootError(
                f"Not even {tokens} tokens at a time fit into memory ({problem}). Lower max_tokens, load the model "
                'with quantize="nf4", or free memory on the device.'
            )
        self.budget = max(SMALLEST_BUDGET, self.budget // 2)
        logger.warning("Out of memory with %d tokens in a pack; going on with at most %d.", tokens, self.budget)

    def _budget(self) -> int:
        """How many tokens a pack may hold.

        On the CPU products are fastest at a few hundred rows, and a dense mask grows with the square. On CUDA a quarter
        of the free memory is given to a pack's activations and its keys and values.
        """
        if self.device.type != "cuda":
            return CPU_BUDGET
        config: Any = self.backbone.config
        free, _ = torch.cuda.mem_get_info(self.device)
        activations = self.dtype.itemsize * (8 * config.hidden_size + 3 * config.intermediate_size)
        largest = DENSE_BUDGET if self.attention in ("sdpa", "eager") else LARGEST_BUDGET
        return int(min(largest, max(CPU_BUDGET, free // 4 // (activations + self.token_bytes))))
