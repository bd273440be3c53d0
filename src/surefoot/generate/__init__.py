"""Generators: prefix in, continuations out."""
