"""Rewards inside trainers: one module per trainer."""
