"""Shared parts: one small checkpoint of the true architecture, loaded once."""

from __future__ import annotations

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
