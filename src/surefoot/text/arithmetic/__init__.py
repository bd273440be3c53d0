"""Exact arithmetic over the equations that a text states."""
