"""Folders of models: existing ones are used as they are, and only the hub is asked for other names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from surefoot.data.hub import find_folder, local_folder
from surefoot.engine.checkpoint import open_config
from surefoot.errors import LoadError, OptionError
from surefoot.generate.local_model import find_model_folder
from surefoot.generate.prompt_encoder import find_tokenizer_folder

EXAMPLE = "'a/b'."
Find = Callable[[str], Any]


class Hub:
    """Takes the place of the hub, which tests do not reach: it records what is asked for."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str | None, list[str]]] = []

    def __call__(self, name: str, revision: str | None = None, allow_patterns: list[str] | None = None) -> str:
        self.asked.append((name, revision, allow_patterns or []))
        if self.folder is None:
            raise OSError("401 gated")
        return str(self.folder)


def test_a_folder_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert find_folder(tmp_path, ["*"], example=EXAMPLE) == tmp_path
    assert find_folder(f"~/{tmp_path.name}", ["*"], example=EXAMPLE) == tmp_path
    with pytest.raises(OptionError, match="revision='main' applies to models on the hub only"):
        find_folder(tmp_path, ["*"], "main", example=EXAMPLE)
    assert hub.asked == []


@pytest.mark.parametrize(
    "name", ["no model", "a/b/c", "../no-such-folder/", "a\0/b", "x" * 5000, "~nobody-has-this-name/x y"]
)
def test_a_name_that_is_neither(name: str) -> None:
    assert local_folder(name) is None
    with pytest.raises(LoadError, match="neither an existing folder nor a hub id such as 'a/b'") as raised:
        find_folder(name, ["*"], example=EXAMPLE)
    assert len(str(raised.value)) < 400


def test_what_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled weights of a PRM only if it has no others, those of a generator never, and of a tokenizer no weights."""
    hub = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    open_config("maker/prm", "v1")
    find_model_folder("maker/policy")
    find_tokenizer_folder("maker/policy")
    (tmp_path / "model.safetensors").unlink()
    open_config("maker/prm")
    assert [(name, revision) for name, revision, _ in hub.asked] == [
        ("maker/prm", "v1"),
        ("maker/policy", None),
        ("maker/policy", None),
        ("maker/prm", None),
        ("maker/prm", None),
    ]
    safetensors = ["*.safetensors" in files for *_, files in hub.asked]
    pickled = [any(file.endswith(".bin") for file in files) for *_, files in hub.asked]
    assert safetensors == [True, True, False, True, True]
    assert pickled == [False, False, False, False, True]


@pytest.mark.parametrize("find", [open_config, find_model_folder, find_tokenizer_folder])
def test_a_download_that_fails_says_what_to_do(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(None))
    with pytest.raises(LoadError, match=r"'maker/prm' is not an existing folder.*401 gated\. Check the id"):
        find("maker/prm")
