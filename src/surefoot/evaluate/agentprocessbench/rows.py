"""Trajectories of AgentProcessBench as questions and steps.

The question is what the agent has read before its first message: system and user messages. Each assistant message is
one step. What the agent has read since its previous message (tool results and user messages) opens the step, so that a
score depends only on what the agent knew. Messages after the last assistant message are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.data.messages import content_text
from surefoot.data.records import Record, read_records
from surefoot.errors import InputError
from surefoot.evaluate.rows import Scores, precomputed_scores, required_text

SUBSETS = ("hotpotqa", "gaia_dev", "bfcl", "tau2")
LABELS = (-1, 0, 1)
EMPTY = "(empty message)"
"""The text of an assistant message without content and without tool calls: a step is never blank."""


@dataclass(frozen=True)
class Trajectory:
    """The messages of one run of an agent, with one label per step."""

    id: str
    subset: str
    """`hotpotqa`, `gaia_dev`, `bfcl`, `tau2`, or the name of the file."""
    problem: str
    steps: tuple[str, ...]
    messages: tuple[int, ...]
    """The index of each step's assistant message, as in `step_labels`."""
    labels: tuple[int | None, ...]
    """1: correct and effective, 0: neutral, -1: incorrect or harmful. None: no label; the step is context only."""
    final_label: int | None = None
    """Whether the task was solved, 1 or -1. No metric uses it."""
    scores: Scores | None = None

    @property
    def first_error(self) -> int:
        """The index of the first step with the label -1, or -1."""
        return next((at for at, label in enumerate(self.labels) if label == -1), -1)


def read_agentprocessbench(
    source: str | Path, *, subsets: Sequence[str] | None = None, scores: str | None = None
) -> list[Trajectory]:
    """Read AgentProcessBench, or any data whose objects have `messages` and `step_labels`.

        rows = evaluate.read_agentprocessbench("AgentProcessBench/", subsets=["hotpotqa"])

    `subsets` keeps only these subsets. `scores` names a field with one precomputed score per assistant message.
    """
    rows = list(trajectories(read_records(source), scores))
    if subsets is None:
        return rows
    present = {row.subset for row in rows}
    if missing := [name for name in subsets if name not in present]:
        raise InputError(f"{source} has no subset {', '.join(missing)}. It has: {', '.join(sorted(present))}.")
    return [row for row in rows if row.subset in subsets]


def trajectories(records: Iterable[Record], scores: str | None = None) -> Iterator[Trajectory]:
    """Convert every record to a trajectory."""
    for number, record in enumerate(records):
        messages = record.data.get("messages")
        if not isinstance(messages, list | tuple) or not all(isinstance(each, Mapping) for each in messages):
            raise record.wrong("expected `messages` as a list of objects with `role` and `content`.")
        spoken = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
        if not spoken:
            raise record.wrong("`messages` has no message of the role assistant, so there is no step.")
        labels = _labels(record)
        if strangers := sorted(labels.keys() - set(spoken)):
            raise record.wrong(
                f"step_labels has the keys {strangers}, which are not indices of assistant messages: {spoken}."
            )
        if not labels:
            raise record.wrong("expected `step_labels` with at least one label.")
        final = record.data.get("final_label")
        if final is not None and (isinstance(final, bool) or final not in LABELS):
            raise record.wrong(f"final_label is {final!r}; expected 1 or -1.")
        first = _joined(record, messages[: spoken[0]])
        starts = [spoken[0], *(at + 1 for at in spoken)]
        yield Trajectory(
            id=_id(record, number),
            subset=_subset(record),
            problem=first or required_text(record, "question", "task_description"),
            steps=tuple(_joined(record, messages[start : at + 1]) for start, at in zip(starts, spoken, strict=False)),
            messages=tuple(spoken),
            labels=tuple(labels.get(at) for at in spoken),
            final_label=final,
            scores=precomputed_scores(record, scores, len(spoken)),
        )


def _joined(record: Record, messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(part for message in messages for part in _parts(record, message))


def _parts(record: Record, message: Mapping[str, Any]) -> list[str]:
    """Return a message as texts: its content after its role, and one line per tool call."""
    role = message.get("role")
    if not isinstance(role, str):
        raise record.wrong(f"the role of a message is {role!r}; expected text.")
    try:
        content = content_text(message)
    except InputError as error:
        raise record.wrong(str(error)) from error
    if role == "tool":
        name = message.get("name")
        return [f"Tool result ({name}): {content}" if name else f"Tool result: {content}"]
    parts = [f"{role.capitalize()}: {content}"] if content.strip() else []
    parts += [_tool_call(record, call) for call in message.get("tool_calls") or ()]
    return parts or ([f"{role.capitalize()}: {EMPTY}"] if role == "assistant" else [])


def _tool_call(record: Record, call: object) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise record.wrong(f"a tool call is {call!r}; expected an object with `function`, which has a `name`.")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return f"Tool call: {function['name']}({text})"


def _labels(record: Record) -> dict[int, int]:
    """Return the labels by message index. A null is no label: tables fill in the keys of other rows."""
    given = record.data.get("step_labels")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = None
    if not isinstance(given, Mapping):
        raise record.wrong("expected `step_labels` as an object that maps indices of assistant messages to labels.")
    found = {}
    for key, label in given.items():
        if label is None:
            continue
        if isinstance(label, bool) or label not in LABELS or not str(key).isdigit():
            raise record.wrong(f"step_labels maps {key!r} to {label!r}; expected a message index and -1, 0 or 1.")
        found[int(key)] = int(label)
    return found


def _id(record: Record, number: int) -> str:
    data = record.data
    parts = [data.get(name) for name in ("data_source", "query_index", "sample_index")]
    if all(part is not None for part in parts):
        return ":".join(map(str, parts))
    return str(data.get("id", data.get("total_index", number)))


def _subset(record: Record) -> str:
    source = str(record.data.get("data_source") or "")
    named = next((name for name in SUBSETS if name in source.lower()), None)
    return named or record.split or source or "all"
