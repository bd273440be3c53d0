"""Step rewards on the tokens of the policy.

The rule: every step's reward stands on the last token of that step, in the policy's own tokenization; all other tokens
get 0.0, and the tokens together get the total that the form states. If any step has no score there is no placement.

| form | a step gets | total | splitting a step, or adding one, can raise the total |
| --- | --- | --- | --- |
| `min` | the weakest (the first of them) its score, the others nothing | minimum | no |
| `soft-min` | its score, weighted towards the weakest (PURE) | soft minimum | a little: see below |
| `product` | how much it lowers the probability of being right so far | product - 1 | no |
| `clip` | what it lacks to the ceiling, never more than 0 | sum of these | no |
| `progress` | its score less the score before it (before the first: 0) | final step | by a better last step only |
| `delta` | its score less the next one's; the last its own | first step | by an easier first step |
| `mean` | its score over the number of steps | mean | yes, up to the best step's score |

Trainers sum what is placed (GRPO) or discount it (PPO). A plain sum of step scores pays for every further step and is
not offered. `clip` and `product` charge for every doubtful step, so they favour short solutions; `min` blames one step
and leaves the others without a signal; `soft-min` spreads the blame, but copies of good steps dilute it: to move it by
half the gap between the weakest step and the others takes about exp(gap / temperature) steps for each weak one.
`progress` puts its total on the last step's judgement, `delta` makes what is still to come from each step on equal to
that step's score, and `mean` is smooth and the easiest to inflate with safe steps.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from types import MappingProxyType

from surefoot.core.aggregation import soft_minimum_weights
from surefoot.core.result import SolutionScore, StepScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.reward import ON_PROBABILITIES

Credits = Callable[[Sequence[float]], list[float]]


def _min(scores: Sequence[float]) -> list[float]:
    weakest = min(range(len(scores)), key=lambda at: scores[at])
    return [score if at == weakest else 0.0 for at, score in enumerate(scores)]


def _soft_min(scores: Sequence[float], temperature: float = 0.1) -> list[float]:
    return [weight * score for weight, score in zip(soft_minimum_weights(scores, temperature), scores, strict=True)]


def _product(scores: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(accumulate(scores, mul, initial=1.0))]


def _clip(scores: Sequence[float], ceiling: float = 0.5) -> list[float]:
    return [min(score - ceiling, 0.0) for score in scores]


def _progress(scores: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise([0.0, *scores])]


def _delta(scores: Sequence[float]) -> list[float]:
    return [now - following for now, following in pairwise([*scores, 0.0])]


def _mean(scores: Sequence[float]) -> list[float]:
    return [score / len(scores) for score in scores]


FORMS: Mapping[str, Credits] = MappingProxyType(
    {
        "min": _min,
        "soft-min": _soft_min,
        "product": _product,
        "clip": _clip,
        "progress": _progress,
        "delta": _delta,
        "mean": _mean,
    }
)
"""From the scores of all steps to the reward of each."""


@dataclass(frozen=True)
class Placement:
    """A reward for every token of the policy, or the reason why there is none."""

    rewards: tuple[float, ...] | None
    total: float | None
    """What the rewards sum to."""
    positions: tuple[int, ...] = ()
    """The token on which each step's reward stands, in the order of the steps."""
    reason: str | None = None


def place(result: SolutionScore, offsets: Sequence[tuple[int, int]], form: str = "min") -> Placement:
    """The reward of every token, by one of FORMS.

    `offsets` is the tokenizer's offset mapping of the text that was scored: a half-open span of characters for each
    token, (0, 0) for a token that stands for no text. A token that straddles a step's end carries that step's reward.
    Steps that end in one token share it. A ready list of steps was joined by blank lines before it was given spans.
    """
    if form not in FORMS:
        hint = " A sum of step scores would pay for more steps." if form == "sum" else ""
        raise OptionError(f"form={form!r} is not offered. Choose one of: {', '.join(FORMS)}.{hint}")
    if result.scale != "probability" and form in ON_PROBABILITIES:
        raise OptionError(
            f"The form {form!r} needs probabilities, and {result.model} gives scores on the scale {result.scale!r}. "
            "Choose min, soft-min, progress, delta or mean."
        )
    scores = [score for score in result.step_scores if score is not None]
    if not scores or len(scores) < len(result.steps):
        return Placement(None, None, reason=result.reason or "a step was not scored")
    ends = _last_tokens(result.steps, offsets)
    missing = [number for number, at in enumerate(ends) if at is None]
    if missing:
        return Placement(None, None, reason=f"the tokens end before step {missing[0]} does; the completion was cut")
    positions = tuple(at for at in ends if at is not None)
    rewards = [0.0] * len(offsets)
    credits = FORMS[form](scores)
    for at, credit in zip(positions, credits, strict=True):
        rewards[at] += credit
    return Placement(tuple(rewards), math.fsum(credits), positions)


def _last_tokens(steps: Sequence[StepScore], offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each step the last token that has a character of it."""
    tokens = [(start, end, at) for at, (start, end) in enumerate(offsets) if start != end]
    for (before, _, _), (start, end, at) in pairwise([(0, 0, 0), *tokens]):
        # The bytes of one character may be several tokens, so spans may overlap; they never go back.
        if not before <= start < end:
            raise InputError(f"The span {start, end} of token {at} does not follow those before it in the text.")
    starts = [start for start, _, _ in tokens]
    found: list[int | None] = []
    for step in steps:
        near = bisect_left(starts, step.end) - 1
        reached = near >= 0 and (
            tokens[near][1] >= step.end or near + 1 < len(tokens) or _blank_after(step, tokens[near])
        )
        found.append(tokens[near][2] if reached and tokens[near][1] > step.start else None)
    return found


def _blank_after(step: StepScore, token: tuple[int, int, int]) -> bool:
    """Whether nothing but white space of the step, which some tokenizers leave out, follows its last token."""
    return step.kind == "body" and not step.text[max(0, token[1] - step.start) :].strip()
