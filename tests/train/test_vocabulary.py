"""Cutting a vocabulary: real merges, fewer of them, and every text still readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from surefoot.errors import OptionError
from surefoot.families import PromptTokenizer
from surefoot.scoring.local import load_local
from surefoot.testing import qwen_tokenizer_json, write_base
from surefoot.train.export import export
from surefoot.train.model import make_trainee
from surefoot.train.vocabulary import cut_vocabulary

LAYOUT = json.loads(qwen_tokenizer_json())
TEXTS = ["Natalia sold clips to 48 of her friends.", "Natalia sold 48 / 2 = 24 clips. 🙂", "Antidisestablishment"]


def test_what_the_texts_use_is_read_as_before() -> None:
    smaller, kept = cut_vocabulary(LAYOUT, [*TEXTS, *TEXTS], 1000)
    assert 1000 <= len(kept) < 1300
    old, new = PromptTokenizer(LAYOUT).encode(*TEXTS), PromptTokenizer(smaller).encode(*TEXTS)
    assert [[kept[number] for number in ids] for ids in new] == old


def test_every_other_text_can_still_be_read() -> None:
    smaller, _ = cut_vocabulary(LAYOUT, [], 0)
    assert len(smaller["model"]["vocab"]) == 256
    assert smaller["model"]["merges"] == []
    tokenizer = Tokenizer.from_str(json.dumps(smaller))
    for text in (*TEXTS, "Ünïcödé \x00 \n\t 中文 <|endoftext|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_token_seen_once_is_not_kept() -> None:
    smaller, _ = cut_vocabulary(LAYOUT, ["friends", "sold", "sold"], 0)
    assert "sold" in smaller["model"]["vocab"]
    assert "friends" not in smaller["model"]["vocab"]


def test_merges_may_be_written_as_one_string() -> None:
    spaced = LAYOUT | {"model": LAYOUT["model"] | {"merges": [" ".join(pair) for pair in LAYOUT["model"]["merges"]]}}
    assert cut_vocabulary(spaced, TEXTS, 300) == cut_vocabulary(LAYOUT, TEXTS, 300)


def test_other_kinds_of_vocabulary_are_refused() -> None:
    with pytest.raises(OptionError, match="Only byte-level BPE"):
        cut_vocabulary({"added_tokens": [], "model": {"type": "Unigram", "vocab": []}}, [], 5)


@pytest.mark.parametrize("family", ["mini", "mini-lm"])
def test_a_trainee_with_a_cut_vocabulary_loads_and_keeps_its_rows(family: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    whole, cut = make_trainee(base, family=family), make_trainee(base, family=family, vocabulary=(0, ["yes"]))
    rows, kept = (trainee.model.model.get_submodule("embed_tokens").get_parameter("weight") for trainee in (whole, cut))
    # The three special tokens of the base are gone; ours stand in their place.
    assert (len(rows), len(kept)) == (265, 262)
    assert rows[:256].equal(kept[:256])
    folder = export(cut, tmp_path / "out")
    assert load_local(folder).score("q", ["yes 1 + 1 = 2"]).status == "scored"


@pytest.mark.parametrize("pad", [5, 258])
def test_the_old_padding_token_is_forgotten(tmp_path: Path, pad: int) -> None:
    base = write_base(tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"pad_token_id": pad}))
    trainee = make_trainee(base, vocabulary=(0, ["yes"]))
    embedding = trainee.model.model.get_submodule("embed_tokens")
    embedding(torch.tensor([pad])).sum().backward()
    assert embedding.get_parameter("weight").grad[pad].any()  # type: ignore[index]
    assert load_local(export(trainee, tmp_path / "out")).score("q", ["yes"]).status == "scored"


def test_what_was_trained_is_not_cut(tmp_path: Path) -> None:
    trained = export(make_trainee(write_base(tmp_path / "base")), tmp_path / "prm")
    with pytest.raises(OptionError, match="is already a PRM"):
        make_trainee(trained, vocabulary=(0, ["yes"]))


def test_a_fixed_vocabulary_is_not_cut(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'qwen' cannot be cut"):
        make_trainee(write_base(tmp_path / "base", "qwen2"), vocabulary=(0, []))
