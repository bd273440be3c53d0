"""Rewards in OpenRLHF: requests and replies, and the calls of its own client code."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

import surefoot
from surefoot.errors import InputError, OptionError
from surefoot.integrations.openrlhf import OpenRLHFReward, get_reward
from surefoot.rewards.monitor import THRESHOLDS
from surefoot.testing import qwen_tokenizer_json

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
CHAT = f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
OFF = {f"alarm/{name}": 0.0 for name in THRESHOLDS}
LLAMA = (
    f"<|start_header_id|>user<|end_header_id|>\n\n{QUESTION}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)


@pytest.fixture(scope="module")
def lowest(scorer: surefoot.Scorer) -> float:
    low = scorer.score(QUESTION, SOLUTION).min
    assert low is not None
    return low


@pytest.mark.parametrize(
    ("prompt", "end"),
    [
        (CHAT, "<|im_end|>"),
        (CHAT, "<|im_end|>\n<|endoftext|><|endoftext|>"),
        (LLAMA, "<|eot_id|>"),
        (f"<s>[INST] {QUESTION} [/INST]", "</s>"),
        (f"<start_of_turn>user\n{QUESTION}<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"),
        (
            f"<\uff5cbegin▁of▁sentence\uff5c><\uff5cUser\uff5c>{QUESTION}<\uff5cAssistant\uff5c>",
            "<\uff5cend▁of▁sentence\uff5c>",
        ),
        (f"<|user|>\n{QUESTION}<|end|>\n<|assistant|>\n", "<|end|><|endoftext|>"),
        (f"<|user|>\n{QUESTION}</s>\n<|assistant|>\n", "</s>"),
        (f"[gMASK]<sop><|user|>\n{QUESTION}<|assistant|>\n", "<|user|>"),
        (QUESTION, "<|some_other_end|>"),
        (QUESTION, ""),
    ],
)
def test_question_and_response_are_found(scorer: surefoot.Scorer, lowest: float, prompt: str, end: str) -> None:
    body = {"query": [prompt + SOLUTION + end], "prompts": [prompt], "labels": ["14"]}
    reply = OpenRLHFReward(scorer, "outcome+process").get_reward(body)
    assert reply["rewards"] == [pytest.approx(0.7 + 0.3 * lowest, abs=1e-5)]
    assert reply["scores"] == [1.0]
    terms = {"outcome": 1.0, "min": pytest.approx(lowest, abs=1e-5)}
    assert reply["extra_logs"] == OFF | {"scored": 1.0, "steps": 3.0} | terms
    assert json.loads(json.dumps(reply, allow_nan=False)) == reply


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        ("[INST] One? [/INST] Yes. [INST] Two? [/INST]", "Two?"),
        ("[INST] One? [/INST] Yes. [INST] Two?", "One?"),
        ("[INST] One? [/INST] and [/INST]", "One?"),
        ("[/INST] One? [INST]", "[/INST] One? [INST]"),
        ("[INST] One? [INST] Two? [/INST]", "Two?"),
        ("<|im_start|>user\n[INST] One? [/INST]<|im_end|>", "[INST] One? [/INST]"),
    ],
)
def test_the_last_turn_that_ends_is_the_question(prompt: str, question: str) -> None:
    assert OpenRLHFReward("never loaded").find_question(prompt) == question


def test_an_unknown_chat_template_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reward = OpenRLHFReward("never loaded")
    prompt = "<|novel_turn|>One?<|novel_end|>"
    assert [reward.find_question(prompt), reward.find_question(prompt)] == [prompt, prompt]
    assert [record.getMessage()[:42] for record in caplog.records] == ["A prompt contains '<|novel_turn|>' but no "]


def test_parsing_takes_linear_time() -> None:
    reward = OpenRLHFReward("never loaded")
    started = time.process_time()
    for hostile in ("[INST]" * 20_000, "<|im_start|>user\n" * 20_000, "[/INST]" * 20_000):
        assert reward.find_question(hostile) == hostile
    assert reward.find_response("Q" + "<pad> " * 100_000, "Q") == ""
    assert time.process_time() - started < 3


def test_a_regular_expression_for_the_question(
    scorer: surefoot.Scorer, lowest: float, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = f"Solve step by step.\nProblem: {QUESTION}\nSolution:\n"
    reward = OpenRLHFReward(scorer, "min", question=r"Problem: (.*?)\nSolution:")
    body = {"query": [prompt + SOLUTION, CHAT + SOLUTION], "prompts": [prompt, CHAT], "labels": ["", ""]}
    assert reward.get_reward(body)["rewards"] == [pytest.approx(lowest, abs=1e-5), None]
    assert "does not match the prompt" in caplog.text
    with pytest.raises(OptionError, match="has no group"):
        OpenRLHFReward(scorer, "min", question="Problem: .*")


def test_options_may_be_dicts(checkpoint: Path, lowest: float) -> None:
    body = {"query": [CHAT + SOLUTION], "prompts": [CHAT], "labels": [""]}
    options: dict[str, Any] = {"model": str(checkpoint), "recipe": "min", "load": {"max_tokens": 4000}}
    for _ in range(2):
        assert get_reward(body, **options)["rewards"] == [pytest.approx(lowest, abs=1e-5)]


def test_the_module_runs_outside_of_sys_modules() -> None:
    """OpenRLHF loads files like this. Dataclasses would fail."""
    spec = importlib.util.spec_from_file_location(
        "reward_func", Path(surefoot.__file__).parent / "integrations" / "openrlhf.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.reward_func)


def test_empty_lists_are_answered(scorer: surefoot.Scorer) -> None:
    """With several addresses, OpenRLHF 0.11.0 sends empty lists to all but the first."""
    empty: dict[str, list[Any]] = {"query": [], "prompts": [], "labels": []}
    assert get_reward(empty, model=scorer, recipe="min") == {"rewards": [], "scores": [], "extra_logs": {}}
    assert OpenRLHFReward("never loaded")([], [], []) == {"rewards": [], "scores": [], "extra_logs": {}}


def test_a_missing_reward_is_null_or_replaced(scorer: surefoot.Scorer) -> None:
    queries = [CHAT + SOLUTION, CHAT, "another prompt" + SOLUTION, CHAT + SOLUTION]
    body = {"query": queries, "prompts": [CHAT] * 4, "labels": ["14", "14", "14", ""]}
    reply = OpenRLHFReward(scorer, "outcome+process").get_reward(body)
    assert [reward is None for reward in reply["rewards"]] == [False, True, True, True]
    assert reply["scores"] == [1.0, 0.0, None, None], "an empty response is wrong; the others are unknown"
    assert reply["extra_logs"]["scored"] == 0.25
    assert "min" not in reply["extra_logs"]
    replaced = OpenRLHFReward(scorer, "outcome+process", missing=-1.0).get_reward(body)
    assert replaced["rewards"][1:] == [-1.0] * 3
    assert set(replaced["extra_logs"]) == {"scored", "steps", *OFF}


def test_the_default_recipe_depends_on_the_label(scorer: surefoot.Scorer, lowest: float) -> None:
    reward = OpenRLHFReward(scorer)
    labelled, other = (reward([CHAT + SOLUTION], [CHAT], [label]) for label in ("14", ""))
    assert labelled["rewards"] == [pytest.approx(0.7 + 0.3 * lowest, abs=1e-5)]
    plain = OpenRLHFReward(scorer, "final+mean+correct_prefix")([CHAT + SOLUTION], [CHAT], [""])
    assert other["rewards"] == [pytest.approx(plain["rewards"][0], abs=1e-5)]
    assert labelled["extra_logs"].keys() == other["extra_logs"].keys(), "OpenRLHF joins them key by key"


def test_alarms_are_logged_once_and_as_metrics(scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture) -> None:
    reward = OpenRLHFReward(scorer, "min")
    query = CHAT + "3 * 4 = 12\n\n2 + 12 = 14"
    logs = [reward([query] * 32, [CHAT] * 32, [""] * 32)["extra_logs"] for _ in range(3)]
    assert [each["alarm/unanswered"] for each in logs] == [0.0, 1.0, 1.0]
    assert [each["alarm/filler"] for each in logs] == [0.0, 0.0, 0.0]
    assert sum("Reward hacking: unanswered is 1.00" in record.getMessage() for record in caplog.records) == 1


def test_invalid_requests_raise(scorer: surefoot.Scorer) -> None:
    reward = OpenRLHFReward(scorer, "min")
    with pytest.raises(InputError, match="no list 'query'"):
        reward.get_reward({"prompts": [], "labels": []})
    with pytest.raises(InputError, match="different lengths: 1, 1, 2"):
        reward.get_reward({"query": ["a"], "prompts": ["a"], "labels": ["1", "2"]})
    with pytest.raises(InputError, match="The body is list"):
        reward.get_reward([])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="missing=nan"):
        OpenRLHFReward(scorer, "min", missing=float("nan"))


# --- with the package's own client code --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    """`openrlhf.utils.agent`, without the packages around it, which import deepspeed and vLLM."""
    pytest.importorskip("aiohttp", reason="run by make test-verl")
    found = importlib.util.find_spec("openrlhf")
    if found is None or not found.submodule_search_locations:
        pytest.skip("run by make test-verl")
    root = Path(found.submodule_search_locations[0])
    for name, folder in (("openrlhf", root), ("openrlhf.utils", root / "utils")):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return importlib.import_module("openrlhf.utils.agent")


class Engine:
    """Replaces vLLM: generates the given tokens."""

    def __init__(self, tokens: list[int]) -> None:
        self._output = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)

    async def generate(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(outputs=[self._output])


class Words:
    """The part of a transformers tokenizer that OpenRLHF uses, with a real vocabulary."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer.from_str(qwen_tokenizer_json())

    def __call__(self, text: str, **_: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([self.tokenizer.encode(text).ids])}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text


def executed(agent: ModuleType, target: str | list[str], response: str, count: int = 1) -> list[dict[str, Any]]:
    """Run OpenRLHF's executor on a response, `count` times concurrently."""
    words = Words()
    executor = agent.SingleTurnAgentExecutor(target)
    engine = Engine(words.tokenizer.encode(response + "<|im_end|>").ids)
    params = SimpleNamespace(max_tokens=256, logprobs=None)

    async def run() -> list[dict[str, Any]]:
        return list(
            await asyncio.gather(*(executor.execute(CHAT, "14", params, 1024, words, engine) for _ in range(count)))
        )

    return asyncio.run(run())


def test_openrlhf_over_http(agent: ModuleType, scorer: surefoot.Scorer, lowest: float) -> None:
    reward = OpenRLHFReward(scorer, "outcome+process")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = json.dumps(reward.get_reward(body), allow_nan=False).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/get_reward"
        found = executed(agent, [address, address], SOLUTION)[0]
        nothing = executed(agent, address, "")[0]
    finally:
        server.shutdown()
        server.server_close()
    assert found["reward"] == [pytest.approx(0.7 + 0.3 * lowest, abs=1e-5)]
    assert found["scores"] == [1.0]
    assert found["extra_logs"]["steps"] == 3.0
    assert nothing["reward"] == [None]
    with pytest.raises((TypeError, RuntimeError)):
        torch.tensor([nothing["reward"]])  # what OpenRLHF does next: it stops instead of training on 0.0


def test_openrlhf_from_a_file(
    agent: ModuleType, checkpoint: Path, lowest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "from surefoot.integrations.openrlhf import OpenRLHFReward\n"
        f"reward_func = OpenRLHFReward({str(checkpoint)!r}, 'outcome+process', wait=0.2)\n"
    )
    found = executed(agent, str(file), SOLUTION, count=6)
    assert [one["reward"] for one in found] == [[pytest.approx(0.7 + 0.3 * lowest, abs=1e-5)]] * 6
    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    shipped = executed(agent, str(Path(surefoot.__file__).parent / "integrations" / "openrlhf.py"), SOLUTION)[0]
    assert 0 < shipped["reward"][0] < 1
