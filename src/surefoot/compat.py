"""A drop-in replacement for `ProcessRewardScorer`, the scorer that many trainers include as a copied file.

The constructor, the methods and the dictionary keys are the same, so that only an import line changes. Unlike the
original, it never invents a score: if a step is unscored, the solution is `degraded` with a reason, `step_scores` ends
before that step, and aggregates that need it are None. Without any steps the aggregates are 0.0, as in the original.
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
    """Return the texts of the `Step N:` lines, followed by the final answer as a closing step.

    A quantity is reduced to its number: `$18 a day` becomes `The answer is \\boxed{18}`.

    >>> extract_prm_steps("Step 1: 3 * 4 = 12.\\nFinal Answer: 12")
    ['3 * 4 = 12.', 'The answer is \\\\boxed{12}']
    """
    steps = [step.text for step in split(solution, "steps", closing=False).steps]
    answer = find_answer(solution)
    if answer is not None and answer.source == "final_answer":
        amount = _AMOUNT.fullmatch(counted_amount(answer.value) or answer.value)
        steps.append(closing_text(amount[1] if amount else answer.value))
    return steps


class ProcessRewardScorer:
    """Scores `Step N:` solutions with Qwen2.5-Math-PRM and returns dictionaries.

        scorer = ProcessRewardScorer("Qwen/Qwen2.5-Math-PRM-7B")
        scorer.score_solution(question, solution)["min_score"]

    `pad_missing` replaces the scores of truncated steps by the mean of the others, as the original did. It is off by
    default, because these are not scores. Results that contain them have `padded_steps: True`.
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
        """Load the model. `load_in_4bit` applies on CUDA only; elsewhere the model is not quantized."""
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
        """Score one solution."""
        return self.score_batch([{"question": question, "solution": solution}], system_prompt)[0]

    def score_batch(
        self, items: Sequence[Mapping[str, str]], system_prompt: str = DEFAULT_SYSTEM_PROMPT
    ) -> list[dict[str, Any]]:
        """Score `{"question": ..., "solution": ...}` items together, in their order."""
        pairs = [(item["question"].strip(), extract_prm_steps(item["solution"])) for item in items]
        # The default means the model's own system message, because some families do not support any.
        system = None if system_prompt == DEFAULT_SYSTEM_PROMPT else system_prompt
        return [self.as_dict(result) for result in self._scorer.score_stream(pairs, ReadOptions(system=system))]

    def as_dict(self, result: SolutionScore) -> dict[str, Any]:
        """Convert a result to the dictionary that the original scorer returns."""
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
