"""A reward function for verifiers v1, referred to by a config file.

    [env.taskset.task.rewards]
    prm = { fn = "examples/verifiers_reward.py:score", weight = 0.5 }

The environment variable SUREFOOT_MODEL names the model. Run as a script with verifiers installed, this file scores one
trace; it then uses mini if the variable is not set.
"""

from __future__ import annotations

import asyncio
import os

from surefoot.integrations.verifiers import reward_function

score = reward_function(recipe="min")


async def main() -> None:
    import verifiers.v1 as vf

    task = vf.Task(
        vf.TaskData(prompt="What is 3 * 4?"), vf.TaskConfig(rewards={"prm": {"fn": f"{__file__}:score", "weight": 0.5}})
    )
    trace = vf.Trace(
        task=vf.TraceTask(type="Task", data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig(), name="policy", trainable=True, runtime=None),
        root_reply="Step 1: 3 * 4 = 12.\nFinal Answer: 12",
    )
    await task.score(trace)
    print(trace.rewards)


if __name__ == "__main__":
    os.environ.setdefault("SUREFOOT_MODEL", "mini")
    asyncio.run(main())
