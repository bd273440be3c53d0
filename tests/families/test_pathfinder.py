"""PathFinder-PRM: two verdicts per step, of which the lower one is the score."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers import vocabulary
from helpers.small import write
from surefoot.families import TokenizerSettings, adopt_settings, check_settings
from surefoot.scoring.local import load_local

QUESTION, STEPS = "What is 0 times 3?", ["2 + 2 = 4.", "Then 4 - 1 = 5.", "So it is 5."]
TEMPLATE = """\
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe strict.<|im_end|>\\n' }}{% endif %}
{%- for turn in messages %}{{ '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' }}{% endfor %}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With this seed, some steps are right and some are wrong."""
    folder = tmp_path_factory.mktemp("pathfinder") / "PathFinder-PRM-7B"
    vocabulary_of = vocabulary.pathfinder_tokenizer_json()
    return write(folder, "qwen2", "Qwen2ForCausalLM", tokenizer=vocabulary_of, quiet=[220], seed=1)


def test_a_step_is_wrong_if_either_verdict_is_negative(folder: Path) -> None:
    """The makers' rule: the more likely of `<+>` and `<->` at each of the two slots."""
    from transformers import AutoModelForCausalLM

    scorer = load_local(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    plus, minus = (scorer.tokenizer.token(name) for name in ("<+>", "<->"))
    expected = []
    for prompt in scorer.family.prompts(scorer.tokenizer, QUESTION, STEPS):
        assert len(prompt.reads) == 2
        with torch.no_grad():
            logits = model(torch.tensor([prompt.ids])).logits[0, list(prompt.reads)]
        expected.append(bool((logits[:, minus] > logits[:, plus]).any()))
    scores = scorer.score(QUESTION, STEPS).step_scores
    assert [score is not None and score < 0.5 for score in scores] == expected == [True, False, False]


def test_the_system_message_is_that_of_the_template(folder: Path) -> None:
    scorer = load_local(folder)
    settings = TokenizerSettings(chat_template=TEMPLATE)
    family = adopt_settings(scorer.family, settings)
    prompt = scorer.tokenizer.decode(family.render(scorer.tokenizer, QUESTION, STEPS).ids)
    assert prompt.startswith("<|im_start|>system\nBe strict.<|im_end|>\n<|im_start|>user\nYou are a Math Teacher.")
    assert check_settings(family, scorer.tokenizer, settings).mismatches == ()
    changed = TokenizerSettings(chat_template=TEMPLATE.replace("turn.content", "turn.content|trim|upper"))
    (message,) = check_settings(family, scorer.tokenizer, changed).mismatches
    assert "render a probe differently" in message
