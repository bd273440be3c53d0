"""A drop-in replacement for `ProcessRewardScorer`, the scorer that many trainers include as a copied file.

The constructor, the attributes, the methods and the dictionary keys are the same, so that only an import line changes.
Unlike the original, it never pads scores: if a step is unscored, the solution is `degraded` with a reason and
`step_scores` ends before that step. Invariant: nothing about an item raises, and every aggregate of a degraded result
is 0.0, the lowest score there is, because callers convert it to float before they look at `degraded`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from surefoot.core import aggregation
from surefoot.core.options import ReadOptions
from surefoot.core.result import SolutionScore
from surefoot.core.solution import Span
from surefoot.data.items import read_item
from surefoot.errors import InputError, OptionError
from surefoot.families.qwen import MARKER, SYSTEM
from surefoot.text.answers import clean_answer, closing_text, lines, require_text, step_labels
from surefoot.text.split import labelled_steps

if TYPE_CHECKING:
    import torch

    from surefoot.scoring.logits import TwoClassModel

logger = logging.getLogger("surefoot")

DEFAULT_SYSTEM_PROMPT = SYSTEM
STEP_SEP_TOKEN = MARKER
_FINAL = re.compile(r"[\s#>*_+•-]*(?ai:final\s*answer)[\s*_]*[:\uff1a](?:[*_]+(?=\s|\Z))?")
_MAX_ROWS = 10
_MARKUP = re.compile(r"(?:\\(?:boxed|fbox)|[\s*_`.$\\()\[\]{}])*")


def extract_prm_steps(solution: str) -> list[str]:
    """Return the texts of the `Step N:` lines, followed by the final answer as a closing step.

    The steps end at the first `Final Answer:` line; the last one states the answer, which is kept as it stands. Only
    markup around it is removed: `**12**`, `12.` and `\\boxed{12}` become `12`.

    >>> extract_prm_steps("Step 1: 3 * 4 = 12.\\nFinal Answer: 12")
    ['3 * 4 = 12.', 'The answer is \\\\boxed{12}']
    """
    require_text(solution, "The solution must be a string")
    text = "\n".join(solution.splitlines())
    rows = lines(text)
    finals = [(at, found.end()) for at, row in enumerate(rows) if (found := _FINAL.match(text, *row))]
    end = rows[finals[0][0]].start if finals else len(text)
    labels = step_labels(text, rows)
    steps = [step.text for step in labelled_steps(text, [label for label in labels if label.start < end], [end])]
    starts = {label.start for label in labels} | {rows[at].start for at, _ in finals}
    values = (_stated(text, rows[at : at + _MAX_ROWS], start, starts) for at, start in reversed(finals))
    answer = next((value for value in values if value), None)
    return steps if answer is None else [*steps, closing_text(answer)]


def _stated(text: str, rows: Sequence[Span], start: int, starts: set[int]) -> str:
    """Return the value of the first row, an answer line whose label ends at `start`.

    If nothing follows the label, or a brace stays open, the value continues on the next rows.
    """
    written = text[start : rows[0].end]
    first = value = _without_markup(written)
    for row in rows[1:]:
        if row.start in starts or (value and written.count("{") <= written.count("}")):
            break
        written = f"{written} {text[slice(*row)]}"
        value = _without_markup(written)
        first = first or value
    return value if written.count("{") <= written.count("}") else first


def _without_markup(written: str) -> str:
    """Remove the markup around an answer, but nothing that is part of it: a unit, a currency, a percent sign."""
    value = clean_answer(written)
    if not value:
        return ""
    before, _, after = written.rpartition(value)
    return value if _MARKUP.fullmatch(before) and _MARKUP.fullmatch(after) else written.strip()


class ProcessRewardScorer:
    """Scores `Step N:` solutions with Qwen2.5-Math-PRM and returns dictionaries.

        scorer = ProcessRewardScorer("Qwen/Qwen2.5-Math-PRM-7B")
        scorer.score_solution(question, solution)["min_score"]

    Other models whose scores are probabilities work as well. Text cannot create a step, whatever markers it contains.
    """

    def __init__(
        self,
        model_name: str = "Qwen/Qwen2.5-Math-PRM-7B",
        device: str | torch.device | None = None,
        load_in_4bit: bool = True,
        dtype: str | torch.dtype = "auto",
        max_input_tokens: int = 4096,
    ) -> None:
        """Load the model. `load_in_4bit` applies on CUDA only; elsewhere the model is not quantized."""
        from surefoot.engine.hardware import choose_device
        from surefoot.scoring.local import load_local

        self.model_name = model_name
        self.device = choose_device(device or "auto")
        self.max_input_tokens = max_input_tokens
        self._scorer = load_local(
            model_name,
            device=self.device,
            dtype=dtype,
            quantize="nf4" if load_in_4bit and self.device.type == "cuda" else None,
            quantize_fallback=True,
            max_tokens=max_input_tokens,
        )
        if self._scorer.scale != "probability":
            raise OptionError(
                f"The scores of {model_name} are not probabilities (scale {self._scorer.scale!r}), so 0.0 would not be "
                "the lowest one. Use surefoot.load, which returns None for what is unscored."
            )
        marker = self._scorer.family.step_marker()
        self.step_sep_id = None if marker is None else self._scorer.tokenizer.token(marker)
        """The id of the token at which scores are read (`<extra_0>`), or None if the model has no such token."""

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's own transformers tokenizer, loaded on first use.

        Unlike scoring, it turns text that spells a special token into that token.
        """
        from transformers import AutoTokenizer

        from surefoot.engine.checkpoint import open_checkpoint
        from surefoot.families.mini import locate
        from surefoot.tokenization.tokenizer import tokenizer_folder

        folder = tokenizer_folder(*open_checkpoint(locate(self.model_name)).tokenizer_folders)
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)

    @cached_property
    def model(self) -> TwoClassModel:
        """The model as a torch module: `model(input_ids=..., attention_mask=...)[0]` has two logits per token."""
        from surefoot.scoring.logits import TwoClassModel

        return TwoClassModel(self._scorer)

    def score_solution(
        self, question: str, solution: str, system_prompt: str = DEFAULT_SYSTEM_PROMPT
    ) -> dict[str, Any]:
        """Score one solution."""
        return self.score_batch([{"question": question, "solution": solution}], system_prompt)[0]

    def score_batch(
        self, items: Sequence[Mapping[str, str]], system_prompt: str = DEFAULT_SYSTEM_PROMPT
    ) -> list[dict[str, Any]]:
        """Score `{"question": ..., "solution": ...}` items together, in their order.

        An item that cannot be scored is `degraded` and does not affect the others.
        """
        # The default means the model's own system message, because some families do not support any.
        options = ReadOptions(system=None if system_prompt == DEFAULT_SYSTEM_PROMPT else system_prompt)
        read = [_read(item) for item in items]
        scored = iter(self._score([(each.question, each.steps) for each in read if each.problem is None], options))
        return [next(scored) if each.problem is None else _degraded(len(each.steps), each.problem) for each in read]

    def _score(self, pairs: list[tuple[str, list[str]]], options: ReadOptions) -> list[dict[str, Any]]:
        """Score all pairs in one call. If that fails, halve the list until only pairs that fail alone are degraded."""
        try:
            results = list(self._scorer.score_stream(pairs, options))
        except OptionError:
            raise
        except Exception as error:
            if len(pairs) > 1:
                half = len(pairs) // 2
                return self._score(pairs[:half], options) + self._score(pairs[half:], options)
            logger.warning("The forward pass failed: %s", error, exc_info=True)
            return [_degraded(len(steps), f"forward error: {error}") for _, steps in pairs]
        return [_as_dict(result, len(steps)) for result, (_, steps) in zip(results, pairs, strict=True)]


@dataclass(frozen=True)
class _Item:
    question: str
    steps: list[str]
    problem: str | None = None
    """Why this item cannot be scored."""


def _read(item: Any) -> _Item:
    steps: list[str] = []
    try:
        if not isinstance(item, Mapping) or not {"question", "solution"} <= item.keys():
            raise InputError("The item is not a dictionary with `question` and `solution`.")
        steps = extract_prm_steps(item["solution"])
        if not steps:
            raise InputError("no extractable steps")
        question, _ = read_item((item["question"], steps), 0)
    except InputError as error:
        return _Item("", steps, str(error).removeprefix("Item 0: "))
    return _Item(question.strip(), steps)


def _as_dict(result: SolutionScore, count: int) -> dict[str, Any]:
    scores = [score for score in takewhile(lambda score: score is not None, result.step_scores) if score is not None]
    if result.status != "scored":
        logger.warning("Degraded result: %s", result.reason)
        return _degraded(count, result.reason or "a step is unscored", scores)
    return {
        "step_scores": scores,
        "num_steps": count,
        "mean_score": aggregation.mean(scores),
        "min_score": aggregation.minimum(scores),
        "final_score": aggregation.final(scores),
        "degraded": False,
        "degraded_reason": None,
        "padded_steps": False,
    }


def _degraded(count: int, reason: str, scores: Sequence[float] = ()) -> dict[str, Any]:
    return {
        "step_scores": list(scores),
        "num_steps": count,
        "mean_score": 0.0,
        "min_score": 0.0,
        "final_score": 0.0,
        "degraded": True,
        "degraded_reason": reason,
        "padded_steps": False,
    }
