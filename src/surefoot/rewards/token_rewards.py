"""Distribute step scores over the tokens of the policy, as rewards for PPO-like training.

Invariant: the reward of a step is on the last token of that step, in the policy's own tokenization. All other tokens
get 0.0. There are no token rewards if a step is unscored.

| aggregation | reward of a step | total | splitting or adding steps can raise the total |
| --- | --- | --- | --- |
| `min` | its score for the first lowest-scored step, 0 for the others | minimum | no |
| `soft_min` | its score, weighted towards the lowest (PURE) | soft minimum | slightly: see below |
| `product` | how much it lowers the probability that all steps so far are correct | product - 1 | no |
| `clip` | its shortfall below the ceiling, negated | sum of these | no |
| `final` | its score minus that of the previous step (0 before the first) | final score | with a better last step |
| `first` | its score minus that of the next step (0 after the last) | first score | with an easier first step |
| `mean` | its score divided by the number of steps | mean | yes, up to the best step's score |

Trainers sum these rewards (GRPO) or discount them (PPO). A plain sum of step scores is not offered: it rewards every
additional step. `clip` and `product` charge for every doubtful step, so they favor short solutions. `min` blames one
step and gives the others no signal. `soft_min` spreads the blame, but copies of good steps dilute it: moving it half
the gap between the lowest score and the others takes about exp(gap / temperature) steps per low-scored one. `final`
bases its total on the last step only. With `first`, the return from each step on equals that step's score. `mean` is
smooth and the easiest to inflate with safe steps.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.result import SolutionScore, StepScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.terms import UNSCORED_STEP

TOKEN_AGGREGATIONS = tuple(name for name, each in AGGREGATIONS.items() if each.credits is not None)
"""The aggregations that can be distributed over tokens."""


@dataclass(frozen=True)
class TokenRewards:
    """One reward per token of the policy, or the reason why there are none."""

    rewards: tuple[float, ...] | None
    total: float | None
    """The sum of the rewards."""
    positions: tuple[int, ...] = ()
    """The index of the token that carries each step's reward, in step order."""
    reason: str | None = None


def token_rewards(result: SolutionScore, offsets: Sequence[tuple[int, int]], aggregation: str = "min") -> TokenRewards:
    """Distribute the step scores of a solution over its tokens.

        encoding = tokenizer(solution, return_offsets_mapping=True)  # the policy's tokenizer
        rewards = token_rewards(scorer.score(question, solution), encoding["offset_mapping"]).rewards

    `offsets` is the tokenizer's offset mapping of the scored text: the half-open character span of each token, or
    (0, 0) for a token without text. If a token straddles the end of a step, it carries that step's reward. Steps that
    end in the same token share it. For a list of steps, spans refer to the steps joined by blank lines.
    """
    chosen = AGGREGATIONS.get(aggregation)
    if chosen is None or chosen.credits is None:
        hint = " A sum of step scores would reward additional steps." if aggregation == "sum" else ""
        raise OptionError(
            f"aggregation={aggregation!r} is not supported. Choose one of: {', '.join(TOKEN_AGGREGATIONS)}.{hint}"
        )
    if chosen.needs_probabilities and result.scale != "probability":
        others = ", ".join(name for name in TOKEN_AGGREGATIONS if not AGGREGATIONS[name].needs_probabilities)
        raise OptionError(
            f"The aggregation {aggregation!r} needs probabilities, but the scores of {result.model} are on the scale "
            f"{result.scale!r}. Choose one of: {others}."
        )
    scores = [score for score in result.step_scores if score is not None]
    if not scores or len(scores) < len(result.steps):
        return TokenRewards(None, None, reason=result.reason or UNSCORED_STEP)
    last = _last_tokens(result.steps, offsets)
    positions = tuple(at for at in last if at is not None)
    if len(positions) < len(last):
        reason = f"the tokens end before step {last.index(None)} does; the completion was truncated"
        return TokenRewards(None, None, reason=reason)
    rewards = [0.0] * len(offsets)
    credits = chosen.credits(scores)
    for at, credit in zip(positions, credits, strict=True):
        rewards[at] += credit
    return TokenRewards(tuple(rewards), math.fsum(credits), positions)


def process_token_rewards(result: RewardResult, recipe: Reward, offsets: Sequence[tuple[int, int]]) -> TokenRewards:
    """Distribute the process terms of a reward over the tokens: those named after a token aggregation, weighted.

        tokens = process_token_rewards(result, RECIPES["outcome+process"], offsets)
        rest = result.value - tokens.total      # the outcome and other terms, which belong to no step

    A solution without steps has only zeros.
    """
    if result.value is None or result.score is None:
        return TokenRewards(None, None, reason=result.reason)
    rewards, total, positions = [0.0] * len(offsets), 0.0, set[int]()
    for term in recipe.terms if result.score.steps else ():
        if not term.weight or term.name not in TOKEN_AGGREGATIONS:
            continue
        tokens = token_rewards(result.score, offsets, term.name)
        if tokens.rewards is None or tokens.total is None:
            return tokens
        rewards = [each + term.weight * more for each, more in zip(rewards, tokens.rewards, strict=True)]
        total += term.weight * tokens.total
        positions.update(tokens.positions)
    return TokenRewards(tuple(rewards), total, tuple(sorted(positions)))


def _last_tokens(steps: Sequence[StepScore], offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return the index of the last token that contains a character of each step, or None if the text ends before."""
    tokens = [(start, end, at) for at, (start, end) in enumerate(offsets) if start != end]
    for (before, _, _), (start, end, at) in pairwise([(0, 0, 0), *tokens]):
        # Spans may overlap, because the bytes of one character can be several tokens, but they never go backwards.
        if not before <= start < end:
            raise InputError(f"The span {start, end} of token {at} does not follow the previous spans.")
    starts = [start for start, _, _ in tokens]
    found: list[int | None] = []
    for step in steps:
        near = bisect_left(starts, step.end) - 1
        reached = near >= 0 and (
            tokens[near][1] >= step.end or near + 1 < len(tokens) or _only_space_after(step, tokens[near])
        )
        found.append(tokens[near][2] if reached and tokens[near][1] > step.start else None)
    return found


def _only_space_after(step: StepScore, token: tuple[int, int, int]) -> bool:
    """Return whether only white space of the step, which some tokenizers skip, follows the token."""
    return step.kind == "body" and not step.text[token[1] - step.end :].strip()
