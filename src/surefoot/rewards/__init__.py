"""Rewards: recipes over scored solutions, token-level rewards and the reward-hacking monitor."""
