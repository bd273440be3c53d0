"""Prompts equal the makers' bytes. The files in `makers/` were written by the makers' own code: GenPRM cc80f47
(`build_prompt`), ThinkPRM 0beccfb (`format_verification_cot_for_thinkprm`), R-PRM e3dd605 (its prompt file), Multi-RM
65b3e8e (`PRM_PROMPT_FORMAT`, `ORM_PROMPT_FORMAT`, its chat template), Dyve d3697a2 (the messages that `single_process`
sends, in the chat format of DeepSeek-R1-Distill) and ProcessBench e802463 (its template)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.critics.base import Task
from surefoot.critics.dyve import Dyve
from surefoot.critics.genprm import ANALYZE, GenPRM
from surefoot.critics.multi_rm import GORM, GPRM
from surefoot.critics.processbench import ProcessBenchCritic
from surefoot.critics.r_prm import RPRM
from surefoot.critics.thinkprm import ThinkPRM

MAKERS = Path(__file__).parent / "makers"
QUESTION = "A loaf costs $4.\nTom buys 5 loaves {in total}. How much does he pay?"
STEPS = ("Each loaf costs $4.", "He pays 5 * 4 = $20.", "The answer is \\boxed{20}.")
TASK = Task(QUESTION, STEPS)
REPLY = (
    "<analyze>\nLet's analyze the Paragraph 1 step by step: Fine.</analyze>\n"
    "<output>\n**Judgement**: $\\boxed{Yes}$\n</output>\n"
)

PROMPTS: dict[str, Callable[[], str]] = {
    "genprm-evaluation": lambda: GenPRM().prompt(TASK, 1, (REPLY,)).plus(ANALYZE.format(number=2)).text,
    "genprm-training": lambda: (
        GenPRM(first_turn="training").prompt(TASK, 1, (REPLY,)).plus(ANALYZE.format(number=2)).text
    ),
    "thinkprm": lambda: ThinkPRM().prompt(TASK, 2).text,
    "gprm": lambda: GPRM().prompt(TASK, 2).text,
    "gorm": lambda: GORM(category="computer science").prompt(TASK, 2).text,
    "dyve": lambda: Dyve().prompt(TASK, 2).text,
    "r-prm": lambda: RPRM().prompt(TASK, 2).text,
    "r-prm-first": lambda: RPRM().prompt(TASK, 0).text,
    "processbench": lambda: ProcessBenchCritic().prompt(QUESTION, STEPS).message,
}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_prompt_has_the_bytes_of_the_makers(name: str) -> None:
    expected = (MAKERS / f"{name}-bread.txt").read_bytes()
    assert PROMPTS[name]().encode() == expected


def test_bytes_that_look_like_mistakes_are_kept() -> None:
    assert RPRM().prompt(TASK, 0).text.endswith("Reply: <|im_end|>\\n<|im_start|>assistant\\n")
    assert "<｜Assistant｜>" not in GenPRM().prompt(TASK, 0, ()).text
