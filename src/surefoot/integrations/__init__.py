"""Rewards inside trainers: one module per trainer, found by name.

from surefoot import integrations

reward = integrations.get("trl").reward_function("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", gold="answer")
"""

from surefoot.integrations.registry import Integration, available, get

__all__ = ["Integration", "available", "get"]
