"""A checkpoint that loads fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.testing import byte_tokenizer_json, write_qwen_checkpoint


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete Qwen PRM whose vocabulary is the 256 bytes and a few special tokens."""
    folder = write_qwen_checkpoint(tmp_path_factory.mktemp("tiny") / "model", vocab_size=300)
    (folder / "tokenizer.json").write_text(byte_tokenizer_json("<|im_start|>", "<|im_end|>", "<extra_0>"))
    return folder
