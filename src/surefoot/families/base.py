"""The interface of a PRM family: its prompt, its head tensors and its read-out.

A family handles text, token ids and head tensors. It knows nothing about batches, devices or files. Its dataclass
fields are its options: what differs between otherwise identical checkpoints, and what is not known for certain.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.errors import CheckpointError, OptionError
from surefoot.families.catalog import CatalogEntry
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


class StepValue(NamedTuple):
    """The score of one step and, if the model gives one, its spread."""

    score: float
    spread: float | None = None


@dataclass(frozen=True)
class Family(ABC):
    """The interface that every family implements. docs/adding-a-family.md has an example."""

    name: ClassVar[str]
    readout: ClassVar[str]
    """What is read and where, in a few words."""
    architectures: ClassVar[tuple[str, ...]] = ()
    """`architectures` entries in config.json that identify this family and no other."""
    backbone_prefix: ClassVar[str] = "model."
    """The prefix of the backbone's tensor names in the checkpoint."""
    unused_tensors: ClassVar[tuple[str, ...]] = ()
    """Prefixes of tensors that a checkpoint may contain and that are not loaded."""
    added_tokens: ClassVar[tuple[str, ...]] = ()
    """Special tokens that base models lack and that training adds to the vocabulary."""
    values_per_read: ClassVar[int] = 1
    """How many numbers each read returns."""
    head_in_model_dtype: ClassVar[bool] = False
    """Keep the head in the model's dtype, for heads as large as the vocabulary. Other heads are float32."""
    models: ClassVar[tuple[CatalogEntry, ...]] = ()
    """The models of a family from another package. Those of built-in families are listed in `catalog.CATALOG`."""
    golden_file: ClassVar[Path | None] = None
    """The published scores of a family from another package: a JSON file, see `goldens`."""

    def identity(self) -> str:
        """The name and all options as JSON: the family's part of the fingerprint that keys caches and calibrations.

        It does not contain names of classes or modules, so code can move without invalidating what users have stored.
        Options that have their default are included: a new default is a different computation. Every option must be a
        JSON value.
        """
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps({"family": self.name, "options": options}, sort_keys=True)

    @property
    def scale(self) -> Scale:
        """The scale of the scores."""
        return "probability"

    @property
    def reference_model(self) -> str | None:
        """A second model that reads the same prompts, for families that compare two models."""
        return None

    @property
    def text_markers(self) -> tuple[str, ...]:
        """Ordinary text that this family uses to mark steps. A step that contains it gets a warning."""
        return ()

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The options that the makers' code takes from the checkpoint's tokenizer files, if they set them."""
        return {}

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message] | None:
        """The conversation that the makers' code passes to the checkpoint's chat template; None if it uses none."""
        return None

    @abstractmethod
    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the head's tensors in a checkpoint with this config.json."""

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """The part of a head tensor to keep in memory; by default all of it."""
        return tensor

    def step_marker(self) -> str | None:
        """The special token at which every score is read, if the family has one."""
        return None

    @abstractmethod
    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """Build exactly the token ids that the model was trained on. `system` replaces the default system message."""

    def place_reads(self, tokenizer: PromptTokenizer, ids: Sequence[int], prefix: int) -> Prompt:
        """Find the reads of a prompt that was rendered elsewhere: every step marker. Only for families with one."""
        marker = tokenizer.token(self.step_marker() or "")
        return Prompt(tuple(ids), tuple(at for at, id in enumerate(ids) if id == marker), prefix)

    @property
    def prompt_per_step(self) -> bool:
        """Whether every step is read in a prompt of its own, which holds the steps up to it."""
        return False

    def prompts(
        self,
        tokenizer: PromptTokenizer,
        question: str,
        steps: Sequence[str],
        system: str | None = None,
        limit: int | None = None,
    ) -> tuple[Prompt, ...]:
        """The prompts of one solution, whose reads, in order, are those of its steps.

        There is one prompt, or with `prompt_per_step` one per step. The first one that is read beyond `limit` tokens
        then stands for the rest.
        """
        if not self.prompt_per_step:
            return (self.render(tokenizer, question, steps, system),)
        found: list[Prompt] = []
        for count in range(min(1, len(steps)), len(steps) + 1):
            too_long = limit is not None and bool(found) and found[-1].reads[-1] >= limit
            found.append(found[-1] if too_long else self.render(tokenizer, question, steps[:count], system))
        return tuple(found)

    @abstractmethod
    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Map float32 hidden states at the read positions, one per row, to one score or `values_per_read` numbers."""

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """Like `read`, for reads that have a target token."""
        raise NotImplementedError(f"The prompts of {self.name} have no target tokens")

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """Turn the numbers at a prompt's reads into one value per step."""
        return [StepValue(value) for value in values.tolist()]

    def reject_system(self, system: str | None) -> None:
        """Raise `OptionError` if there is a system message: for families trained without one."""
        if system is not None:
            raise OptionError(f"The family {self.name!r} has no system message. Omit `system`.")


def config_int(config: Mapping[str, Any], name: str) -> int:
    """Return an integer that config.json must contain."""
    value = config.get(name)
    if not isinstance(value, int):
        raise CheckpointError(f"config.json must set {name!r} to a number, but it is {value!r}.")
    return value
