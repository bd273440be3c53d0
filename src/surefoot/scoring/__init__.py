"""Scoring: the pipeline, local scorers, loading, search sessions and the score cache."""
