"""Shared parts: one small checkpoint of the true architecture, loaded once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import surefoot
from surefoot.families import PromptTokenizer
from surefoot.scoring.local import load_local
from surefoot.testing import qwen_tokenizer_json, write_qwen_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen_checkpoint(tmp_path_factory.mktemp("small") / "qwen")


@pytest.fixture(scope="session")
def scorer(checkpoint: Path) -> surefoot.Scorer:
    return load_local(checkpoint)


@pytest.fixture(scope="session")
def mini() -> surefoot.Scorer:
    """The embedded model: slower than the small checkpoint, but it has a judgement."""
    return load_local()


@pytest.fixture(scope="session")
def tokenizer() -> PromptTokenizer:
    import json

    return PromptTokenizer(json.loads(qwen_tokenizer_json()))


@pytest.fixture
def default_sigint() -> Iterator[None]:
    """Python's handler for SIGINT, here and in child processes: background jobs and some CI runners ignore SIGINT, and
    children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
