"""A reward function for verl with custom settings.

    reward.custom_reward_function.path=examples/verl_reward.py

The environment variable SUREFOOT_MODEL names the model. Run as a script, this file calls the function like verl's
reward loop: concurrently, with one sample per call. It then uses mini if the variable is not set.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from surefoot.integrations.verl import compute_score_async


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], **more: Any
) -> dict[str, float]:
    """Called by verl. A sample without a reward gets -0.1, so that the policy learns to stay within the token limit."""
    return await compute_score_async(
        data_source, solution_str, ground_truth, extra_info, recipe="outcome+process", missing=-0.1, **more
    )


async def main() -> None:
    solutions = ["Step 1: 3 * 4 = 12.\nFinal Answer: 12", "Step 1: 3 * 4 = 13.\nFinal Answer: 13", ""]
    calls = [compute_score("sums", text, "12", {"question": "What is 3 * 4?"}) for text in solutions]
    for reward in await asyncio.gather(*calls):
        print({name: round(value, 3) for name, value in reward.items()})


if __name__ == "__main__":
    os.environ.setdefault("SUREFOOT_MODEL", "mini")
    asyncio.run(main())
