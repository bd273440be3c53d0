"""Advantages in prime-rl: from step scores to one number per sampled token.

`make test-verifiers` runs these tests with the traces of verifiers. prime-rl itself needs Python 3.12; put a checkout
of its `src` and `packages/prime-rl-configs/src` on PYTHONPATH to run the last test.
"""

from __future__ import annotations

import asyncio
import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import surefoot
from surefoot.errors import InputError, MissingDependencyError
from surefoot.integrations.prime_rl import StepAdvantages, group_advantages, surefoot_algorithm
from surefoot.rewards.recipes import RECIPES
from surefoot.rewards.token_rewards import TokenRewards
from surefoot.testing import qwen_tokenizer_json

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
WRONG = "Step 1: 3 * 4 = 13.\nStep 2: 2 + 13 = 15.\nFinal Answer: 15"
NONE = TokenRewards(None, None, reason="unscored")


@pytest.mark.parametrize(
    ("values", "tokens", "expected"),
    [
        # 0.7 * outcome on the last token, 0.3 * min on token 1 or 2. Means: outcome part 0.35, process part 0.15.
        (
            [0.9, 0.1],
            [TokenRewards((0, 0.2, 0, 0), 0.2), TokenRewards((0, 0, 0.1, 0), 0.1)],
            [[0.4, 0.4, 0.35, 0.35], [-0.4, -0.4, -0.4, -0.35]],
        ),
        # All credit on the last token: the advantages of GRPO.
        ([1.0, 0.0], [TokenRewards((0, 1.0), 1.0), TokenRewards((0, 0.0), 0.0)], [[0.5, 0.5], [-0.5, -0.5]]),
        # No process part: the advantages of GRPO.
        ([1.0, 0.0], [TokenRewards((0, 0), 0.0), TokenRewards((0, 0), 0.0)], [[0.5, 0.5], [-0.5, -0.5]]),
        # An unscored rollout is not in the mean.
        ([1.0, None, 0.0], [TokenRewards((0, 1.0), 1.0), NONE, TokenRewards((0,), 0.0)], [[0.5, 0.5], [0.0], [-0.5]]),
        # A reward that is alone cannot be compared.
        ([1.0, None], [TokenRewards((0, 1.0), 1.0), NONE], [[0.0, 0.0], [0.0]]),
    ],
)  # fmt: skip
def test_advantages_of_a_group(
    values: list[float | None], tokens: list[TokenRewards], expected: list[list[float]]
) -> None:
    found = group_advantages(values, tokens, [len(each) for each in expected])
    assert found == [pytest.approx(each) for each in expected]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(qwen_tokenizer_json()), eos_token="<|im_end|>")


def trace_of(tokenizer: Any, reply: str) -> Any:
    """A trace as prime-rl's orchestrator has it: a prompt node, and a sampled node after a template scaffold."""
    asked = tokenizer.encode(QUESTION, add_special_tokens=False)
    scaffold = tokenizer.encode("assistant\n", add_special_tokens=False)
    sampled = [*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id]
    nodes: list[dict[str, Any]] = [
        {"token_ids": asked, "mask": [False] * len(asked)},
        {"token_ids": scaffold + sampled, "mask": [False] * len(scaffold) + [True] * len(sampled)},
    ]
    try:
        import verifiers.v1 as vf
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.types import AssistantMessage, UserMessage

        vf.TraceTask  # noqa: B018
    except (ImportError, AttributeError):
        data = SimpleNamespace(prompt_text=QUESTION, answer="14")
        trace = SimpleNamespace(task=SimpleNamespace(data=data), metrics={})
        trace.nodes = [SimpleNamespace(**node, advantages=None) for node in nodes]
        trace.record_metrics = trace.metrics.update
        return trace
    messages = [UserMessage(content=QUESTION), AssistantMessage(content=reply)]
    data_type = type("SumData", (vf.TaskData,), {"__annotations__": {"answer": str}})
    return vf.Trace(
        task=vf.TraceTask(type="Task", data=data_type(prompt=QUESTION, answer="14")),
        agent=vf.AgentInfo(config=vf.AgentConfig(), name="policy", trainable=True, runtime=None),
        nodes=[MessageNode(message=message, **node) for message, node in zip(messages, nodes, strict=True)],
        ok=True,
    )


def test_step_scores_become_advantages(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    traces = [trace_of(tokenizer, text) for text in (SOLUTION, WRONG, "")]
    advantages = StepAdvantages(tokenizer, scorer, gold="answer")
    found = asyncio.run(advantages.compute(traces))
    assert [len(each) for each in found] == [sum(trace.nodes[1].mask) for trace in traces]
    assert not any(found[2]), "the empty reply has no reward, so it has no advantage"
    scores = [scorer.score(QUESTION, text) for text in (SOLUTION, WRONG)]
    rewards = [RECIPES["outcome+process"](score, "14").value for score in scores]
    assert rewards[0] is not None
    assert rewards[1] is not None
    first = (rewards[0] - rewards[1]) / 2
    assert found[0][0] == pytest.approx(first, abs=1e-5), "before the lowest-scored step: the advantage of GRPO"
    assert found[1][0] == pytest.approx(-first, abs=1e-5)
    assert first != pytest.approx(0.35, abs=1e-5), "this test needs different lowest scores"
    assert found[0][-1] == pytest.approx(0.35, abs=1e-5), "after it: the outcome only"
    assert found[1][-1] == pytest.approx(-0.35, abs=1e-5)
    assert traces[0].metrics["surefoot/outcome"] == 1.0
    assert traces[0].metrics["surefoot/alarm/unanswered"] == 0.0


def test_a_recipe_with_an_outcome_needs_a_gold_answer(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    with pytest.raises(InputError, match='gold="answer"'):
        StepAdvantages(tokenizer, scorer, "outcome+process")
    assert StepAdvantages(tokenizer, scorer).recipe.name == "final+mean+correct_prefix"


@pytest.mark.skipif(importlib.util.find_spec("prime_rl") is not None, reason="prime-rl is installed")
def test_the_algorithm_needs_prime_rl(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    with pytest.raises(MissingDependencyError, match="inside prime-rl's orchestrator"):
        surefoot_algorithm(tokenizer, scorer)


def test_the_algorithm_inside_prime_rl(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    pytest.importorskip("prime_rl.orchestrator.algo.base", reason="prime-rl is not installed")
    algorithm = surefoot_algorithm(tokenizer, scorer, gold="answer")(None, None)
    traces = [trace_of(tokenizer, text) for text in (SOLUTION, WRONG)]
    asyncio.run(algorithm.finalize_group([SimpleNamespace(traces=[trace]) for trace in traces]))
    assert [trace.nodes[0].advantages for trace in traces] == [None, None]
    expected = asyncio.run(StepAdvantages(tokenizer, scorer, gold="answer").compute(traces))
    assert [trace.nodes[1].advantages for trace in traces] == expected
