"""Token ids and read positions recorded from the makers' code, with the real vocabularies.

Every file in `recorded/` names its source. Ids are compared up to the last read: what follows cannot change a score.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helpers import vocabulary
from surefoot.families import (
    PromptTokenizer,
    TokenizerSettings,
    adopt_settings,
    all_models,
    find_family,
)
from surefoot.families.tokenizer import parse_tokenizer
from surefoot.testing import qwen_tokenizer_json

FOLDER = Path(__file__).parent / "recorded"
VOCABULARIES = {
    "qwen": qwen_tokenizer_json,
    "llama": vocabulary.llama_tokenizer_json,
    "mistral": vocabulary.mistral_tokenizer_json,
    "actprm": vocabulary.actprm_tokenizer_json,
}


@cache
def tokenizer(name: str, added: tuple[str, ...] = ()) -> PromptTokenizer:
    """A real vocabulary, with the special tokens that the model's makers added at its end."""
    layout = json.loads(VOCABULARIES[name]())
    template = layout["added_tokens"][0]
    end = max(parse_tokenizer(VOCABULARIES[name]()).vocab_size, 0)
    layout["added_tokens"] += [template | {"content": each, "id": end + at} for at, each in enumerate(added)]
    return PromptTokenizer(layout)


def records() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        for example in record["examples"]:
            yield record, example


def rendered(record: dict[str, Any], example: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """What Surefoot renders: the ids up to the last read, and the reads, of every prompt."""
    options = record.get("options", {})
    family = find_family([], model=record["model"], options=options)
    family = adopt_settings(family, TokenizerSettings(**record.get("settings", {})), keep=options)
    vocabulary_of = tokenizer(record["vocabulary"], tuple(record.get("added_tokens", ())))
    prompts = family.prompts(vocabulary_of, example["question"], example["steps"])
    return [(list(prompt.ids[: prompt.reads[-1] + 1]), list(prompt.reads)) for prompt in prompts]


@pytest.mark.parametrize(
    ("record", "example"),
    [pytest.param(*each, id=f"{each[0]['model']}-{each[1]['name']}") for each in records()],
)
def test_prompts_are_those_of_the_makers(record: dict[str, Any], example: dict[str, Any]) -> None:
    """Equal, or different for the documented reason: a difference that disappears must leave the catalog, too."""
    theirs = [(prompt["ids"][: prompt["reads"][-1] + 1], prompt["reads"]) for prompt in example["prompts"]]
    assert (rendered(record, example) == theirs) == (example.get("difference") is None)


def test_the_catalog_names_what_was_recorded() -> None:
    recorded: dict[str, set[tuple[str, bool]]] = {}
    for record, example in records():
        for model in (record["model"], *record.get("same_code", ())):
            recorded.setdefault(model, set()).add((record["source"], example.get("difference") is not None))
    checked = {row.id: row.makers for row in all_models() if row.makers is not None}
    assert set(checked) == set(recorded)
    for model, makers in checked.items():
        sources, differs = zip(*recorded[model], strict=True)
        assert all(source.startswith(makers.source.split(",")[0]) for source in sources), model
        assert (makers.difference is not None) == any(differs), model
