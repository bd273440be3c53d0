"""Shared by the tests: small checkpoints, reference implementations, running servers and a browser."""
