"""At temperature 0, every dialect yields the same tree: real llama.cpp, transformers, and scripted vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

import surefoot
from helpers.llamacpp import llamacpp_server, words_tokenizer_json, write_gguf
from helpers.policies import CHATML, END, START, Table, write_table_policy
from helpers.scripted_server import Chain, scripted, sglang, vllm
from helpers.search_parties import Judge
from surefoot.core.generation import GREEDY

QUESTION = "How much is it?"
FOLLOWING = {
    "First": ".\n\n",
    ".\n\n": "Then",
    "Then": "!\n\n",
    "!\n\n": "Done",
    "Done": END,
}
"""Every text is one token, and has one successor."""
STEPS = ["First.\n\n", "Then!\n\n", "Done"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table: Table = {START: {"First": 1.0}, **{word: {after: 1.0} for word, after in FOLLOWING.items()}}
    return write_table_policy(tmp_path_factory.mktemp("policy"), table, tokenizer=words_tokenizer_json(*FOLLOWING))


@pytest.fixture(scope="module")
def chain(folder: Path) -> Chain:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=CHATML)
    return Chain(tokenizer, {word: [after] for word, after in FOLLOWING.items()}, "First")


@pytest.fixture(params=["transformers", "llama.cpp", "vllm", "vllm, local tokenizer", "sglang"])
def generator(request: pytest.FixtureRequest, folder: Path, chain: Chain, tmp_path: Path) -> Iterator[Any]:
    options: dict[str, Any] = {"system": "Be brief."}
    if request.param == "transformers":
        yield surefoot.load_generator(folder, **options)
    elif request.param == "llama.cpp":
        with llamacpp_server(write_gguf(folder, tmp_path / "table.gguf")) as url:
            yield surefoot.load_generator(url, **options)
    else:
        script = sglang(chain) if request.param == "sglang" else vllm(chain)
        if "local" in request.param:
            options["tokenizer"] = folder
        with scripted(script) as server:
            yield surefoot.load_generator(server.url, **options)


def test_every_dialect_yields_the_same_tree(generator: Any) -> None:
    result = surefoot.search(
        QUESTION, generator=generator, scorer=Judge(default=0.9), strategy="beam", n=4, sampling=GREEDY, max_tokens=32
    )
    found = [(node.parent, node.text, node.end, node.fate, node.count, node.tokens) for node in result.nodes[1:]]
    # First, Then and the answer are one token each, and so are the two delimiters and the end of the answer.
    assert found == [
        (0, STEPS[0], "step", "expanded", 4, 2),
        (1, STEPS[1], "step", "expanded", 4, 2),
        (2, STEPS[2], "answer", "finished", 4, 2),
    ]
