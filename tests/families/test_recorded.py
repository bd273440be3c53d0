"""Token ids and read positions recorded from the makers' code, with the real vocabularies.

Every file in `recorded/` names its source. What is compared are the tokens up to each read, which decide its score:
whether the steps share a prompt does not matter. A record of a family without a model in the catalog has `family`
instead of `model`. `chat_template_file` names one of the published chat templates that TRL contains. An example with
`same_reads` differs only in the steps that its reads belong to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
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
from surefoot.testing import qwen_tokenizer_json

FOLDER = Path(__file__).parent / "recorded"
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MATH_SYSTEM = "Please reason step by step, and put your final answer within \\\\boxed{}."
"""The default of Qwen2.5-Math's template, as a Jinja string; otherwise the template is Qwen2.5's."""
VOCABULARIES = {
    "qwen": qwen_tokenizer_json,
    "llama": vocabulary.llama_tokenizer_json,
    "mistral": vocabulary.mistral_tokenizer_json,
    "actprm": vocabulary.actprm_tokenizer_json,
    "deepseek": vocabulary.deepseek_tokenizer_json,
    "granite": vocabulary.granite_tokenizer_json,
    "deepseek-llama": vocabulary.deepseek_llama_tokenizer_json,
    "deepseek-qwen": vocabulary.deepseek_qwen_tokenizer_json,
}


@cache
def tokenizer(name: str, added: tuple[str, ...] = ()) -> PromptTokenizer:
    """A real vocabulary, with the special tokens that the model's makers added at its end."""
    return PromptTokenizer(vocabulary.with_added_tokens(json.loads(VOCABULARIES[name]()), added))


@cache
def chat_template(name: str) -> str:
    """A published chat template, from the copies that TRL compares checkpoints with."""
    spec = find_spec("trl")
    assert spec is not None
    assert spec.submodule_search_locations
    math = name == "qwen2_5_math"
    file = Path(spec.submodule_search_locations[0]) / "chat_templates" / f"{'qwen2_5' if math else name}.jinja"
    text = file.read_text(encoding="utf-8")
    return text.replace(QWEN_SYSTEM, MATH_SYSTEM) if math else text


def settings(record: dict[str, Any]) -> TokenizerSettings:
    """The settings in the tokenizer files of the checkpoint, as published or as assumed."""
    template = record.get("chat_template_file")
    named: dict[str, Any] = {"chat_template": chat_template(template)} if template else {}
    return TokenizerSettings(**record.get("settings", {}), **named)


def records() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        for example in record["examples"]:
            yield record | {"file": file.stem}, example


Reads = list[tuple[tuple[int, ...], int | None]]
"""The tokens up to each read and, where steps have several reads, the step that it belongs to."""


def reads(ids: Sequence[int], positions: Sequence[int], ends: Sequence[int] = ()) -> Reads:
    steps = [step for step, (start, end) in enumerate(pairwise((0, *ends))) for _ in range(end - start)]
    assert not ends or len(steps) == len(positions)
    return [(tuple(ids[: at + 1]), steps[number] if ends else None) for number, at in enumerate(positions)]


def rendered(record: dict[str, Any], example: dict[str, Any]) -> Reads:
    """What Surefoot renders."""
    options = record.get("options", {})
    family = find_family([], record.get("family"), model=record.get("model", ""), options=options)
    family = adopt_settings(family, settings(record), keep=options)
    vocabulary_of = tokenizer(record["vocabulary"], tuple(record.get("added_tokens", ())))
    prompts = family.prompts(vocabulary_of, example["question"], example["steps"])
    return [read for prompt in prompts for read in reads(prompt.ids, prompt.reads, prompt.ends)]


@pytest.mark.parametrize(
    ("record", "example"),
    [pytest.param(*each, id=f"{each[0]['file']}-{each[1]['name']}") for each in records()],
)
def test_prompts_are_those_of_the_makers(record: dict[str, Any], example: dict[str, Any]) -> None:
    """Equal, or different for the documented reason: a difference that disappears must leave the catalog, too."""
    theirs = [read for each in example["prompts"] for read in reads(each["ids"], each["reads"], each.get("ends", ()))]
    ours = rendered(record, example)
    assert (ours == theirs) == (example.get("difference") is None)
    if example.get("same_reads"):
        assert [ids for ids, _ in ours] == [ids for ids, _ in theirs]


def test_the_catalog_names_what_was_recorded() -> None:
    recorded: dict[str, set[tuple[str, bool]]] = {}
    for record, example in records():
        for model in (record["model"], *record.get("same_code", ())) if "model" in record else ():
            # Text that spells structure stays text in every family, whatever the makers' code does with it.
            differs = example.get("difference") is not None and not example["name"].startswith("forged")
            recorded.setdefault(model, set()).add((record["source"], differs))
    checked = {row.id: row.makers for row in all_models() if row.makers is not None}
    assert set(checked) == set(recorded)
    for model, makers in checked.items():
        sources, different = zip(*recorded[model], strict=True)
        assert all(source.startswith(makers.source.split(",")[0]) for source in sources), model
        assert (makers.difference is not None) == any(different), model
