"""AgentProcessBench: its texts, its metrics as in the makers' `eval/compare.py`, and what they do differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import surefoot
from helpers.browser import browser_page  # noqa: F401
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.errors import InputError, OptionError

if TYPE_CHECKING:
    from playwright.sync_api import Page

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query_list": ["capital"]}'}}
RECORD: dict[str, Any] = {
    "total_index": 7,
    "query_index": 1,
    "sample_index": 2,
    "question": "Which city?",
    "data_source": "searchR1_hotpotqa",
    "messages": [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "Which city?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "search", "content": "Paris is a city.", "tool_call_id": "c1"},
        {"role": "assistant", "content": "It is Paris."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes.", "tool_calls": [{"function": {"name": "end", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "ended"},
    ],
    "tools": [{"name": "search"}],
    "step_labels": {"2": 1, "4": 0, "6": -1},
    "final_label": -1,
}


def read(tmp_path: Path, *records: dict[str, Any], **options: Any) -> list[evaluate.Trajectory]:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return evaluate.read_agentprocessbench(path, **options)


def test_the_text_of_a_trajectory(tmp_path: Path) -> None:
    """A step contains what the agent read before it, and never what came after."""
    (row,) = read(tmp_path, RECORD)
    assert row.problem == "System: You are helpful.\n\nUser: Which city?"
    assert row.steps == (
        'Tool call: search({"query_list": ["capital"]})',
        "Tool result (search): Paris is a city.\n\nAssistant: It is Paris.",
        'User: Sure?\n\nAssistant: Yes.\n\nTool call: end({"a": 1})',
    )
    assert (row.messages, row.labels, row.first_error) == ((2, 4, 6), (1, 0, -1), 2)
    assert (row.id, row.subset, row.final_label) == ("searchR1_hotpotqa:1:2", "hotpotqa", -1)


def test_an_agent_that_speaks_first_and_an_empty_message(tmp_path: Path) -> None:
    """As in tau2, whose first message is a greeting; its question field holds what only the user knows."""
    messages = [{"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "x"}, {"role": "assistant"}]
    record = {"messages": messages, "step_labels": {"0": 1, "2": None}, "data_source": "tau2_retail"}
    (row,) = read(tmp_path, record | {"question": "Reason for call"})
    assert (row.problem, row.subset) == ("Reason for call", "tau2")
    assert row.steps == ("Assistant: Hi!", "User: x\n\nAssistant: (empty message)")
    assert row.labels == (1, None)
    (row,) = read(
        tmp_path,
        record | {"messages": [{"role": "system", "content": "Policy."}, *messages], "step_labels": '{"1": 1}'},
    )
    assert row.problem == "System: Policy."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": "x"}, "expected `messages`"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no message of the role assistant"),
        ({"step_labels": {"3": 1}}, r"keys \[3\], which are not indices of assistant messages: \[2, 4, 6\]"),
        ({"step_labels": {"2": 2}}, "maps '2' to 2; expected a message index and -1, 0 or 1"),
        ({"step_labels": {"2": True}}, "expected a message index and -1, 0 or 1"),
        ({"step_labels": {"2": None}}, "at least one label"),
        ({"step_labels": [1]}, "expected `step_labels` as an object"),
        ({"final_label": "no"}, "final_label is 'no'"),
        ({"messages": [{"role": "assistant", "tool_calls": ["x"]}], "step_labels": {"0": 1}}, "a tool call is 'x'"),
        ({"messages": [{"role": "assistant", "content": 4}], "step_labels": {"0": 1}}, "content of a message is int"),
    ],
)
def test_wrong_records_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        read(tmp_path, RECORD, RECORD | change)
    assert "mine.jsonl, line 2" in str(raised.value)


def test_subsets(tmp_path: Path) -> None:
    other = RECORD | {"data_source": "bfcl_multi_turn_base"}
    assert [row.subset for row in read(tmp_path, RECORD, other, subsets=["bfcl"])] == ["bfcl"]
    with pytest.raises(InputError, match="has no subset tau2. It has: bfcl, hotpotqa"):
        read(tmp_path, RECORD, other, subsets=["tau2"])


# --- metrics -------------------------------------------------------------------------------------------------------


def trajectory(labels: list[int], scores: list[float | None], subset: str = "hotpotqa") -> dict[str, Any]:
    messages = [{"role": "user", "content": "q"}]
    for at in range(len(labels)):
        messages += [{"role": "assistant", "content": f"step {at}"}, {"role": "tool", "content": "r"}]
    places = [str(1 + 2 * at) for at in range(len(labels))]
    return {
        "messages": messages,
        "step_labels": dict(zip(places, labels, strict=True)),
        "data_source": subset,
        "scores": scores,
    }


def makers(references: list[dict[str, int]], predictions: list[dict[str, int]]) -> tuple[float, float]:
    """step_micro_acc and firsterroracc: the rules of the makers' code, written again from their description."""

    def first(labels: dict[str, int]) -> int:
        wrong = [int(key) for key, label in labels.items() if label == -1]
        return min(wrong) if wrong else -1

    keys = [(reference, key) for reference in range(len(references)) for key in references[reference]]
    equal = [references[number][key] == predictions[number].get(key) for number, key in keys]
    located = [first(a) == first(b) for a, b in zip(references, predictions, strict=True)]
    return sum(equal) / len(equal), sum(located) / len(located)


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_the_metrics_are_those_of_the_makers(margin: float) -> None:
    generator = np.random.default_rng(5)
    rows, predictions = [], []
    for number in range(200):
        labels = [int(label) for label in generator.choice([-1, 0, 1], p=[0.2, 0.1, 0.7], size=1 + number % 6)]
        scores = [float(np.round(generator.random(), 2)) for _ in labels]
        rows.append(trajectory(labels, list(scores), ("hotpotqa", "tau2")[number % 2]))
        predictions.append(
            {
                str(1 + 2 * at): 1 if score > 0.5 + margin else -1 if score <= 0.5 - margin else 0
                for at, score in enumerate(scores)
            }
        )
    result = evaluate.agentprocessbench(None, rows, margin=margin, draws=50)
    step, first = makers([row["step_labels"] for row in rows], predictions)
    assert (result.overall.step.value, result.overall.first_error.value) == (step, first)
    halves = [makers([row["step_labels"] for row in rows[part::2]], predictions[part::2]) for part in (0, 1)]
    assert [(each.step.value, each.first_error.value) for each in result.subsets] == halves
    assert [each.name for each in result.subsets] == ["hotpotqa", "tau2"]
    neutral = sum(counts["0"] for counts in result.labels.values())
    assert (neutral > 0) == (margin > 0), "two classes never predict 0"
    assert any("which two classes cannot predict" in note for note in result.notes) == (margin == 0)


def test_a_missing_prediction_is_never_no_error() -> None:
    """In the makers' code an empty prediction is right about every trajectory without an error."""
    rows = [trajectory([1, 1], [None, None]), trajectory([1, -1], [None, None])]
    assert makers([row["step_labels"] for row in rows], [{}, {}]) == (0.0, 0.5)
    result = evaluate.agentprocessbench(None, rows, draws=0)
    assert (result.overall.step.hits, result.overall.step.total) == (0, 4)
    assert (result.overall.first_error.hits, result.overall.first_error.total) == (0, 2)
    assert (result.overall.unscored, result.overall.unscored_steps, result.unscored, result.complete) == (
        2,
        4,
        2,
        False,
    )
    assert "4 steps have no score and count as wrong" in result.notes[0]


# labels, scores, predicted first error, outcome
TABLE: list[tuple[list[int], list[float | None], int | None, str | None]] = [
    ([1, -1, -1], [0.9, 0.5, 0.9], 1, "right"),  # a score at the threshold is not above it
    ([1, -1], [0.9, 0.9], -1, "missed"),
    ([-1, -1], [0.9, 0.1], 1, "missed"),
    ([1, -1], [0.1, 0.1], 0, "alarm"),
    ([1, 0], [0.9, 0.1], 1, "alarm"),
    ([1, 0], [0.9, 0.9], -1, "right"),
    ([1, -1], [0.9, None], None, None),
    ([-1, 1], [0.1, None], 0, "right"),  # decided before the unscored step
]


@pytest.mark.parametrize(("labels", "scores", "predicted", "outcome"), TABLE)
def test_outcomes(labels: list[int], scores: list[float | None], predicted: int | None, outcome: str | None) -> None:
    (item,) = evaluate.agentprocessbench(None, [trajectory(labels, scores)], draws=0).judgements
    assert (item.first_error, item.outcome) == (predicted, outcome)


def test_unlabelled_messages_are_context() -> None:
    row = trajectory([1, 1, -1], [0.1, None, 0.1])
    del row["step_labels"]["1"], row["step_labels"]["3"]
    result = evaluate.agentprocessbench(None, [row], draws=0)
    assert (result.overall.step.total, result.overall.first_error.hits, result.complete) == (1, 1, True)


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf")])
def test_margins(margin: float) -> None:
    with pytest.raises(OptionError, match="Pass 0 or more"):
        evaluate.agentprocessbench(None, [trajectory([1], [0.9])], margin=margin)


# --- with a model, on the command line, in a browser ---------------------------------------------------------------


def test_a_real_model_scores_every_message(tmp_path: Path) -> None:
    rows = read(tmp_path, RECORD)
    scorer = surefoot.load("mini")
    result = evaluate.agentprocessbench(scorer, rows, draws=0)
    expected = [step.score for step in scorer.score(rows[0].problem, list(rows[0].steps)).steps]
    assert result.judgements[0].scores == pytest.approx(tuple(expected), abs=1e-5)
    assert result.complete


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [trajectory(labels, scores) for labels, scores, _, _ in TABLE[:6]]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["eval", "agentprocessbench", "--scores", "scores", "--data", str(path)]
    assert main([*call, "--margin", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["margin"], found["overall"]["first_error"]["total"]) == (0.05, 6)
    assert main([*call, "--margin", "-1"]) == 2
    assert "Pass 0 or more" in capsys.readouterr().err


def test_the_page(browser_page: Page, tmp_path: Path) -> None:  # noqa: F811
    rows = [trajectory(labels, scores) for labels, scores, _, _ in TABLE]
    rows[1]["messages"][1]["content"] = "start" + "x" * 9000 + "<b>end"
    result = evaluate.agentprocessbench(None, rows, draws=20)
    evaluate.report(result, tmp_path / "x.html")
    alone = evaluate.agentprocessbench(None, [trajectory([1, 1], [0.9, 0.8])], draws=10)
    assert "it needs scored steps with each of these labels" in evaluate.report_html(alone)
    browser_page.goto((tmp_path / "x.html").as_uri())
    assert browser_page.title() == "AgentProcessBench: precomputed scores"
    counts = {
        kind: browser_page.inner_text(f'[data-kind="{kind}"] b') for kind in ("missed", "alarm", "right", "unscored")
    }
    assert counts == {"missed": "2", "alarm": "2", "right": "3", "unscored": "1"}
    browser_page.fill("#search", "characters …")
    browser_page.wait_for_timeout(300)
    assert browser_page.locator("article.item").count() == 1
    shown = browser_page.inner_text("article.item")
    assert "<b>end" in shown
    assert len(shown) < 3000
    browser_page.set_viewport_size({"width": 360, "height": 800})
    assert browser_page.evaluate("document.documentElement.scrollWidth") <= 360
