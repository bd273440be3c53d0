"""The content of an AgentProcessBench report.

The list starts with the most confident mistakes about the first error.
"""

from __future__ import annotations

from surefoot.evaluate.agentprocessbench.result import (
    AgentProcessBenchResult,
    Outcome,
    TrajectoryJudgement,
    label_cells,
    subset_cells,
    trajectory_baseline_cells,
)
from surefoot.evaluate.header import model_label, threshold_label
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import (
    Card,
    Content,
    Entry,
    Kind,
    Panel,
    Section,
    Table,
    baseline_panel,
    card,
    step_item,
)

KINDS = (
    Kind("missed", "missed errors", "no step up to the first error was predicted"),
    Kind("alarm", "false alarms", "a step before the first error was predicted, or any in a trajectory without one"),
    Kind("right", "correctly judged", "the predicted first error equals the label"),
    Kind("unscored", "unscored", "an unscored step hides the first error"),
)
NAMES: dict[Outcome | None, tuple[str, str]] = {
    "missed": ("missed", "missed error"),
    "alarm": ("alarm", "false alarm"),
    "right": ("right", "correctly judged"),
    None: ("unscored", "unscored"),
}
SHOWN = 1500
"""Characters of a step, or of the question, that the list shows. Tool results can be long."""


def content(result: AgentProcessBenchResult) -> Content:
    """Build the content of the page."""
    facts = [
        ("threshold", threshold_label(result.threshold, result.threshold_source)),
        ("margin", f"{result.margin:g}"),
        ("trajectories", f"{len(result.judgements):,}"),
    ]
    if result.unscored:
        facts.append(("with unscored steps", f"{result.unscored:,}"))
    return Content(
        title="AgentProcessBench",
        model=model_label(result),
        facts=facts,
        cards=_cards(result),
        panels=[*_histogram(result), *_tables(result)],
        noun="trajectories",
        kinds=KINDS,
        group_name="",
        entries=[entry(item) for item in result.judgements],
        scale=result.scale,
        notes=result.notes,
    )


def _cards(result: AgentProcessBenchResult) -> list[Card]:
    overall = result.overall
    many = f"{overall.first_error.total:,} trajectories"
    steps = f"{overall.step.total:,} steps"
    no_auc = "it needs scored steps with each of these labels"
    return [
        card("step accuracy", overall.step.value, overall.step.interval, steps, reason="no step has a label"),
        card("first error found", overall.first_error.value, overall.first_error.interval, many),
        card("step AUC", result.step_auc, result.step_auc_interval, "label +1 against -1", reason=no_auc),
    ]


def _histogram(result: AgentProcessBenchResult) -> list[Panel]:
    kinds: dict[str, list[float]] = {"label +1": [], "label 0": [], "label -1": []}
    for item in result.judgements:
        for label, score in zip(item.row.labels, item.scores, strict=True):
            if label is not None and score is not None:
                kinds[f"label {label:+d}" if label else "label 0"].append(score)
    if not any(kinds.values()):
        return []
    about = "Distribution of the scores by label. Less overlap is better."
    return [Panel("Scores", about, svg=figures.histogram("Scores by label", kinds, xlabel="score"))]


def _tables(result: AgentProcessBenchResult) -> list[Panel]:
    return [
        Panel(
            "Subsets",
            "Step accuracy is the share of equal labels (step_micro_acc), first error the share of trajectories whose "
            "first -1 is predicted exactly (firsterroracc). Unscored steps and trajectories count as wrong. 95% "
            "intervals by Wilson's formula, for steps with their effective number.",
            table=Table(*subset_cells(result)),
            wide=True,
        ),
        *baseline_panel(result.baselines, trajectory_baseline_cells(result)),
        Panel("Labels", "Steps by label and by prediction.", table=Table(*label_cells(result))),
    ]


def entry(item: TrajectoryJudgement) -> Entry:
    """Build the entry of one trajectory."""
    row = item.row
    kind, badge = NAMES[item.outcome]
    steps = [
        step_item(
            _shortened(step),
            score,
            label="" if label in (1, None) else f"label {label:+d}" if label else "label 0",
            prediction="" if predicted in (1, None) else f"▸ {predicted:+d}" if predicted else "▸ 0",
        )
        for step, score, label, predicted in zip(row.steps, item.scores, row.labels, item.predicted, strict=True)
    ]
    verdict = f"label: {_place(row.first_error)} · predicted: {_place(item.first_error)}"
    if row.final_label is not None:
        verdict += f" · task {'solved' if row.final_label == 1 else 'not solved'}"
    return Entry(
        kind=kind,
        badge=badge,
        facts=f"{row.subset} · {row.id}",
        verdict=verdict,
        problem=_shortened(row.problem),
        sections=[Section(steps, item.reason)],
        severity=_severity(item),
        split=row.subset,
    )


def _place(at: int | None) -> str:
    return "unknown" if at is None else "no error" if at == -1 else f"first error at step {at + 1}"


def _shortened(text: str) -> str:
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN // 2]}\n[… {len(text) - SHOWN:,} characters …]\n{text[-(SHOWN // 2) :]}"


def _severity(item: TrajectoryJudgement) -> float:
    """Return how confident a mistake is: above 1 for mistakes, 0 for correct predictions."""
    outcome = item.outcome
    if outcome is None:
        return -1.0
    if outcome == "right":
        return 0.0
    decisive = item.scores[item.row.first_error if outcome == "missed" else item.first_error or 0]
    return 1.0 if decisive is None else 1.0 + abs(decisive - item.threshold)
