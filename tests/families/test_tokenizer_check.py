"""What a checkpoint's tokenizer files say. transformers' own tokenizers are the reference."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers import vocabulary
from helpers.small import write
from surefoot.errors import CheckpointError
from surefoot.families import (
    FAMILIES,
    PromptTokenizer,
    TokenizerSettings,
    adopt_settings,
    check_settings,
    find_family,
    read_tokenizer_settings,
    with_options,
)
from surefoot.scoring.local import load_local
from surefoot.testing import qwen_tokenizer_json, write_qwen_checkpoint

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a stock assistant.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)
LLAMA_SHORT = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
)
LLAMA_DATED = (
    "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: {{ strftime_now('%d %b %Y') }}\n\n<|eot_id|>" + LLAMA_SHORT.removeprefix("{{ bos_token }}")
)


def folder(path: Path, tokenizer: str, **files: dict[str, Any] | str) -> Path:
    """A folder with a tokenizer.json and other tokenizer files; `__` in a name stands for a dot."""
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(tokenizer)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / name.replace("__", ".")).write_text(text)
    return path


def with_post_processor(tokenizer: str, bos: str, number: int) -> str:
    layout = json.loads(tokenizer)
    layout["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {bos: {"id": bos, "ids": [number], "tokens": [bos]}},
            },
        ],
    }
    return json.dumps(layout)


BEGIN = "<|begin_of_text|>"
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
DECODER: dict[str, Any] = {"added_tokens_decoder": {}}


@pytest.mark.parametrize(
    ("files", "bos", "has_bos"),
    [
        ({}, None, None),
        ({"tokenizer_config__json": GENERIC}, None, None),
        ({"tokenizer_config__json": {**GENERIC, **DECODER, "bos_token": "<|im_start|>"}}, "<|im_start|>", True),
        ({"tokenizer_config__json": {**GENERIC, **DECODER, "bos_token": None}}, None, False),
        (
            {"tokenizer_config__json": {**GENERIC, **DECODER, "bos_token": {"content": "<|im_start|>"}}},
            "<|im_start|>",
            True,
        ),
        # Without added_tokens_decoder, special_tokens_map.json wins, as in transformers.
        (
            {
                "tokenizer_config__json": {**GENERIC, "bos_token": "<|im_end|>"},
                "special_tokens_map__json": {"bos_token": "<|im_start|>"},
            },
            "<|im_start|>",
            True,
        ),
        (
            {
                "tokenizer_config__json": {**GENERIC, **DECODER, "bos_token": "<|im_end|>"},
                "special_tokens_map__json": {"bos_token": "<|im_start|>"},
            },
            "<|im_end|>",
            True,
        ),
        ({"special_tokens_map__json": {"bos_token": {"content": "<|im_start|>"}}}, "<|im_start|>", True),
    ],
)
def test_the_bos_token_is_that_of_transformers(
    tmp_path: Path, files: dict[str, Any], bos: str | None, has_bos: bool | None
) -> None:
    settings = read_tokenizer_settings(folder(tmp_path, qwen_tokenizer_json(), **files))
    assert (settings.bos_token, settings.has_bos) == (bos, has_bos)
    if "tokenizer_config__json" in files:
        from transformers import AutoTokenizer

        content = dict(files["tokenizer_config__json"])
        if isinstance(content.get("bos_token"), dict):
            content["bos_token"] |= {"__type": "AddedToken", "special": True}
            folder(tmp_path, qwen_tokenizer_json(), tokenizer_config__json=content)
        assert AutoTokenizer.from_pretrained(tmp_path).bos_token == bos


@pytest.mark.parametrize("adds", [True, False])
def test_whether_the_bos_token_is_added_is_that_of_transformers(tmp_path: Path, adds: bool) -> None:
    from transformers import AutoTokenizer

    text = vocabulary.llama_tokenizer_json()
    tokenizer = with_post_processor(text, BEGIN, 128000) if adds else text
    config = {**GENERIC, **DECODER, "bos_token": BEGIN}
    settings = read_tokenizer_settings(folder(tmp_path, tokenizer, tokenizer_config__json=config))
    assert settings.adds_bos is adds
    assert (AutoTokenizer.from_pretrained(tmp_path)("a")["input_ids"][0] == 128000) is adds
    assert settings.added_opening == {"opening": BEGIN if adds else None}


@pytest.mark.parametrize(("value", "adds"), [(True, True), (False, False), (None, True)])
def test_the_first_llamas_have_a_setting_for_it(tmp_path: Path, value: bool | None, adds: bool) -> None:
    """As LlamaTokenizerFast of transformers 4.57.6 does, with which these models were published."""
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", **DECODER}
    config |= {} if value is None else {"add_bos_token": value}
    settings = read_tokenizer_settings(
        folder(tmp_path, vocabulary.mistral_tokenizer_json(), tokenizer_config__json=config)
    )
    assert settings.adds_bos is adds


def test_a_tokenizer_without_bos_token_adds_none(tmp_path: Path) -> None:
    config = {**GENERIC, **DECODER, "bos_token": None}
    settings = read_tokenizer_settings(folder(tmp_path, qwen_tokenizer_json(), tokenizer_config__json=config))
    assert settings.added_opening == {"opening": None}


def test_chat_templates_are_found_in_every_place(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": CHATML}]
    for files in (
        {"tokenizer_config__json": {"chat_template": CHATML}},
        {"tokenizer_config__json": {"chat_template": named}},
        {"tokenizer_config__json": {"chat_template": "old"}, "chat_template__jinja": CHATML},
    ):
        settings = read_tokenizer_settings(folder(tmp_path, "{}", **files))
        assert settings.chat_template == CHATML


EVERYTHING = (
    "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% continue %}{% endif %}{% generation %}"
    "{{ m | tojson }}{{ eos_token }}{% endgeneration %}{% endfor %}"
    "{% if tools is not none or documents is not none %}tools{% endif %}"
)


@pytest.mark.parametrize("template", [CHATML, LLAMA_SHORT, EVERYTHING])
def test_templates_render_as_in_transformers(tmp_path: Path, template: str) -> None:
    from transformers import AutoTokenizer

    text = vocabulary.llama_tokenizer_json()
    config = {**GENERIC, **DECODER, "bos_token": BEGIN, "eos_token": "<|eot_id|>"}
    path = folder(tmp_path, text, tokenizer_config__json=config, chat_template__jinja=template)
    messages = [{"role": "user", "content": " How many? "}, {"role": "assistant", "content": "Two.\n"}]
    wanted = AutoTokenizer.from_pretrained(path).apply_chat_template(messages, tokenize=False)
    assert read_tokenizer_settings(path).render_chat(messages) == wanted


def test_the_date_of_a_template_is_fixed() -> None:
    settings = TokenizerSettings(chat_template=LLAMA_DATED, bos_token=BEGIN, has_bos=True)
    assert "Today Date: 26 Jul 2024\n" in settings.render_chat([])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{% for", "TemplateSyntaxError"),
        ("{{ messages[0].content.nothing() }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", "more than 1048576 characters"),
        ("{% for a in range(1000000) %}{% endfor %}", "OverflowError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "more than 2 seconds of computing",
        ),
        ("{% set text = 'x' * 8000000000 %}", "MemoryError"),
    ],
)
def test_a_template_that_fails_is_reported(template: str, message: str) -> None:
    settings = TokenizerSettings(chat_template=template)
    with pytest.raises(CheckpointError, match=message):
        settings.render_chat([{"role": "user", "content": "?"}])
    tokenizer = PromptTokenizer(json.loads(qwen_tokenizer_json()))
    (mismatch,) = check_settings(FAMILIES["qwen"], tokenizer, settings).mismatches
    assert message in mismatch


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config__json", "{", "Cannot read .*tokenizer_config.json"),
        ("tokenizer_config__json", "[]", "must contain a JSON object"),
        ("special_tokens_map__json", "3", "must contain a JSON object"),
        ("tokenizer_config__json", '{"bos_token": 3}', "tokenizer_config.json sets 'bos_token' to 3"),
        ("tokenizer_config__json", '{"eos_token": []}', "'eos_token' to \\[\\]"),
        ("tokenizer_config__json", '{"bos_token": {"content": {}}}', "'bos_token' to {'content': {}}"),
        ("tokenizer_config__json", '{"a": ' * 100_000, "Cannot read .*recursion"),
        ("special_tokens_map__json", '{"bos_token": 3}', "special_tokens_map.json sets 'bos_token' to 3"),
    ],
)
def test_malformed_files_are_reported(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer_settings(folder(tmp_path, "{}", **{name: content}))


def test_a_template_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"Cannot read .*chat_template.jinja"):
        read_tokenizer_settings(tmp_path)


@pytest.mark.parametrize("template", [3, {"default": CHATML}, [3], [{"name": [], "template": CHATML}], [{"name": "a"}]])
def test_what_is_not_a_template_is_ignored(tmp_path: Path, template: Any) -> None:
    path = folder(tmp_path, "{}", tokenizer_config__json={"chat_template": template})
    assert read_tokenizer_settings(path).chat_template is None


@pytest.mark.parametrize(
    "processor",
    [
        {"type": "Sequence", "processors": None},
        {"type": "TemplateProcessing", "single": 3},
        {"type": "TemplateProcessing", "single": [3]},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": 3}]},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {}}]},
    ],
)
def test_a_malformed_post_processor_is_reported(tmp_path: Path, processor: dict[str, Any]) -> None:
    path = folder(tmp_path, json.dumps({"post_processor": processor}), tokenizer_config__json={"bos_token": "<s>"})
    with pytest.raises(CheckpointError, match=r"post-processor in .*tokenizer.json is malformed"):
        read_tokenizer_settings(path)


SETTINGS = {
    "im_start": TokenizerSettings(bos_token="<|im_start|>", has_bos=True),
    "none": TokenizerSettings(bos_token=None, has_bos=False, adds_bos=False),
    "llama": TokenizerSettings(bos_token=BEGIN, has_bos=True, adds_bos=True, chat_template=LLAMA_SHORT),
    "dated": TokenizerSettings(bos_token=BEGIN, has_bos=True, adds_bos=True, chat_template=LLAMA_DATED),
    "bare": TokenizerSettings(bos_token=BEGIN, has_bos=True, adds_bos=False),
    "chatml": TokenizerSettings(bos_token=None, has_bos=False, chat_template=CHATML),
}


@pytest.mark.parametrize(
    ("model", "settings", "taken"),
    [
        ("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B", "im_start", {"opening": "<|im_start|>"}),
        ("plaguss/Qwen2.5-0.5B-Math-Shepherd-PRM-0.2", "none", {"opening": None}),
        ("plaguss/Qwen2.5-0.5B-Math-Shepherd-PRM-0.2", "llama", {"opening": BEGIN}),
        # The trainer adds the BOS token itself, whether the tokenizer does or not.
        ("plaguss/Qwen2.5-0.5B-Math-Shepherd-PRM-0.2", "bare", {"opening": BEGIN}),
        ("HanningZhang/Llama3.1-Math-PRM", "bare", {"opening": None}),
        ("UW-Madison-Lee-Lab/VersaPRM", "llama", {"opening": BEGIN}),
        ("UW-Madison-Lee-Lab/VersaPRM", "none", {"opening": None}),
        ("RLHFlow/Llama3.1-8B-PRM-Mistral-Data", "llama", {"preamble": None}),
        (
            "RLHFlow/Llama3.1-8B-PRM-Mistral-Data",
            "dated",
            {"preamble": "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"},
        ),
        ("RLHFlow/Llama3.1-8B-PRM-Deepseek-Data", "llama", {"preamble": None}),
        ("Gen-Verse/ReasonFlux-PRM-7B", "chatml", {"default_system": "You are a stock assistant."}),
        ("ryokamoi/Qwen-2.5-7B-FoVer-PRM", "chatml", {"preamble": "You are a stock assistant."}),
        ("Qwen/Qwen2.5-Math-PRM-7B", "chatml", {}),
    ],
)
def test_families_take_what_their_makers_take(model: str, settings: str, taken: dict[str, Any]) -> None:
    family = adopt_settings(find_family([], model=model), SETTINGS[settings])
    assert {name: getattr(family, name) for name in taken} == taken
    assert family.options_from(SETTINGS[settings]) == taken
    kept = adopt_settings(find_family([], model=model), SETTINGS[settings], keep=taken)
    assert kept == find_family([], model=model)


@pytest.mark.parametrize(
    ("name", "options", "text", "settings", "agrees"),
    [
        ("qwen", {}, qwen_tokenizer_json, "chatml", True),
        ("qwen", {"default_system": None}, qwen_tokenizer_json, "chatml", False),
        ("qwen", {"system_from_template": True}, qwen_tokenizer_json, "chatml", True),
        ("universal", {}, qwen_tokenizer_json, "chatml", True),
        ("actprm", {}, vocabulary.actprm_tokenizer_json, "chatml", True),
        ("rlhflow", {}, vocabulary.llama_tokenizer_json, "llama", True),
        ("rlhflow", {}, vocabulary.llama_tokenizer_json, "dated", True),
        ("fover", {}, vocabulary.llama_tokenizer_json, "dated", True),
        ("fover", {"chat": "chatml"}, qwen_tokenizer_json, "chatml", True),
        ("rlhflow", {}, vocabulary.llama_tokenizer_json, "chatml", False),
    ],
)
def test_a_probe_shows_where_a_template_disagrees(
    name: str, options: dict[str, Any], text: Any, settings: str, agrees: bool
) -> None:
    tokenizer = PromptTokenizer(json.loads(text()))
    family = adopt_settings(with_options(FAMILIES[name], options), SETTINGS[settings])
    mismatches = check_settings(family, tokenizer, SETTINGS[settings]).mismatches
    assert (not mismatches) == agrees
    if mismatches:
        assert "Template: " in mismatches[0]
        assert "Family: " in mismatches[0]


def test_loading_warns_and_strict_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_qwen_checkpoint(tmp_path / "qwen")
    folder(path, qwen_tokenizer_json(), chat_template__jinja="{% for m in messages %}[{{ m.content }}]{% endfor %}")
    with caplog.at_level(logging.WARNING, logger="surefoot"):
        scorer = load_local(path)
    (record,) = caplog.records
    assert "render a probe differently. Template: '[Please reason step by step" in record.getMessage()
    assert "Family: '<|im_start|>system\\nPlease reason" in record.getMessage()
    assert scorer.info["tokenizer"] == {
        "files": ["chat_template.jinja"],
        "taken": {},
        "mismatches": [record.getMessage().removeprefix(f"{path}: ")],
    }
    json.dumps(scorer.info)
    with pytest.raises(CheckpointError, match="render a probe differently.*load without strict"):
        surefoot.load(path, strict=True)
    from surefoot.cli.main import main

    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "chat_template.jinja: DISAGREE with the family's prompt" in printed
    assert "Template: '[Please reason step by step" in printed
    assert main(["check", str(path), "--strict"]) == 2


def test_settings_of_the_checkpoint_change_scores_and_fingerprint(tmp_path: Path) -> None:
    path = write(
        tmp_path / "skywork",
        "qwen2",
        "Qwen2ForPrmModel",
        {"v_head.summary.weight": (1, 32), "v_head.summary.bias": (1,)},
    )
    plain = load_local(path)
    config = {**DECODER, "bos_token": "<|endoftext|>"}
    folder(path, qwen_tokenizer_json(), tokenizer_config__json=config)
    taken = load_local(path)
    assert taken.info["tokenizer"]["taken"] == {"opening": "<|endoftext|>"}
    assert taken.fingerprint != plain.fingerprint
    explicit = load_local(path, family_options={"opening": "<|im_start|>"})
    assert explicit.fingerprint == plain.fingerprint
    assert (
        "opening of the family skywork is '<|im_start|>', but the checkpoint's"
        in explicit.info["tokenizer"]["mismatches"][0]
    )
    scores = [each.score("How many?", ["Two."]).step_scores for each in (plain, taken, explicit)]
    assert scores[0] == scores[2] != scores[1]


def test_a_bos_token_that_the_vocabulary_lacks_is_reported_at_load() -> None:
    settings = TokenizerSettings(bos_token="<missing>", has_bos=True)
    family = adopt_settings(FAMILIES["skywork"], settings)
    with pytest.raises(CheckpointError, match="no special token '<missing>'"):
        check_settings(family, PromptTokenizer(json.loads(qwen_tokenizer_json())), settings)


def test_a_checkpoint_without_settings_uses_the_family(checkpoint: Path) -> None:
    assert load_local(checkpoint).info["tokenizer"] == {"files": [], "taken": {}, "mismatches": []}
    assert load_local(checkpoint, strict=True).family.name == "qwen"
