"""Surefoot beside its neighbours: one module a trainer."""
