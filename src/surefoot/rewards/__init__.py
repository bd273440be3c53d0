"""Rewards from step scores: terms, recipes, token-level rewards and the reward-hacking monitor."""
