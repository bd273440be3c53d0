"""Test-time search: strategies that choose between continuations by their scores."""
