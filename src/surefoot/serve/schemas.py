"""Schemas of requests and replies.

A body that does not match its schema is rejected as a whole. The error names the first invalid fields, one per list,
and echoes nothing of the request but field names, truncated. Rejecting a body costs no more than reading it.
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

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.options import ReadOptions, SplitRule, Thinking
from surefoot.core.result import Scale, StepStatus
from surefoot.rewards.recipes import RECIPES

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Label = str | int | Annotated[float, Field(allow_inf_nan=False)] | None
ONE_OF = {"oneOf": [{"required": ["solution"]}, {"required": ["steps"]}]}


def _without_default(schema: JsonDict) -> None:
    """For an optional field that has no default value that a client could send."""
    del schema["default"]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Item(_Request):
    """A question and its solution, as one text or as a list of steps."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=ONE_OF)  # type: ignore[typeddict-item]

    question: str
    solution: str = Field("", description="The solution as one text.", json_schema_extra=_without_default)
    steps: list[str] = Field(
        [], description="The solution as a list of steps.", fail_fast=True, json_schema_extra=_without_default
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Item:
        if len(self.model_fields_set & {"solution", "steps"}) != 1:
            raise ValueError("give either `solution` or `steps`")
        return self

    @property
    def pair(self) -> tuple[str, str | list[str]]:
        """The item as `StepScorer.score_many` takes it."""
        return self.question, self.steps if "steps" in self.model_fields_set else self.solution


THINKING_HELP = (
    "What to score of a text with `</think>`: the response after it (skip), the thinking (only) or both (all)."
)


class _Scoring(_Request):
    model: str | None = Field(None, description="A name from /v1/models; required if several models are served.")
    split: SplitRule = Field("auto", description="How to split a text into steps.")
    closing: bool = Field(True, description="Whether a stated final answer is a step of its own.")
    system: str | None = Field(None, description="Replaces the default system message.")
    thinking: Thinking = Field("skip", description=THINKING_HELP)
    timeout: Seconds | None = Field(None, description="Seconds after which the reply is no longer wanted.")

    @property
    def read_options(self) -> ReadOptions:
        return ReadOptions(self.split, self.closing, self.system, self.thinking)


class ScoreRequest(_Scoring):
    """Solutions to score."""

    items: list[Item] = Field(fail_fast=True)
    threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Scores above this count as correct, for first_error and correct_prefix (default: 0.5; 0 for "
        "margins and log-ratios).",
    )


class RewardItem(Item):
    """An item and its reference answer, which outcome recipes need."""

    gold: Label = Field(None, description="The reference answer, as text or as a number.")

    @property
    def gold_text(self) -> str | None:
        """The reference answer as recipes take it."""
        return None if self.gold is None else str(self.gold)


class RewardRequest(_Scoring):
    """Solutions to reward."""

    items: list[RewardItem] = Field(fail_fast=True)
    recipe: str | None = Field(
        None, description="A recipe in surefoot.rewards.recipes. Default: outcome+process for items with gold answers."
    )


class Member(BaseModel):
    """What one member of an ensemble gave for a step."""

    model: str
    score: float | None
    reason: str | None = Field(description="Why the member gave no score.")


class Step(BaseModel):
    """A step and its score."""

    text: str
    start: int
    end: int
    score: float | None
    status: StepStatus
    index: int
    kind: Literal["body", "answer"]
    spread: float | None = Field(description="Standard deviation over heads, members of an ensemble or votes.")
    raw: float | None = Field(description="The score before calibration.")
    members: list[Member] = Field(description="The scores of an ensemble's members, or a critic's votes; may be empty.")
    label_mass: float | None = Field(description="The probability of a critic's two labels together.")


def _with_aggregations(schema: JsonDict) -> None:
    """Adds the aggregations that every result reports."""
    properties, required = schema["properties"], schema["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    for each in AGGREGATIONS.values():
        if each.in_results:
            properties[each.name] = {"anyOf": [{"type": "number"}, {"type": "null"}], "title": each.label}
            required.append(each.name)


class Result(BaseModel):
    """A scored solution: `SolutionScore.to_dict` writes it, `SolutionScore.from_dict` reads it."""

    model_config = ConfigDict(json_schema_extra=_with_aggregations)

    status: Literal["scored", "partial", "unscored"]
    reason: str | None = Field(description="Why a step, or the whole solution, has no score.")
    model: str
    steps: list[Step]
    first_error: int | None = Field(
        description="Index of the first wrong step. -1: no step is wrong. null: unknown, a step is unscored."
    )
    correct_prefix: float | None
    answer: str | None
    warnings: list[str]
    outside: list[tuple[int, int]]
    skipped: list[tuple[int, int]] = Field(description="Text that `thinking` excludes from scoring.")
    unscored_chars: int
    empty_steps: int
    split: str
    tokens: int
    generated_tokens: int = Field(description="Tokens that a critic wrote.")
    calls: int = Field(description="Requests to a critic's generator.")
    seconds: float
    scale: Literal["probability", "margin", "log_ratio"]
    calibration: str | None
    recommended: str | None = Field(description="How the makers of the model aggregate step scores; null if unknown.")
    precision: str | None = Field(description="The number format of the computation; null if unknown.")


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
    """A reward request of OpenRLHF. Options such as the recipe and the model are query parameters."""

    model_config = ConfigDict(extra="ignore", strict=True)

    query: list[str] = Field(description="Prompt and response as one text, including special tokens.", fail_fast=True)
    prompts: list[str] = Field(fail_fast=True)
    labels: Annotated[list[Label], Field(fail_fast=True)] | None = Field(None, description="Reference answers.")


class GetRewardParameters(BaseModel):
    """Query parameters of /get_reward."""

    model_config = ConfigDict(extra="forbid")

    recipe: str | None = Field(None, json_schema_extra={"enum": [*sorted(RECIPES)]})
    model: str | None = None
    split: SplitRule = "auto"
    thinking: Thinking = Field("skip", description=THINKING_HELP)
    missing: float | None = Field(
        None, allow_inf_nan=False, description="The reward of a sample without one; otherwise it is null."
    )


class GetRewardReply(BaseModel):
    """Rewards as OpenRLHF reads them. A sample without a reward is null, unless `missing` is given."""

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
    """Normalizes one prompt or several to a list. A union type would cost one error per element and member."""
    if isinstance(given, str) or _are_ids(given):
        return [given]
    if isinstance(given, list) and (all(isinstance(one, str) for one in given) or all(map(_are_ids, given))):
        return given
    raise ValueError("give a text, a list of texts, a list of token ids, or a list of such lists")


def _are_ids(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(id) is int for id in given)


class PoolingRequest(BaseModel):
    """A request for vLLM's `token_classify`. Unknown fields are ignored, as in vLLM."""

    model_config = ConfigDict(extra="ignore", strict=True)

    input: Annotated[list[str | list[int]], PlainValidator(_prompts), WithJsonSchema(PROMPTS)] = Field(
        description="Whole prompts, rendered by the client, as texts or token ids. Each step marker gives one score."
    )
    model: str | None = None
    task: Literal["token_classify"] | None = None
    encoding_format: Literal["float"] = "float"
    use_activation: Literal[True] | None = None
    truncate_prompt_tokens: None = Field(None, description="Not supported: truncation would drop steps silently.")


class Pooled(BaseModel):
    """The probabilities of wrong and right at each step marker of a prompt."""

    index: int
    object: Literal["pooling"] = "pooling"
    data: list[tuple[float, float] | None]


class Usage(BaseModel):
    """Tokens of the request; shared tokens count each time."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: None = None


class PoolingReply(BaseModel):
    """A reply of vLLM's `token_classify`."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


class ModelCard(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["surefoot"] = "surefoot"
    max_model_len: int = Field(
        description="The maximum prompt length in tokens; for an ensemble, the smallest of its members."
    )
    family: str = Field(description="How the model is prompted and read; `ensemble` for several models as one.")
    fingerprint: str = Field(description="A hash of what the model computes: equal fingerprints mean equal scores.")
    scale: Scale = Field(description="What the scores are: probabilities, margins or log-ratios.")
    calibration: str | None = Field(description="The calibration applied to all scores.")
    recommended: str | None = Field(description="How the makers of the model aggregate step scores; null if unknown.")


class ModelList(BaseModel):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class ErrorDetail(BaseModel):
    """What went wrong, and what to do about it."""

    type: str
    message: str
    code: int


class ErrorReply(BaseModel):
    """The body of every error reply."""

    error: ErrorDetail


class Health(BaseModel):
    """The status of the service."""

    status: str


def summarize_errors(errors: Sequence[Any], shown: int = 5) -> str:
    """The first validation errors in one line: fields and messages, without any text of the request."""
    parts = []
    for one in errors[:shown]:
        field = ".".join(str(part)[:40] for part in one["loc"] if not str(part).startswith("function-"))
        message = one["msg"].removeprefix("Value error, ")
        parts.append(f"{field}: {message}" if field else message)
    more = f" (and {len(errors) - shown} more)" if len(errors) > shown else ""
    return "; ".join(parts) + more
