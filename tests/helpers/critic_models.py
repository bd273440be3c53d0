"""Small language models for every critic, whose next token is known, and the scores that follow from their tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import surefoot
from helpers.policies import END, START, Table, write_chat_template, write_table_policy
from surefoot.scoring.critic_scorer import CriticScorer

R1 = (
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
)  # fmt: skip
R1_END = R1[1]
R1_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}"
    "<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
)
QUESTION = "A loaf costs $4. How much are 5 loaves?"
STEPS = ["Each loaf costs $4.", "5 * 4 = 20.", "So $20."]

GENPRM: Table = {
    START: {"It is fine.</analyze>\n": 1.0},
    "$\\boxed": {b"{": 1.0},
    b"{": {"Yes": 0.8, "No": 0.2},
    "Yes": {"}$\n</output>\n": 1.0},
    "No": {"}$\n</output>\n": 1.0},
}
THINKPRM: Table = {
    START: {"All steps hold.": 1.0},
    "All steps hold.": {R1_END: 1.0},
    "Is the solution correct?": {" yes": 0.72, " no": 0.18, "All steps hold.": 0.1},
}
GPRM: Table = {
    START: {"Step 1 holds. ": 1.0},
    "Step 1 holds. ": {"Is the solution correct?": 1.0},
    "Is the solution correct?": {" Yes": 0.3, " No": 0.7},
    " Yes": {R1_END: 1.0},
    " No": {R1_END: 1.0},
}
GORM: Table = {
    START: {"Good.": 1.0},
    "Good.": {R1_END: 1.0},
    "Is the answer correct (Yes/No)?": {" Yes": 0.9, " No": 0.1},
}
DYVE: Table = {START: {"3 + 4 = 7, so it holds.\n": 1.0}, "3 + 4 = 7, so it holds.\n": {"+": 0.6, "-": 0.4},
               "+": {R1_END: 1.0}, "-": {R1_END: 1.0}}  # fmt: skip
RPRM: Table = {
    START: {"Verification: ": 1.0},
    "Verification: ": {"Is the step correct (Yes/No)?": 1.0},
    "Is the step correct (Yes/No)?": {" Yes": 0.25, " No": 0.75},
    " Yes": {END: 1.0},
    " No": {END: 1.0},
}
YES_NO: Table = {
    START: {"The sum holds.\n": 1.0},
    "The sum holds.\n": {"Verdict:": 1.0},
    "Verdict:": {" Yes": 0.55, " No": 0.35, "The sum holds.\n": 0.1},
    " Yes": {END: 1.0},
    " No": {END: 1.0},
}
PROCESSBENCH: Table = {START: {"Paragraph 1 is wrong: \\boxed{1}": 1.0}, "Paragraph 1 is wrong: \\boxed{1}": {END: 1.0}}


def write_r1(folder: Path, table: Table) -> Path:
    """A table policy with the tokens and the chat template of DeepSeek-R1-Distill."""
    write_table_policy(folder, table, specials=R1, ends=(R1_END,))
    file = folder / "tokenizer.json"
    layout = json.loads(file.read_text())
    for token in layout["added_tokens"]:  # as in the published tokenizers, these are not special
        token["special"] = token["content"] not in ("<think>", "</think>")
    file.write_text(json.dumps(layout))
    return write_chat_template(folder, template=R1_TEMPLATE.replace("{{ bos_token }}", R1[0]), eos=R1_END)


def load_critic(folder: Path, critic: str, table: Table, **options: Any) -> CriticScorer:
    """A critic whose model is a table policy with the chat format that the critic needs."""
    write = write_table_policy if critic in ("r-prm", "yes-no", "processbench") else write_r1
    found = surefoot.load(write(folder / critic, table), critic=critic, critic_options=options)
    assert isinstance(found, CriticScorer)
    return found


EXPECTED = {
    "genprm": (GENPRM, [0.8, 0.8, 0.8], 1.0),
    "thinkprm": (THINKPRM, [0.8, 0.8, 0.8], 0.9),
    "gprm": (GPRM, [0.3, 0.3, 0.3], 1.0),
    "gorm": (GORM, [None, None, 0.9], 1.0),
    "dyve": (DYVE, [0.6, 0.6, 0.6], 1.0),
    "r-prm": (RPRM, [0.25, 0.25, 0.25], 1.0),
    "yes-no": (YES_NO, [0.55 / 0.9] * 3, 0.9),
    "processbench": (PROCESSBENCH, [1.0, 0.0, None], None),
}
"""Per critic: its model, the scores of the three steps, and the probability of both labels together."""
