"""A hash that identifies what a loaded model computes.

Models with the same fingerprint give the same scores. It covers every byte of the weights, config.json, the tokenizer,
an adapter's weights and settings, and the load options. Names of folders and files do not matter.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.engine.file_hash import hash_file

if TYPE_CHECKING:
    from surefoot.engine.checkpoint import Checkpoint

TOKENIZER_FILES = ("*token*.json", "*.model", "*.tiktoken", "vocab.json", "vocab.txt", "merges.txt")
"""What transformers reads where there is no tokenizer.json."""


def fingerprint(checkpoint: Checkpoint, **loaded: str) -> str:
    """Return 64 hexadecimal digits. `loaded` are the load options that affect scores: dtype, quantization, family.

    >>> fingerprint(open_checkpoint("my-prm"), dtype="torch.float32")[:12]
    """
    adapter = checkpoint.adapter
    parts = [json.dumps(checkpoint.config, sort_keys=True), json.dumps(loaded, sort_keys=True)]
    # The base is known by its weights: its name may be a path.
    settings = {} if adapter is None else {k: v for k, v in adapter.settings.items() if k != "base_model_name_or_path"}
    parts.append(json.dumps(settings, sort_keys=True))
    # In an order that does not depend on where the folders are: first the base, then its adapter.
    in_order = sorted(checkpoint.files, key=lambda file: (adapter is not None and file.parent == adapter.folder, file))
    for files in (in_order, _tokenizer_files(*checkpoint.tokenizer_folders)):
        parts.append(str(len(files)))
        parts += [hash_file(file) for file in files]
    digest = sha256()
    for part in map(str.encode, parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _tokenizer_files(*folders: Path) -> list[Path]:
    """The files that decide which ids a text has, and which rows of the output layer spell a label."""
    for folder in folders:
        if (folder / "tokenizer.json").is_file():
            return [folder / "tokenizer.json"]
    return sorted({file for pattern in TOKENIZER_FILES for file in folders[-1].glob(pattern) if file.is_file()})
