"""The ids and read positions of every family equal those of the authors' code, with the real vocabularies."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from helpers import vocabulary
from surefoot.core.prompt import Prompt
from surefoot.errors import CheckpointError, OptionError
from surefoot.families import FAMILIES, Family, PromptTokenizer, find_goldens, with_options
from surefoot.families.actprm import PROCESSBENCH_SYSTEM
from surefoot.families.fover import FIRST_TURN
from surefoot.families.turns import LLAMA_SYSTEM
from surefoot.testing import qwen_tokenizer_json
from surefoot.tokenization.tokenizer import parse_tokenizer

QUESTION, STEPS = find_goldens(FAMILIES["shepherd"])[0].question, find_goldens(FAMILIES["shepherd"])[0].steps
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
VOCABULARIES = {
    "qwen": qwen_tokenizer_json,
    "llama": vocabulary.llama_tokenizer_json,
    "mistral": vocabulary.mistral_tokenizer_json,
    "actprm": vocabulary.actprm_tokenizer_json,
}
# Letters at both ends: white space between pieces is tested separately.
word = st.text(st.sampled_from("ab12 .,+-=$()\\\n"), max_size=20).map(lambda text: f"a{text}b")


@cache
def tokenizer(name: str) -> PromptTokenizer:
    return parse_tokenizer(VOCABULARIES[name]())


@cache
def whole(name: str) -> Tokenizer:
    return Tokenizer.from_str(VOCABULARIES[name]())


def family(name: str, **options: object) -> Family:
    return with_options(FAMILIES[name], options)


def joint(name: str, text: str) -> list[int]:
    ids: list[int] = whole(name).encode(text, add_special_tokens=False).ids
    return ids


def check(prompt: Prompt, ids: list[int], at: int, reads: int) -> None:
    """Up to its last read, the prompt has these ids, and it reads every occurrence of `at`, as the authors do."""
    assert list(prompt.ids) == ids
    assert prompt.reads == tuple(place for place, token in enumerate(ids) if token == at)
    assert len(prompt.reads) == reads


def shepherd_text(question: str, steps: tuple[str, ...], before: str = "\n") -> str:
    return f"{question} " + before.join(f"{step} ки" for step in steps)


def test_shepherd() -> None:
    prompt = FAMILIES["shepherd"].render(tokenizer("mistral"), QUESTION, STEPS)
    check(prompt, joint("mistral", "<s>" + shepherd_text(QUESTION, STEPS)), 12902, 4)
    assert prompt.ids[0] == 1
    assert [tokenizer("mistral").single_token(word) for word in (" +", " -", " ки")] == [648, 387, 12902]
    assert prompt.reads == (89, 120, 156, 208)
    assert list(prompt.ids[1:]) == vocabulary.mistral_pieces().encode(shepherd_text(QUESTION, STEPS))
    unlabelled = [step.split(": ", 1)[1] for step in STEPS]
    assert FAMILIES["shepherd"].render(tokenizer("mistral"), QUESTION, unlabelled) == prompt


def test_newer_layouts_of_the_same_vocabulary_give_the_same_ids() -> None:
    """Some repositories define Mistral's prefix space in a pre-tokenizer instead of a normalizer."""
    layout = json.loads(vocabulary.mistral_tokenizer_json())
    layout["normalizer"] = None
    layout["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    prompt = FAMILIES["shepherd"].render(PromptTokenizer(layout), QUESTION, STEPS)
    assert prompt == FAMILIES["shepherd"].render(tokenizer("mistral"), QUESTION, STEPS)


def test_er_prm() -> None:
    prompt = FAMILIES["er-prm"].render(tokenizer("llama"), QUESTION, STEPS)
    check(prompt, joint("llama", "<|begin_of_text|>" + shepherd_text(QUESTION, STEPS, "")), 116624, 4)
    assert [tokenizer("llama").single_token(word) for word in (" +", " -")] == [489, 482]


def test_math_psa() -> None:
    tag = " \n\n\n\n\n"
    prompt = FAMILIES["math-psa"].render(tokenizer("qwen"), QUESTION, STEPS)
    check(prompt, joint("qwen", f"{QUESTION} " + " ".join(step + tag for step in STEPS)), 76325, 4)
    assert [tokenizer("qwen").single_token(word) for word in (" +", " -")] == [488, 481]


@pytest.mark.parametrize(("name", "opening", "tag"), [("llama", "<|begin_of_text|>", 23535), ("qwen", None, 22701)])
def test_versa(name: str, opening: str | None, tag: int) -> None:
    prompt = family("versa", opening=opening).render(tokenizer(name), QUESTION, STEPS)
    text = f"{opening or ''}{QUESTION} \n\n" + "".join(f"{step} \n\n\n\n" for step in STEPS)
    check(prompt, joint(name, text), tag, 4)
    assert [tokenizer(name).single_token(word) for word in "+-"] == [10, 12]


def llama_turn(role: str, text: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"


def test_rlhflow() -> None:
    prompt = FAMILIES["rlhflow"].render(tokenizer("llama"), QUESTION, STEPS)
    turns = [f"{QUESTION} {STEPS[0]}", *STEPS[1:]]
    text = f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{LLAMA_SYSTEM}<|eot_id|>" + "".join(
        llama_turn("user", turn) + llama_turn("assistant", "+") for turn in turns
    )
    assert list(prompt.ids) == joint("llama", text)
    label = (128006, 78191, 128007, 271, 10, 128009)
    places = [at for at in range(len(prompt.ids)) if prompt.ids[at : at + 6] == label]
    assert prompt.reads == tuple(at + 3 for at in places)
    assert len(places) == 4
    # Without the preamble the conversation starts with the user.
    bare = family("rlhflow", preamble=None).render(tokenizer("llama"), QUESTION, STEPS)
    assert bare.ids[:3] == (128000, 128006, 882)


@pytest.mark.parametrize("name", ["llama", "qwen"])
def test_fover(name: str) -> None:
    golden = find_goldens(FAMILIES["fover"])[0]
    chat = {} if name == "llama" else {"chat": "chatml", "preamble": QWEN_SYSTEM}
    prompt = family("fover", **chat).render(tokenizer(name), golden.question, golden.steps)
    turns = [FIRST_TURN.format(question=golden.question, step=golden.steps[0]), *golden.steps[1:]]
    if name == "llama":
        text = f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{LLAMA_SYSTEM}<|eot_id|>" + "".join(
            llama_turn("user", turn) + llama_turn("assistant", "correct") for turn in turns
        )
    else:
        text = f"<|im_start|>system\n{QWEN_SYSTEM}<|im_end|>\n" + "".join(
            f"<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\ncorrect<|im_end|>\n" for turn in turns
        )
    assert list(prompt.ids) == joint(name, text)
    labels, before = ((20523, 63054), 271) if name == "llama" else ((19928, 61954), 198)
    assert (tokenizer(name).single_token("correct"), tokenizer(name).single_token("incorrect")) == labels
    assert [(prompt.ids[at], prompt.ids[at + 1]) for at in prompt.reads] == [(before, labels[0])] * 3


@pytest.mark.parametrize(("separator", "ids"), [("\n", [198]), ("\\n\\n", [1699, 1699]), ("\n\n", [271])])
def test_trl_tokenizes_each_piece_separately(separator: str, ids: list[int]) -> None:
    prompt = family("trl", separator=separator).render(tokenizer("qwen"), QUESTION, STEPS)
    expected = joint("qwen", QUESTION)
    reads = []
    for step in STEPS:
        expected += joint("qwen", step) + ids
        reads.append(len(expected) - 1)
    assert list(prompt.ids) == expected
    assert prompt.reads == tuple(reads)
    # Tokenized at once, a full stop and the separator would become one token, which did not occur in training.
    assert joint("qwen", STEPS[0] + "\n")[-1] == 624


def test_skywork_reads_only_its_own_line_breaks() -> None:
    steps = ["First line.\nSecond line.", "\n\nThird.\n\n\nFourth.\n"]
    prompt = FAMILIES["skywork"].render(tokenizer("qwen"), "How many?", steps)
    expected = [151644, *joint("qwen", "How many?\n")]
    reads = []
    for lines in (["First line.", "Second line."], ["", "", "Third.", "", "", "Fourth.", ""]):
        for line in lines:
            expected += [*joint("qwen", line), 198]
        reads.append(len(expected) - 1)
    assert list(prompt.ids) == expected
    assert prompt.reads == tuple(reads)


def test_actprm_has_its_own_marker() -> None:
    steps = [" 1 + 1 = 2. ", "So 2."]
    start = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
    prompt = FAMILIES["actprm"].render(tokenizer("actprm"), "How many?", steps)
    text = start.format("Please reason step by step, and put your final answer within \\boxed{}.")
    check(prompt, joint("actprm", f"{text} 1 + 1 = 2. <extra_0>So 2.<extra_0><|im_end|>\n"), 151665, 2)
    evaluation = family("actprm", default_system=PROCESSBENCH_SYSTEM, strip=True)
    text = start.format(
        "You are a helpful and harmless assistant. You should think step-by-step and put your final answer within "
        "\\boxed{}."
    )
    prompt = evaluation.render(tokenizer("actprm"), "How many?", steps)
    check(prompt, joint("actprm", f"{text}1 + 1 = 2.<extra_0>So 2.<extra_0><|im_end|>\n"), 151665, 2)


def test_universal_has_one_prompt_per_step() -> None:
    (golden,) = find_goldens(FAMILIES["universal"])
    prompts = FAMILIES["universal"].prompts(tokenizer("qwen"), golden.question, golden.steps)
    start = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{golden.question}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert len(prompts) == 5
    for count, prompt in enumerate(prompts, start=1):
        answer = "\n\n".join(golden.steps[:count]) + "\n\n"
        assert list(prompt.ids) == [*joint("qwen", start), *joint("qwen", answer), 151645]
        assert prompt.reads == (len(prompt.ids) - 1,)
    bare = FAMILIES["universal"].render(tokenizer("qwen"), "How many?", ["Two."])
    said = "How many?\n\n###\n\nThe reference answer is: There is no reference answer for this question."
    assert list(bare.ids[: bare.prefix]) == joint("qwen", start.replace(golden.question, said))


def test_llemma() -> None:
    steps = ["One\n\n\nline.", "Two."]
    prompt = FAMILIES["llemma"].render(tokenizer("mistral"), "How many?", steps)
    text = "<s># Question\n\nHow many?\n\n# Solution\n\nOne\nline.\n\nTwo.\n\n"
    assert list(prompt.ids) == joint("mistral", text)
    blank = [at for at in range(len(prompt.ids) - 1) if prompt.ids[at : at + 2] == (13, 13)]
    assert list(prompt.reads) == blank[-2:]


def test_reasoneval() -> None:
    golden = find_goldens(FAMILIES["reasoneval"])[0]
    prompt = FAMILIES["reasoneval"].render(tokenizer("mistral"), golden.question, golden.steps)
    # The authors put the BOS token between the steps and remove it afterwards.
    text = f"Question:\n{golden.question}\nAnswer:\nLet's think step by step.\n<s>" + "<s>".join(golden.steps) + "<s>"
    ids = [1, *joint("mistral", text)]
    cuts = [at for at, token in enumerate(ids) if token == 1][1:]
    assert list(prompt.ids) == [1, *(token for token in ids[1:] if token != 1)]
    assert prompt.reads == tuple(cut - 1 - number for number, cut in enumerate(cuts))[1:]


def test_babelscape() -> None:
    prompt = FAMILIES["babelscape"].render(tokenizer("llama"), "How many?", ["One.", "Two"])
    text = "<|begin_of_text|>Problem: How many?\nSteps:\nStep 1: One.\nки\nStep 2: Two\nки"
    check(prompt, joint("llama", text), 17165, 2)


def test_implicit_reads_every_token_of_the_solution() -> None:
    prompt = FAMILIES["implicit"].render(tokenizer("qwen"), "How many?", ["One.", "Two"])
    start = (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert list(prompt.ids) == joint("qwen", start + "Step 1: One.\n\nStep 2: Two<|im_end|>")
    first = len(joint("qwen", start))
    assert prompt.reads == tuple(range(first - 1, len(prompt.ids) - 1))
    assert prompt.targets == prompt.ids[first:]
    assert prompt.ends == (len(joint("qwen", "Step 1: One.\n\n")), len(prompt.targets))
    cut = prompt.cut(prompt.reads[prompt.ends[1] - 1])
    assert cut.steps == 1
    assert len(cut.reads) == len(cut.targets) == prompt.ends[0]


JOINT: dict[str, tuple[str, Callable[[str, tuple[str, ...]], str]]] = {
    "shepherd": ("mistral", lambda q, s: "<s>" + shepherd_text(q, s)),
    "er-prm": ("llama", lambda q, s: "<|begin_of_text|>" + shepherd_text(q, s, "")),
    "math-psa": ("qwen", lambda q, s: f"{q} " + " ".join(f"{step} \n\n\n\n\n" for step in s)),
    "versa": ("llama", lambda q, s: f"<|begin_of_text|>{q} \n\n" + "".join(f"{step} \n\n\n\n" for step in s)),
    "babelscape": (
        "llama",
        lambda q, s: f"<|begin_of_text|>Problem: {q}\nSteps:" + "".join(f"\n{step}\nки" for step in s),
    ),
    "llemma": (
        "mistral",
        lambda q, s: (
            f"<s># Question\n\n{q}\n\n# Solution\n\n"
            + "".join(f"{step}\n\n" for step in (_condensed(step) for step in s))
        ),
    ),
}


def _condensed(step: str) -> str:
    while "\n\n" in step:
        step = step.replace("\n\n", "\n")
    return step


@pytest.mark.parametrize("name", JOINT)
@given(question=word, steps=st.lists(word, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_pieces_give_the_ids_of_the_whole_text(name: str, question: str, steps: list[str]) -> None:
    """Pieces end where a token of the whole text ends, for any text without white space at their ends."""
    labelled = tuple(f"Step {at}: {step}" for at, step in enumerate(steps, start=1))
    used, text = JOINT[name]
    prompt = FAMILIES[name].render(tokenizer(used), question, labelled)
    assert list(prompt.ids) == joint(used, text(question, labelled))
    assert len(prompt.reads) == len(steps)


@pytest.mark.parametrize(
    ("name", "vocabulary_name", "message"),
    [
        ("shepherd", "qwen", "no single token for ' ки'"),
        ("versa", "mistral", "no single token"),
        ("math-psa", "mistral", "no single token"),
        ("babelscape", "mistral", "no special token '<|begin_of_text|>'|no single token"),
        ("qwen", "mistral", "no special token '<|im_start|>'"),
        ("rlhflow", "qwen", "no special token '<|begin_of_text|>'"),
        ("llemma", "qwen", "no special token '<s>'"),
    ],
)
def test_a_different_vocabulary_is_rejected(name: str, vocabulary_name: str, message: str) -> None:
    import re

    pattern = "|".join(re.escape(part) for part in message.split("'|"))
    with pytest.raises(CheckpointError, match=pattern):
        FAMILIES[name].render(tokenizer(vocabulary_name), "q", ["s"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("trl", {"seperator": "\n"}, "has no option 'seperator'. Its options: separator \\(now '\\\\n'\\), margin"),
        ("trl", {"separator": 3}, "separator=3 of the family 'trl' must be of type str"),
        ("trl", {"margin": "yes"}, "margin='yes' .* must be of type bool"),
        ("trl", {"separator": ""}, "separator is empty"),
        ("implicit", {"reading": "product"}, "reading='product' is not supported. Choose one of: sum, increment"),
        ("implicit", {"coefficient": True}, "must be of type float"),
        ("rlhflow", {"chat": "alpaca"}, "chat='alpaca' is not supported"),
        ("mini", {"x": 1}, "Its options: none"),
    ],
)
def test_invalid_family_options_are_reported(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        family(name, **options)


@pytest.mark.parametrize("name", ["shepherd", "trl", "skywork", "llemma", "reasoneval", "babelscape", "mini"])
def test_families_without_a_system_message_reject_one(name: str) -> None:
    with pytest.raises(OptionError, match="has no system message"):
        FAMILIES[name].render(tokenizer("qwen"), "q", ["s"], "Be strict.")
