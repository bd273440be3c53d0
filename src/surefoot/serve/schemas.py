"""What travels over HTTP: the bodies of requests and replies.

The rule: a body that does not fit its schema is refused as a whole, with the places of its first mistakes, one a list;
nothing of the request is repeated in the refusal but the names of fields, cut short. No body costs more to refuse than
to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict

from surefoot.core.options import ReadOptions, SplitRule
from surefoot.core.result import Scale
from surefoot.rewards.reward import RECIPES

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Label = str | int | Annotated[float, Field(allow_inf_nan=False)] | None
ONE_OF = {"oneOf": [{"required": ["solution"]}, {"required": ["steps"]}]}


def _without_default(schema: JsonDict) -> None:
    """A field that may be left out, but has no value that could be sent in its stead."""
    del schema["default"]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Item(_Request):
    """A question, and its solution as one text or as a list of steps."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=ONE_OF)  # type: ignore[typeddict-item]

    question: str
    solution: str = Field("", description="The solution as the model wrote it.", json_schema_extra=_without_default)
    steps: list[str] = Field(
        [], description="The solution as ready steps.", fail_fast=True, json_schema_extra=_without_default
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Item:
        if len(self.model_fields_set & {"solution", "steps"}) != 1:
            raise ValueError("give either `solution` or `steps`")
        return self

    @property
    def pair(self) -> tuple[str, str | list[str]]:
        """As `Scorer.score_many` takes it."""
        return self.question, self.steps if "steps" in self.model_fields_set else self.solution


class _Scoring(_Request):
    model: str | None = Field(None, description="One of the names that /v1/models lists; needed if it lists several.")
    split: SplitRule = Field("auto", description="How the steps of a text are found.")
    closing: bool = Field(True, description="Whether a stated final answer becomes a step of its own.")
    system: str | None = Field(None, description="Replaces the system message of the model's family.")
    timeout: Seconds | None = Field(None, description="Seconds after which the answer is no longer wanted.")

    @property
    def read_options(self) -> ReadOptions:
        return ReadOptions(self.split, self.closing, self.system)


class ScoreRequest(_Scoring):
    """Solutions to score."""

    items: list[Item] = Field(fail_fast=True)
    threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="A step is right above it: for first_error and correct_prefix. Without it, what is natural for the "
        "scale of the model: 0.5 for probabilities, 0 for margins and log-ratios.",
    )


class RewardItem(Item):
    """A solution, and the reference answer that recipes with an outcome need."""

    gold: str | None = None


class RewardRequest(_Scoring):
    """Solutions to reward."""

    items: list[RewardItem] = Field(fail_fast=True)
    recipe: str = Field("seed", description="One of the recipes of surefoot.rewards.reward.")


class Step(BaseModel):
    """One step and the probability that it is right."""

    text: str
    start: int
    end: int
    score: float | None
    status: Literal["scored", "over_length", "not_finite"]
    index: int
    kind: Literal["body", "answer"]
    spread: float | None = Field(description="How far apart the heads of an ensemble are.")
    raw: float | None = Field(description="The model's own score, where a calibration made another of it.")


class Result(BaseModel):
    """One scored solution: what `SolutionScore.to_dict` gives, and `SolutionScore.from_dict` reads."""

    status: Literal["scored", "partial", "unscored"]
    reason: str | None = Field(description="Why a step, or the whole solution, has no score.")
    model: str
    steps: list[Step]
    mean: float | None
    min: float | None
    final: float | None
    product: float | None
    geometric_mean: float | None
    first_error: int | None = Field(description="-1: no step is wrong. null: an unscored step hides it.")
    correct_prefix: float | None
    answer: str | None
    warnings: list[str]
    outside: list[tuple[int, int]]
    unscored_chars: int
    empty_steps: int
    split: str
    tokens: int
    seconds: float
    scale: Literal["probability", "margin", "log_ratio"]
    calibration: str | None


class ScoreReply(BaseModel):
    """Results in the order of the items."""

    results: list[Result]


class Rewarded(BaseModel):
    """A reward, or the reason why there is none."""

    value: float | None
    terms: dict[str, float | None]
    reason: str | None
    score: Result | None


class RewardReply(BaseModel):
    """Rewards in the order of the items."""

    rewards: list[Rewarded]


class GetRewardRequest(BaseModel):
    """OpenRLHF's request for rewards. Its recipe, model and the like are parameters of the address."""

    model_config = ConfigDict(extra="ignore", strict=True)

    query: list[str] = Field(description="Prompt and response in one, special tokens kept.", fail_fast=True)
    prompts: list[str] = Field(fail_fast=True)
    labels: Annotated[list[Label], Field(fail_fast=True)] | None = Field(None, description="Reference answers.")


class GetRewardParameters(BaseModel):
    """What the address of /get_reward may say."""

    model_config = ConfigDict(extra="forbid")

    recipe: str = Field("seed", json_schema_extra={"enum": [*sorted(RECIPES)]})
    model: str | None = None
    split: SplitRule = "auto"
    missing: float | None = Field(None, allow_inf_nan=False, description="The reward of a sample that has none.")


class GetRewardReply(BaseModel):
    """OpenRLHF's reply. A sample without a reward is null, unless the parameter `missing` names a number."""

    rewards: list[float | None]
    scores: list[float | None]
    extra_logs: dict[str, float]


PROMPTS: JsonDict = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    ]
}


def _prompts(given: Any) -> list[str | list[int]]:
    """One prompt or several, as a list. A union of lists would cost an error for every element and kind of list."""
    if isinstance(given, str) or _are_ids(given):
        return [given]
    if isinstance(given, list) and (all(isinstance(one, str) for one in given) or all(map(_are_ids, given))):
        return given
    raise ValueError("give a text, a list of texts, a list of token ids, or a list of such lists")


def _are_ids(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(id) is int for id in given)


class PoolingRequest(BaseModel):
    """vLLM's request for token_classify. Fields that are not named here are ignored, as vLLM does."""

    model_config = ConfigDict(extra="ignore", strict=True)

    input: Annotated[list[str | list[int]], PlainValidator(_prompts), WithJsonSchema(PROMPTS)] = Field(
        description="Whole prompts, rendered by the caller: texts, or token ids. One score is read at every marker."
    )
    model: str | None = None
    task: Literal["token_classify"] | None = None
    encoding_format: Literal["float"] = "float"
    use_activation: Literal[True] | None = None
    truncate_prompt_tokens: None = Field(None, description="Not offered: cutting a prompt loses steps in silence.")


class Pooled(BaseModel):
    """The two classes, wrong and right, at every marker of one prompt."""

    index: int
    object: Literal["pooling"] = "pooling"
    data: list[tuple[float, float] | None]


class Usage(BaseModel):
    """Tokens of the request, shared or not."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: None = None


class PoolingReply(BaseModel):
    """vLLM's reply."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


class ModelCard(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["surefoot"] = "surefoot"
    max_model_len: int = Field(description="The longest prompt in tokens.")
    family: str
    fingerprint: str = Field(description="A hash of what the model computes: equal fingerprints mean equal scores.")
    scale: Scale = Field(description="What the scores are.")
    calibration: str | None = Field(description="The calibration that every score goes through.")


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Mistake(BaseModel):
    """What is wrong, and what to do about it."""

    type: str
    message: str
    code: int


class ErrorReply(BaseModel):
    """The body of every reply that is not a success."""

    error: Mistake


class Health(BaseModel):
    """Whether the process is there."""

    status: str


def mistakes(errors: Sequence[Any], shown: int = 5) -> str:
    """The first validation errors in one line: fields and messages, without any text of the request."""
    parts = []
    for one in errors[:shown]:
        place = ".".join(str(part)[:40] for part in one["loc"] if not str(part).startswith("function-"))
        message = one["msg"].removeprefix("Value error, ")
        parts.append(f"{place}: {message}" if place else message)
    more = f" (and {len(errors) - shown} more)" if len(errors) > shown else ""
    return "; ".join(parts) + more
