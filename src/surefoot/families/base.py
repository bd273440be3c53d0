"""What a PRM family is: how it is asked, which tensors it has, and how its answer is read.

The rule: a family knows text, token ids and its head; it knows nothing of batches, devices or files. Its fields are its
options: what differs between checkpoints that are otherwise alike, and what is not known for certain.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.errors import CheckpointError, OptionError
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Golden:
    """Published scores of one example: what `surefoot check` compares with."""

    models: tuple[str, ...]
    """Lower-case endings of the model names that the scores belong to."""
    question: str
    steps: tuple[str, ...]
    scores: tuple[float, ...]
    tolerance: float
    source: str


class StepValue(NamedTuple):
    """What is known of one step."""

    score: float
    spread: float | None = None


@dataclass(frozen=True)
class Family(ABC):
    """The contract that each file in this folder fulfils."""

    name: ClassVar[str]
    readout: ClassVar[str]
    """In a few words, what is read and where."""
    architectures: ClassVar[tuple[str, ...]] = ()
    """`architectures` entries of config.json that mean this family and no other."""
    backbone_prefix: ClassVar[str] = "model."
    """What the backbone's tensor names start with in the checkpoint."""
    unused_tensors: ClassVar[tuple[str, ...]] = ()
    """Prefixes of tensors that a checkpoint may hold and nobody needs."""
    own_tokens: ClassVar[tuple[str, ...]] = ()
    """Structure tokens that the vocabulary of a base model lacks, and that training adds."""
    goldens: ClassVar[tuple[Golden, ...]] = ()
    width: ClassVar[int] = 1
    """How many numbers a read gives."""
    head_in_model_dtype: ClassVar[bool] = False
    """Keep the head in the model's number format: for heads as large as the vocabulary. Others are float32."""

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
        """What a score of this family is."""
        return "probability"

    @property
    def second_model(self) -> str | None:
        """The model that is asked the same besides this one, where a family needs two."""
        return None

    @property
    def lookalikes(self) -> tuple[str, ...]:
        """Ordinary text that this family uses as structure. A step that holds it is reported."""
        return ()

    @abstractmethod
    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The head's tensors by name, with their shapes, for a model with this config.json."""

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """What of a head tensor stays in memory: all of it, unless a family needs less."""
        return tensor

    def step_marker(self) -> str | None:
        """The structure token at which every score is read, in families that have one."""
        return None

    @abstractmethod
    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The exact ids that the model was trained to read. `system` replaces the family's own system message."""

    def prompts(
        self,
        tokenizer: PromptTokenizer,
        question: str,
        steps: Sequence[str],
        system: str | None = None,
        limit: int | None = None,
    ) -> tuple[Prompt, ...]:
        """The prompts of one solution, whose reads in their order are those of its steps: one, unless every step needs
        a text of its own. Of a prompt with more tokens than `limit` it only matters that it has."""
        return (self.render(tokenizer, question, steps, system),)

    @abstractmethod
    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """From float32 hidden states at the read positions, one row each, to one score or `width` numbers each."""

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """The same for reads that ask for a token."""
        raise NotImplementedError(f"{self.name} asks for no token")

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """From the numbers at a prompt's reads to the value of each of its steps."""
        return [StepValue(value) for value in values.tolist()]

    def refuse_system(self, system: str | None) -> None:
        """For families that never saw a system message."""
        if system is not None:
            raise OptionError(f"The family {self.name!r} has no system message. Leave `system` out.")


F = TypeVar("F", bound=Family)


def with_options(family: F, options: Mapping[str, Any]) -> F:
    """The family with some of its options changed."""
    known = {field.name: field for field in dataclasses.fields(family)}
    unknown = [name for name in options if name not in known]
    if unknown:
        listed = ", ".join(f"{name} (now {getattr(family, name)!r})" for name in known) or "none"
        raise OptionError(f"The family {family.name!r} has no option {unknown[0]!r}. Its options: {listed}.")
    for name, value in options.items():
        wanted = known[name].type
        if not _fits(value, str(wanted)):
            raise OptionError(f"The option {name}={value!r} of the family {family.name!r} has to be {wanted}.")
    return dataclasses.replace(family, **options) if options else family


def _fits(value: Any, annotation: str) -> bool:
    """Whether a value is of the kind that a field's annotation names: str, bool, int, float, None, and their unions."""
    kinds: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "None": (type(None),),
    }
    names = [name.strip() for name in annotation.split("|")]
    if any(name not in kinds for name in names):
        return True
    return any(isinstance(value, kinds[name]) and (name == "bool" or not isinstance(value, bool)) for name in names)


def config_int(config: Mapping[str, Any], name: str) -> int:
    """A number that config.json has to state."""
    value = config.get(name)
    if not isinstance(value, int):
        raise CheckpointError(f"config.json has to state {name!r} as a number, and says {value!r}.")
    return value
