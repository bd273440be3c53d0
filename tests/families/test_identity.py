"""`Family.identity()`, which keys caches and calibrations: stable across refactoring, different for other options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.serving import served
from surefoot.families import FAMILIES, Family, with_options
from surefoot.families.qwen import Qwen

QWEN = (
    r'{"family": "qwen", "options": {"default_system": "Please reason step by step, and put your final answer within '
    r'\\boxed{}.", "marker": "<extra_0>", "system_from_template": false}}'
)
CHOICES = {"sum": "increment", "chatml": "llama3", "llama3": "chatml"}
"""Another value for options that do not accept any text."""


@pytest.mark.parametrize(
    ("name", "options", "identity"),
    [
        ("mini", {}, '{"family": "mini", "options": {}}'),
        ("qwen", {}, QWEN),
        (
            "qwen",
            {"default_system": None},
            '{"family": "qwen", "options": {"default_system": null, "marker": "<extra_0>", '
            '"system_from_template": false}}',
        ),
        (
            "trl",
            {},
            r'{"family": "trl", "options": {"joint": false, "margin": false, "opening": null, "separator": "\n"}}',
        ),
        (
            "trl",
            {"margin": True, "separator": "\n\n"},
            r'{"family": "trl", "options": {"joint": false, "margin": true, "opening": null, "separator": "\n\n"}}',
        ),
        (
            "er-prm",
            {},
            r'{"family": "er-prm", "options": {"bad": " -", "before": "", "between": " ", "good": " +", '
            r'"number_steps": true, "opening": "<|begin_of_text|>", "strip": false, '
            r'"strip_question": false, "tag": " \u043a\u0438"}}',
        ),
        (
            "implicit",
            {"reference": "a/b", "coefficient": 0.05, "default_system": None},
            '{"family": "implicit", "options": {"chat": "chatml", "coefficient": 0.05, "default_system": null, '
            '"number_steps": true, "reading": "sum", "reference": "a/b"}}',
        ),
    ],
)
def test_identities_are_pinned(name: str, options: dict[str, Any], identity: str) -> None:
    """A change here invalidates all stored scores and calibrations of the family, so it must be intentional."""
    assert with_options(FAMILIES[name], options).identity() == identity


def variants(family: Family) -> Iterator[Family]:
    """The family with one option changed at a time, to each type of value that it accepts."""
    for field in fields(family):
        value = getattr(family, field.name)
        if isinstance(value, bool):
            others: list[Any] = [not value]
        elif isinstance(value, int | float):
            others = [value * 2 + 1]
        else:
            others = [CHOICES.get(value, f"{value} other")]
            if "None" in str(field.type):
                others.append("None" if value is None else None)
        for other in others:
            yield with_options(family, {field.name: other})


def test_every_family_and_every_option_changes_the_identity() -> None:
    found = [one for family in FAMILIES.values() for one in (family, *variants(family))]
    assert len(found) > len(FAMILIES) + 40
    assert len({one.identity() for one in found}) == len(found)


@dataclass(frozen=True)
class MovedElsewhere(Qwen):
    """The same family under another class name in another module."""


@pytest.fixture(scope="module")
def url(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer]) as (url, _):
        yield url


def test_names_in_the_code_do_not_change_the_identity(
    checkpoint: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the family, the fingerprint depends only on its identity."""

    def marks(**options: Any) -> tuple[str, str]:
        elsewhere = surefoot.load(f"vllm+{url}", tokenizer=checkpoint)
        return surefoot.load(checkpoint, **options).fingerprint, elsewhere.fingerprint

    before = marks()
    monkeypatch.setitem(FAMILIES, "qwen", MovedElsewhere())
    assert repr(FAMILIES["qwen"]) != repr(Qwen())
    assert marks() == before
    monkeypatch.setitem(FAMILIES, "qwen", Qwen(default_system=None))
    changed = marks()
    assert not set(changed) & set(before)
    monkeypatch.setitem(FAMILIES, "qwen", Qwen())
    assert marks(family_options={"default_system": None})[0] == changed[0]
