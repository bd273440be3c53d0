"""Shared parts: one small checkpoint of the true architecture, loaded once."""

from __future__ import annotations

import logging
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


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Removes log handlers that a test leaves behind, and restores the levels that it changes.

    `surefoot serve` logs to standard error. In a test that is a file of pytest, which is closed after the test.
    """
    loggers = [logging.getLogger(name) for name in (None, "surefoot", "uvicorn", "httpx")]
    levels = [logger.level for logger in loggers]
    handlers = list(logging.getLogger().handlers)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for handler in [handler for handler in logging.getLogger().handlers if handler not in handlers]:
        logging.getLogger().removeHandler(handler)


@pytest.fixture
def default_sigint() -> Iterator[None]:
    """Python's handler for SIGINT, here and in child processes: background jobs and some CI runners ignore SIGINT, and
    children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
