"""IBM's Granite PRMs: probabilities among all tokens, scaled logits, and a date that does not change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.small import GRANITE_Y, make_granite
from surefoot.errors import CheckpointError
from surefoot.families import TokenizerSettings, check_settings
from surefoot.scoring.local import load_local

QUESTION, STEPS = "How much is 2 + 2?", ["2 + 2 = 4.", "So it is 4."]
NAME = "granite-3.3-8b-math-prm-v2"
TEMPLATE = """\
{%- if messages[0].role == 'system' %}{% set text = messages[0].content %}{% set turns = messages[1:] %}
{%- else %}{% set text = "Today's Date: " + strftime_now('%B %d, %Y') %}{% set turns = messages %}{% endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + text + '<|end_of_text|>\\n' }}
{%- for turn in turns %}
{{- '<|start_of_role|>' + turn.role + '<|end_of_role|>' + turn.content + '<|end_of_text|>\\n' }}
{%- endfor %}"""
"""The parts of Granite's template that a conversation without tools and documents uses."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_granite(tmp_path_factory.mktemp("granite") / NAME)


def test_scores_are_probabilities_among_all_tokens(folder: Path) -> None:
    """As on the model card: the softmax over all logits of transformers' own class."""
    from transformers import AutoModelForCausalLM

    scorer = load_local(folder)
    (prompt,) = scorer.family.prompts(scorer.tokenizer, QUESTION, STEPS)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([prompt.ids])).logits[0]
    expected = logits.softmax(-1)[list(prompt.reads), GRANITE_Y].tolist()
    assert scorer.score(QUESTION, STEPS).step_scores == pytest.approx(expected, abs=1e-5)
    assert max(expected) > 0.01


def test_another_scaling_of_the_logits_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'logits_scaling' to 16.0, but this family divides logits by 8.0"):
        load_local(folder, family_options={"logits_scaling": 8.0})
    anonymous = tmp_path / "any name"
    anonymous.symlink_to(folder, target_is_directory=True)
    with pytest.raises(CheckpointError, match=r"'logits_scaling' to 16.0, but this family divides logits by 1.0"):
        load_local(anonymous, family="rlhflow")


def test_the_date_is_pinned_and_a_system_message_replaces_it(folder: Path) -> None:
    scorer = load_local(folder)
    family, tokenizer = scorer.family, scorer.tokenizer
    assert "Today's Date: April 1, 2025.\n" in tokenizer.decode(family.render(tokenizer, QUESTION, STEPS).ids)
    other = load_local(folder, family_options={"date": "June 24, 2025"}).family
    assert "Today's Date: June 24, 2025.\n" in tokenizer.decode(other.render(tokenizer, QUESTION, STEPS).ids)
    replaced = tokenizer.decode(family.render(tokenizer, QUESTION, STEPS, "Be strict.").ids)
    assert replaced.startswith("<|start_of_role|>system<|end_of_role|>Be strict.<|end_of_text|>\n<|start_of_role|>user")


def test_the_checkpoints_template_is_compared(folder: Path) -> None:
    scorer = load_local(folder)
    same = check_settings(scorer.family, scorer.tokenizer, TokenizerSettings(chat_template=TEMPLATE))
    assert same.mismatches == ()
    changed = TokenizerSettings(chat_template=TEMPLATE.replace("'<|end_of_text|>\\n'", "'<|end_of_text|>'"))
    (message,) = check_settings(scorer.family, scorer.tokenizer, changed).mismatches
    assert "render a probe differently" in message
