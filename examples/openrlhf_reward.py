"""A reward file for OpenRLHF.

    --reward.remote_url examples/openrlhf_reward.py --data.label_key answer

The environment variable SUREFOOT_MODEL names the model. Run as a script, this file prints a reply; it then uses mini if
the variable is not set.
"""

from __future__ import annotations

import json
import os

from surefoot.integrations.openrlhf import OpenRLHFReward

reward_func = OpenRLHFReward(recipe="outcome+process")


def main() -> None:
    prompt = "<|im_start|>user\nWhat is 3 * 4?<|im_end|>\n<|im_start|>assistant\n"
    query = prompt + "Step 1: 3 * 4 = 12.\nFinal Answer: 12<|im_end|>"
    print(json.dumps(reward_func([query], [prompt], ["12"]), indent=2))


if __name__ == "__main__":
    os.environ.setdefault("SUREFOOT_MODEL", "mini")
    main()
