"""A drop-in for the scorer that many trainers carry around as a copied file: `ProcessRewardScorer`.

The rule: same constructor, same verbs, same dictionary keys, so that one import line changes. What differs is that a
score is never invented: a solution of which any step could not be scored is `degraded` and says why, `step_scores` ends
before that step, and an aggregate that would need it is None. Only where there is no step at all the aggregates are
0.0, as they always were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from surefoot.core import aggregation
from surefoot.core.options import ReadOptions
from surefoot.core.result import NO_STEPS, SolutionScore
from surefoot.families.qwen import MARKER, SYSTEM
from surefoot.text.answers import NUMBER, closing_text, counted_amount, find_answer
from surefoot.text.split import split

if TYPE_CHECKING:
    import torch

DEFAULT_SYSTEM_PROMPT = SYSTEM
STEP_SEP_TOKEN = MARKER
_AMOUNT = re.compile(rf"(?:\\?[$€£]\s?)?([+-]?{NUMBER})\s?\\?%?")


def extract_prm_steps(solution: str) -> list[str]:
    """The bodies of the `Step N:` lines, and the final answer as a closing step.

    A number with what it counts is reduced to it: `$18 a day` closes with `The answer is \\boxed{18}`.
    """
    steps = [step.text for step in split(solution, "steps", closing=False).steps]
    answer = find_answer(solution)
    if answer is not None and answer.source == "final_answer":
        amount = _AMOUNT.fullmatch(counted_amount(answer.value) or answer.value)
        steps.append(closing_text(amount[1] if amount else answer.value))
    return steps


class ProcessRewardScorer:
    """Scores `Step N:` solutions with Qwen2.5-Math-PRM, and answers in dictionaries.

    `pad_missing` fills the scores of truncated steps with the mean of the others, as older code did. It is off, because
    those are not scores; a result that holds them says `padded_steps: True`.
    """

    def __init__(
        self,
        model_name: str = "Qwen/Qwen2.5-Math-PRM-7B",
        device: str | torch.device | None = None,
        load_in_4bit: bool = True,
        dtype: str | torch.dtype = "auto",
        max_input_tokens: int = 4096,
        *,
        pad_missing: bool = False,
    ) -> None:
        """Loads the model once. 4-bit loading happens on CUDA only; elsewhere the model is loaded unquantised."""
        from surefoot.engine.hardware import choose_device
        from surefoot.scoring.loading import load

        self.model_name = model_name
        self.device = choose_device(device or "auto")
        self.max_input_tokens = max_input_tokens
        self.pad_missing = pad_missing
        self._scorer = load(
            model_name,
            device=self.device,
            dtype=dtype,
            quantize="nf4" if load_in_4bit and self.device.type == "cuda" else None,
            quantize_fallback=True,
            max_tokens=max_input_tokens,
        )

    def score_solution(
        self, question: str, solution: str, system_prompt: str = DEFAULT_SYSTEM_PROMPT
    ) -> dict[str, Any]:
        """The scores of one solution."""
        return self.score_batch([{"question": question, "solution": solution}], system_prompt)[0]

    def score_batch(
        self, items: Sequence[Mapping[str, str]], system_prompt: str = DEFAULT_SYSTEM_PROMPT
    ) -> list[dict[str, Any]]:
        """The scores of `{"question": ..., "solution": ...}` items, in their order, scored together."""
        pairs = [(item["question"].strip(), extract_prm_steps(item["solution"])) for item in items]
        # A family that knows no system message is asked without one, unless the caller brought one.
        system = None if system_prompt == DEFAULT_SYSTEM_PROMPT else system_prompt
        return [self._as_dict(result) for result in self._scorer.score_stream(pairs, ReadOptions(system=system))]

    def _as_dict(self, result: SolutionScore) -> dict[str, Any]:
        scores = result.step_scores
        known = [score for score in scores if score is not None]
        padded = self.pad_missing and 0 < len(known) < len(scores)
        if padded:
            average = sum(known) / len(known)
            scores = [average if score is None else score for score in scores]
        return {
            "step_scores": list(takewhile(lambda score: score is not None, scores)),
            "num_steps": len(scores),
            "mean_score": aggregation.mean(scores) if scores else 0.0,
            "min_score": aggregation.minimum(scores) if scores else 0.0,
            "final_score": aggregation.final(scores) if scores else 0.0,
            "degraded": result.status != "scored",
            "degraded_reason": "no extractable steps" if result.reason == NO_STEPS else result.reason,
            "padded_steps": padded,
        }
