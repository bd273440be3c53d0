"""Math-Shepherd's Mistral-7B PRM, and ER-PRM, which is asked alike.

The rule: `question Step 1: ... ки`, a line break, `Step 2: ... ки`; at each tag the words `+` and `-` are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.families.base import Golden
from surefoot.families.tagged import Tagged

QUESTION = (
    "Janet\u2019s ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes muffins for her "
    "friends every day with four. She sells the remainder at the farmers' market daily for $2 per fresh duck egg. How "
    "much in dollars does she make every day at the farmers' market?"
)
STEPS = (
    "Step 1: Janet's ducks lay 16 eggs per day.",
    "Step 2: She eats three for breakfast every morning, so she has 16 - 3 = 13 eggs left.",
    "Step 3: She bakes muffins for her friends every day with four eggs, so she has 13 - 4 = 9 eggs left.",
    "Step 4: She sells the remainder at the farmers' market daily for $2 per fresh duck egg, so she makes 9 * $2 = $18 "
    "every day at the farmers' market. The answer is: 18",
)
WRONG_STEPS = (*STEPS[:3], STEPS[3].replace("18", "17"))


@dataclass(frozen=True)
class Shepherd(Tagged):
    """The tag `ки`, a line break behind it."""

    name = "shepherd"
    goldens = tuple(
        Golden(
            models=("math-shepherd-mistral-7b-prm",),
            question=QUESTION,
            steps=steps,
            scores=(0.9955, 0.9958, 0.9983, last),
            tolerance=0.02,
            source="the example of the model card, as printed in the repository openr",
        )
        for steps, last in ((STEPS, 0.9957), (WRONG_STEPS, 0.0240))
    )

    good: str = " +"
    bad: str = " -"
    tag: str = " ки"
    before: str = "\n"
    opening: str | None = "<s>"


@dataclass(frozen=True)
class ERPRM(Shepherd):
    """ER-PRM on Llama 3.1: nothing between the tag and the next step."""

    name = "er-prm"
    goldens = ()

    before: str = ""
    opening: str | None = "<|begin_of_text|>"
