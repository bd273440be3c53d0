"""What a checkpoint's own tokenizer files say: its BOS token and its chat template.

The files are read as transformers reads them. Templates run in Jinja's sandbox with a fixed date, so a prompt never
changes with the calendar.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from surefoot.errors import CheckpointError

CONFIG, SPECIAL_TOKENS, TEMPLATE, TOKENIZER = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tokenizer.json",
)
TODAY = datetime(2024, 7, 26)
"""The date that templates see: the default of Llama 3.1's own template."""
MAX_CHARACTERS = 1 << 20

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
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
        environment.globals |= {"raise_exception": _raise, "strftime_now": TODAY.strftime}
        try:
            pieces = environment.from_string(self.chat_template or "").generate(
                messages=list(messages), bos_token=self.bos_token or "", eos_token="", add_generation_prompt=False
            )
            return "".join(_bounded(pieces))
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise CheckpointError(f"The checkpoint's chat template fails: {type(error).__name__}: {error}") from error


def read_tokenizer_settings(folder: Path) -> TokenizerSettings:
    """Read tokenizer_config.json, special_tokens_map.json, chat_template.jinja and tokenizer.json, if they exist.

    >>> read_tokenizer_settings(Path("nowhere")).files
    ()
    """
    files = tuple(name for name in (CONFIG, SPECIAL_TOKENS, TEMPLATE) if (folder / name).is_file())
    config = _read_object(folder / CONFIG)
    special_tokens = _read_object(folder / SPECIAL_TOKENS)
    # Files from before `added_tokens_decoder` keep the valid values in special_tokens_map.json.
    sources = [config] if "added_tokens_decoder" in config else [special_tokens, config]
    source = next((source for source in sources if "bos_token" in source), None)
    bos = _token_text(source["bos_token"], folder) if source is not None else None
    return TokenizerSettings(
        files=files,
        bos_token=bos,
        has_bos=None if source is None else bos is not None,
        adds_bos=_adds_bos(config, _read_object(folder / TOKENIZER), bos) if files else None,
        chat_template=_chat_template(folder, config),
    )


def _adds_bos(config: Mapping[str, Any], layout: Mapping[str, Any], bos: str | None) -> bool | None:
    """Tokenizers of the first Llamas obey `add_bos_token`, all others the post-processor in tokenizer.json."""
    if bos is None or not layout:
        return None
    if str(config.get("tokenizer_class", "")).startswith(("Llama", "CodeLlama")):
        return bool(config.get("add_bos_token", True))
    return bos in _first_tokens(layout.get("post_processor"))


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
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token_text(value: Any, folder: Path) -> str | None:
    """A token is written as text, or as an object with its text in `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    if text is not None and not isinstance(text, str):
        raise CheckpointError(f"{folder / CONFIG} sets 'bos_token' to {value!r}, which is not a token.")
    return text or None


def _read_object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read {file}: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} must contain a JSON object.")
    return content


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_CHARACTERS:
            raise ValueError(f"it writes more than {MAX_CHARACTERS} characters")
        yield piece


def _raise(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
