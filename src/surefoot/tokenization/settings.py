"""What a checkpoint's own tokenizer files say: its BOS token and its chat template, as transformers reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import CheckpointError
from surefoot.tokenization.chat_template import render_template

CONFIG, SPECIAL_TOKENS, TEMPLATE, TOKENIZER = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tokenizer.json",
)

Message = Mapping[str, str]
"""A chat turn: `role` and `content`."""


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings in a checkpoint's tokenizer files. What the files do not mention is None.

    settings = read_tokenizer_settings(folder)
    settings.bos_token, settings.adds_bos
    """

    files: tuple[str, ...] = ()
    """The names of the files that were found."""
    bos_token: str | None = None
    has_bos: bool | None = None
    """Whether the tokenizer has a BOS token; None if the files do not say."""
    adds_bos: bool | None = None
    """Whether the tokenizer puts the BOS token in front of a text; None if the files do not say."""
    chat_template: str | None = None
    eos_token: str | None = None

    @property
    def opening(self) -> dict[str, Any]:
        """The option `opening` of a family whose makers put the BOS token, if there is one, in front themselves."""
        return {} if self.has_bos is None else {"opening": self.bos_token}

    @property
    def added_opening(self) -> dict[str, Any]:
        """The option `opening` of a family whose makers let the tokenizer put the BOS token in front."""
        return {} if self.adds_bos is None else {"opening": self.bos_token if self.adds_bos else None}

    def render_chat(self, messages: Sequence[Message]) -> str:
        """Return a conversation as the checkpoint's chat template writes it."""
        variables = {
            "messages": list(messages),
            "bos_token": self.bos_token or "",
            "eos_token": self.eos_token or "",
            "tools": None,
            "documents": None,
            "add_generation_prompt": False,
        }
        try:
            return render_template(self.chat_template or "", variables)
        except ValueError as error:
            raise CheckpointError(f"The checkpoint's chat template fails: {error}") from error


def read_tokenizer_settings(folder: Path) -> TokenizerSettings:
    """Read tokenizer_config.json, special_tokens_map.json, chat_template.jinja and tokenizer.json, if they exist.

    >>> read_tokenizer_settings(Path("nowhere")).files
    ()
    """
    files = tuple(name for name in (CONFIG, SPECIAL_TOKENS, TEMPLATE) if (folder / name).is_file())
    config = _read_object(folder / CONFIG)
    special_tokens = _read_object(folder / SPECIAL_TOKENS)
    # Files from before `added_tokens_decoder` keep the valid values in special_tokens_map.json.
    sources = {CONFIG: config} if "added_tokens_decoder" in config else {SPECIAL_TOKENS: special_tokens, CONFIG: config}
    bos_file = next((name for name, source in sources.items() if "bos_token" in source), None)
    bos, eos = (_special_token(folder, sources, name) for name in ("bos_token", "eos_token"))
    return TokenizerSettings(
        files=files,
        bos_token=bos,
        has_bos=None if bos_file is None else bos is not None,
        adds_bos=None if bos_file is None else _adds_bos(folder, config, bos),
        chat_template=_chat_template(folder, config),
        eos_token=eos,
    )


def _adds_bos(folder: Path, config: Mapping[str, Any], bos: str | None) -> bool | None:
    """In transformers 4, tokenizers of the first Llamas obey `add_bos_token`, all others the post-processor."""
    if bos is None:
        return False
    if not (folder / TOKENIZER).is_file():
        return None
    if str(config.get("tokenizer_class", "")).startswith(("Llama", "CodeLlama")):
        return bool(config.get("add_bos_token", True))
    try:
        return bos in _first_tokens(_read_object(folder / TOKENIZER).get("post_processor"))
    except (TypeError, LookupError, AttributeError) as error:
        raise CheckpointError(f"The post-processor in {folder / TOKENIZER} is malformed: {error!r}.") from error


def _first_tokens(processor: Any) -> list[str]:
    """The special tokens that a post-processor puts in front of a text."""
    if not isinstance(processor, dict):
        return []
    if processor.get("type") == "Sequence":
        return [name for each in processor.get("processors", []) for name in _first_tokens(each)]
    found: list[str] = []
    for part in processor.get("single", []) if processor.get("type") == "TemplateProcessing" else []:
        if "SpecialToken" not in part:
            break
        found.append(part["SpecialToken"]["id"])
    return found


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    if (folder / TEMPLATE).is_file():
        return _read_text(folder / TEMPLATE)
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[-1].get("template") if named else None
    return template if isinstance(template, str) else None


def _special_token(folder: Path, sources: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    """The text of a token in the first file that has it: written as text, or as an object with `content`."""
    for file, source in sources.items():
        if name in source:
            value = source[name]
            text = value.get("content") if isinstance(value, dict) else value
            if text is not None and not isinstance(text, str):
                raise CheckpointError(f"{folder / file} sets {name!r} to {value!r}, which is not a token.")
            return text or None
    return None


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read {file}: {error}") from error


def _read_object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(_read_text(file))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"Cannot read {file}: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} must contain a JSON object.")
    return content
