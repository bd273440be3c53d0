"""A reward function for verl with settings of its own.

    reward.custom_reward_function.path=examples/verl_reward.py

Run as a script, it does what verl's reward loop does: it asks for many samples at once, each in a call of its own. The
variable SUREFOOT_MODEL names the model; the script takes mini if it is not set.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from surefoot.integrations.verl import compute_score_async


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], **more: Any
) -> dict[str, float]:
    """What verl calls. A sample without a reward gets -0.1 here: this policy is to keep within the token limit."""
    return await compute_score_async(
        data_source, solution_str, ground_truth, extra_info, recipe="outcome+process", missing=-0.1, **more
    )


async def main() -> None:
    solutions = ["Step 1: 3 * 4 = 12.\nFinal Answer: 12", "Step 1: 3 * 4 = 13.\nFinal Answer: 13", ""]
    asked = [compute_score("sums", text, "12", {"question": "What is 3 * 4?"}) for text in solutions]
    for told in await asyncio.gather(*asked):
        print({name: round(value, 3) for name, value in told.items()})


if __name__ == "__main__":
    os.environ.setdefault("SUREFOOT_MODEL", "mini")
    asyncio.run(main())
