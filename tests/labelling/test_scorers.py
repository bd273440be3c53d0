"""Labels and other scorers: a judge that has to agree, and a scorer that screens; and the rows for training."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.label_parties import GOLD, RIGHT, WRONG, Script
from helpers.search_parties import Judge
from surefoot.core.labels import LabelledSolution, Outcomes, StepLabel
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.result import SolutionScore
from surefoot.errors import InputError, OptionError
from surefoot.labelling.job import LabelReport, label
from surefoot.labelling.rows import Target, training_rows, write_training_rows
from surefoot.labelling.settings import LabelSettings
from surefoot.scoring.loading import load
from surefoot.train.readers import read_examples


@dataclass
class Ensemble(Judge):
    """A judge whose steps have a spread."""

    spread: float = 0.0

    def score(self, question: str, solution: Any, options: ReadOptions = DEFAULT_OPTIONS) -> SolutionScore:
        result = super().score(question, solution, options)
        return replace(result, steps=tuple(replace(step, spread=self.spread) for step in result.steps))


def text(*scores: float | str, last: str = WRONG) -> str:
    """A solution whose judge gives these scores; rollouts fail from the second step on, unless it is right."""
    return "\n\n".join([*(f"Step. [{score}]" for score in scores[:-1]), f"{last} [{scores[-1]}]"])


def run(tmp_path: Path, texts: list[str], script: Script | None = None, **given: Any) -> LabelReport:
    rows = [{"question": f"q{at}", "answer": GOLD, "text": each} for at, each in enumerate(texts)]
    settings = LabelSettings(k=4, **given.pop("settings", {}))
    script = script or Script({0: "R", 1: "R", 2: "W", 3: "W"})
    return label(rows, tmp_path / "out", generator=script, solution="text", settings=settings, **given)


def test_a_solution_is_kept_if_the_judge_names_the_same_first_error(tmp_path: Path) -> None:
    texts = [
        text(0.9, 0.1, 0.9),  # the same step, 1
        text(0.1, 0.1, 0.9),  # an earlier one
        text(0.9, 0.9, 0.9),  # none
        text(0.9, "none", 0.1),  # undecided: an unscored step comes first
        text(0.9, 0.8, last=RIGHT),  # none, like the labels
        text(0.9, 0.2, last=RIGHT),  # the labels have none
    ]
    report = run(tmp_path, texts, judge=Judge())
    assert [each.first_error for each in report.solutions] == [1, 1, 1, 1, -1, -1]
    verdicts = [each.judge.first_error for each in report.solutions if each.judge]
    assert verdicts == [1, 0, -1, None, -1, 1]
    assert [each.agrees for each in report.solutions] == [True, False, False, None, True, False]
    assert [each.kept for each in report.solutions] == [True, False, False, False, True, False]
    summary = report.summary
    assert (summary.judged, summary.agreed, summary.kept, summary.kept_share) == (5, 2, 2, 2 / 6)
    assert report.solutions[1].judge is not None
    assert report.solutions[1].judge.scores == (0.1, 0.1, 0.9), "both are kept"
    assert "2 of 6 (33.3%) are kept" in str(summary)
    assert [row["question"] for row in training_rows(report.solutions)] == ["q0", "q4"]
    lines = (tmp_path / "out" / "labels.jsonl").read_text().splitlines()
    assert [LabelledSolution.from_dict(json.loads(line)) for line in lines] == list(report.solutions)
    for source in (tmp_path / "out", tmp_path / "out" / "labels.jsonl"):
        found = [(example.question, example.targets) for example in read_examples(source)]
        assert found == [("q0", (1.0, 0.0, None)), ("q4", (1.0, 1.0))], "training reads what is kept"
    (tmp_path / "out" / "corrections.jsonl").write_text("")
    with pytest.raises(InputError, match="People corrected the labels"):
        read_examples(tmp_path / "out" / "labels.jsonl")


@pytest.mark.parametrize(
    ("scores", "last", "spread", "certain", "labels"),
    [
        ((0.95, 0.05, 0.5), WRONG, 0.0, True, [True, False, None]),  # steps after its error do not matter
        ((0.95, 0.11, 0.5), WRONG, 0.0, False, [True, False, None]),  # max(p, 1 - p) = 0.89
        ((0.9, 0.05, 0.5), WRONG, 0.01, True, [True, False, None]),  # both limits are included
        ((0.95, 0.05, 0.5), WRONG, 0.02, False, [True, False, None]),
        ((0.95, 0.95, 0.99), RIGHT, 0.0, True, [True, True, True]),
        ((0.95, 0.95, 0.99), WRONG, 0.0, False, [True, False, None]),  # the answer contradicts it
        ((0.95, "none", 0.99), RIGHT, 0.0, False, [True, False, None]),
    ],
)
def test_rollouts_are_sampled_only_where_the_screening_scorer_is_uncertain(
    tmp_path: Path, scores: Any, last: str, spread: float, certain: bool, labels: list[bool | None]
) -> None:
    script = Script({1: "R", 2: "W"})
    given = {"screen": Ensemble(spread=spread), "settings": {"pass_rollouts": 0}}
    report = run(tmp_path, [text(*scores, last=last)], script, **given)
    (found,) = report.solutions
    assert found.screen is not None
    assert (found.screen.certain, report.summary.screened) == (certain, int(certain))
    assert [step.hard for step in found.steps] == labels
    assert (script.requests == []) is certain
    sources = {step.source for step in found.steps if step.hard is not None}
    assert sources == {"screen"} if certain else "screen" not in sources
    assert all(step.value is None for step in found.steps) or not certain


def test_the_judge_is_asked_only_where_the_screening_scorer_is_uncertain(tmp_path: Path) -> None:
    """ActPRM's rule: max(p, 1 - p) of at least 0.9 on every step up to the first error is certain."""
    texts = [
        text(0.95, 0.05, 0.5),  # q0: certain
        text(0.95, 0.2, 0.5),  # q1: uncertain, and the judge names the error of the rollouts
        text(0.6, 0.6, 0.5),  # q2: uncertain, and the judge names another one
    ]
    judge = Judge()
    report = run(tmp_path, texts, judge=judge, screen=Judge(), settings={"pass_rollouts": 0}, concurrency=1)
    assert [steps[1] for steps in judge.scored] == ["Step. [0.2]", "Step. [0.6]"], "q1 and q2"
    assert [each.screen.certain for each in report.solutions if each.screen] == [True, False, False]
    assert [each.judge is None for each in report.solutions] == [True, False, False]
    assert [each.kept for each in report.solutions] == [True, True, False]
    assert (report.summary.judged, report.summary.agreed, report.summary.kept) == (2, 1, 2)


@dataclass
class Lower(Judge):
    """A judge that is 0.02 below the other one."""

    name: str = "lower"
    fingerprint: str = "lower-1"

    def score(self, question: str, solution: Any, options: ReadOptions = DEFAULT_OPTIONS) -> SolutionScore:
        result = super().score(question, solution, options)
        steps = [step if step.score is None else replace(step, score=step.score - 0.02) for step in result.steps]
        return replace(result, steps=tuple(steps))


@pytest.mark.parametrize(("max_spread", "certain"), [(0.0142, True), (0.0141, False)])
def test_an_ensemble_screens_by_the_disagreement_of_its_members(
    tmp_path: Path, max_spread: float, certain: bool
) -> None:
    given = {"screen": load([Judge(), Lower()]), "settings": {"pass_rollouts": 0, "max_spread": max_spread}}
    report = run(tmp_path, [text(0.95, 0.05, 0.5)], Script({1: "R", 2: "W"}), **given)
    screen = report.solutions[0].screen
    assert screen is not None
    assert (screen.model, screen.certain) == ("mean(judge, lower)", certain)
    assert screen.scores == pytest.approx((0.94, 0.04, 0.49))
    assert screen.spreads == pytest.approx([0.02 / math.sqrt(2)] * 3)  # of two numbers: their difference over root 2


@dataclass
class Silent(Lower):
    """A judge that gives no score for the second step."""

    def score(self, question: str, solution: Any, options: ReadOptions = DEFAULT_OPTIONS) -> SolutionScore:
        result = super().score(question, solution, options)
        steps = [
            replace(step, score=None, status="not_finite") if step.index == 1 else replace(step, score=step.score)
            for step in result.steps
        ]
        return replace(result, steps=tuple(steps), reason="It gave no finite number.")


@pytest.mark.parametrize(("scores", "certain"), [((0.95, 0.05, 0.5), False), ((0.05, 0.95, 0.5), True)])
def test_a_step_without_all_members_is_uncertain(tmp_path: Path, scores: Any, certain: bool) -> None:
    """The other member alone is certain and has no spread. A missing score after the error does not matter."""
    screen = load([Judge(), Silent()], missing="skip")
    report = run(
        tmp_path,
        [text(*scores)],
        Script({1: "R", 2: "W"}),
        screen=screen,
        settings={"pass_rollouts": 0, "max_spread": 1.0},
    )
    found = report.solutions[0].screen
    assert found is not None
    assert (found.spreads[1], found.incomplete, found.certain) == (None, (1,), certain)
    lines = (tmp_path / "out" / "labels.jsonl").read_text().splitlines()
    assert [LabelledSolution.from_dict(json.loads(line)) for line in lines] == list(report.solutions)


def test_scores_that_are_not_probabilities_cannot_screen(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="on the scale 'margin'"):
        run(tmp_path, [text(0.9, 0.9)], screen=Judge(scale="margin"))


@pytest.mark.parametrize(
    ("target", "targets"),
    [("hard", (1.0, 1.0, 0.0, None)), ("soft", (0.75, None, 0.0, None)), ("relative", (1.0, None, 0.0, None))],
)
def test_training_reads_the_rows(tmp_path: Path, target: Target, targets: tuple[float | None, ...]) -> None:
    steps = (
        StepLabel("A.\n\n", "labelled", None, True, True, 0.75, Outcomes(6, 2), "rollouts"),
        StepLabel("B.\n\n", "labelled", None, True, None, 1.0, Outcomes(1, 0), "rollouts", adaptive=True),
        StepLabel("C.\n\n", "labelled", None, False, False, 0.0, Outcomes(0, 8), "rollouts"),
        StepLabel("D.", "unknown", "The step comes after the first error.", value=0.5, outcomes=Outcomes(4, 4)),
    )
    solution = LabelledSolution(0, 0, "How long?", GOLD, "A.\n\nB.\n\nC.\n\nD.", steps)
    nothing = replace(solution, steps=steps[3:])
    filtered = replace(solution, state="filtered")
    assert write_training_rows(tmp_path / "train.jsonl", [solution, nothing, filtered], target) == 1
    (example,) = read_examples(tmp_path / "train.jsonl")
    assert (example.question, example.steps, example.targets) == ("How long?", ("A.", "B.", "C.", "D."), targets)
    with pytest.raises(OptionError, match="hard, soft, relative"):
        list(training_rows([], "other"))  # type: ignore[arg-type]
