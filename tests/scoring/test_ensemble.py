"""Ensembles: their scores are computed from the members' own by numpy, and a missing score is never replaced."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot
from helpers.search_parties import Judge
from helpers.serving import QUESTION, SOLUTION, served
from surefoot import evaluate
from surefoot.core.calibration import Calibration, FittedOn, Logistic
from surefoot.core.members import MemberScore
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import NO_STEPS, SolutionScore
from surefoot.display.terminal import show
from surefoot.errors import InputError, OptionError, ServiceError
from surefoot.scoring.ensemble import Ensemble
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

ITEMS: list[tuple[str, Any]] = [
    (QUESTION, SOLUTION),
    (QUESTION, ["2 + 3 = 5.", "5 * 4 = 20."]),
    ("What is 7 * 8?", "7 * 8 = 54.\n\nSo it is 54."),
]
CALIBRATION = Calibration(Logistic(0.5, 0.3), "any", None, FittedOn(1, 1, "")).for_any_model()
OTHER_CALIBRATION = Calibration(Logistic(2.0), "any", None, FittedOn(1, 1, "")).for_any_model()


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> surefoot.Scorer:
    return load_local(write_qwen_checkpoint(tmp_path_factory.mktemp("second") / "qwen", seed=1), name="second")


@pytest.fixture(scope="module")
def url(second: surefoot.Scorer) -> Iterator[str]:
    """A service with weights that no other member has."""
    with served([second]) as (url, _):
        yield url


@pytest.fixture(scope="module")
def members(mini: surefoot.Scorer, scorer: surefoot.Scorer, url: str) -> list[surefoot.StepScorer]:
    return [mini, scorer, surefoot.load(url)]


def table(members: Sequence[surefoot.StepScorer], item: tuple[str, Any]) -> np.ndarray[Any, Any]:
    """The scores that each member gives on its own, one row per member."""
    return np.array([member.score(*item).step_scores for member in members], dtype=float)


@pytest.mark.parametrize("combine", ["mean", "min"])
def test_scores_and_spread_are_those_of_numpy(combine: Any, checkpoint: Path, url: str, members: list[Any]) -> None:
    ensemble = surefoot.load(["mini", checkpoint, url], combine=combine)
    for item, result in zip(ITEMS, ensemble.score_many(ITEMS), strict=True):
        expected = table(members, item)
        assert result.step_scores == pytest.approx(getattr(np, combine)(expected, axis=0), abs=1e-5)
        assert [step.spread for step in result.steps] == pytest.approx(np.std(expected, axis=0, ddof=1), abs=1e-5)
        alone = members[1].score(*item)
        assert [(step.text, step.start, step.end, step.index, step.kind) for step in result.steps] == [
            (step.text, step.start, step.end, step.index, step.kind) for step in alone.steps
        ]
        assert (result.answer, result.split, result.outside) == (alone.answer, alone.split, alone.outside)
        assert (result.status, result.reason, result.scale) == ("scored", None, "probability")
        assert result.tokens == sum(member.score(*item).tokens for member in members)
        for at, step in enumerate(result.steps):
            assert [member.model for member in step.members] == ["mini", str(checkpoint), "second"]
            assert [member.score for member in step.members] == pytest.approx(expected[:, at], abs=1e-5)
    assert ensemble.name == result.model == f"{combine}(mini, {checkpoint}, second)"


def test_calibrated_members(checkpoint: Path, mini: surefoot.Scorer) -> None:
    first = surefoot.load("mini", calibration=CALIBRATION)
    other = surefoot.load(checkpoint, calibration=OTHER_CALIBRATION)
    ensemble = surefoot.load([first, other], combine="calibrated")
    result = ensemble.score(*ITEMS[0])
    assert result.step_scores == pytest.approx(table([first, other], ITEMS[0]).mean(0), abs=1e-5)
    assert ensemble.calibration == result.calibration == "+".join(sorted([CALIBRATION.name, OTHER_CALIBRATION.name]))
    mixed = surefoot.load([first, checkpoint])
    assert mixed.calibration is None, "not every score has gone through a calibration"
    assert len({mixed.fingerprint, ensemble.fingerprint, surefoot.load([mini, checkpoint]).fingerprint}) == 3


def test_the_order_of_members_changes_no_number(members: list[Any]) -> None:
    found = [Ensemble(each) for each in permutations(members)]
    assert len({each.fingerprint for each in found}) == 1
    numbers = {tuple((s.score, s.spread) for s in each.score(*ITEMS[0]).steps) for each in found}
    assert len(numbers) == 1
    others = [Ensemble(members, "min"), Ensemble(members, "mean", "skip"), Ensemble(members[:2])]
    assert len({each.fingerprint for each in [found[0], *others]}) == 4


def test_a_member_that_cannot_score_a_step(mini: surefoot.Scorer, checkpoint: Path, scorer: surefoot.Scorer) -> None:
    item = (QUESTION, ["One.", "Two."])
    last = scorer.family.render(scorer.tokenizer, *item).reads[1]  # the marker of the second step
    short = load_local(checkpoint, max_tokens=last, name="short")
    mine, theirs = mini.score(*item).step_scores, short.score(*item)
    assert theirs.step_scores[0] is not None
    assert theirs.step_scores[1] is None
    result = Ensemble([mini, short]).score(*item)
    both = np.array([mine[0], theirs.step_scores[0]], dtype=float)
    assert result.step_scores == [pytest.approx(both.mean(), abs=1e-5), None]
    assert [step.status for step in result.steps] == ["scored", "member_missing"]
    assert result.steps[1].spread is None
    assert result.steps[1].members == (MemberScore("mini", mine[1]), MemberScore("short", None, theirs.reason))
    assert result.reason == f"short: {theirs.reason}"
    assert (result.mean, result.status, result.warnings) == (None, "partial", ())
    skipped = Ensemble([mini, short], missing="skip").score(*item)
    assert skipped.step_scores == [pytest.approx(both.mean(), abs=1e-5), mine[1]]
    assert [step.spread for step in skipped.steps] == [pytest.approx(both.std(ddof=1), abs=1e-5), None]
    assert skipped.warnings == (f"1 of 2 steps are scored without short: {theirs.reason}",)
    assert skipped.reason is None
    assert skipped.steps[1].members == result.steps[1].members


@dataclass
class ByLine:
    """A scorer that splits every solution at line ends, like a service of another version."""

    inner: surefoot.Scorer
    name: str = "by line"
    scale: Any = "probability"
    fingerprint: str = "by-line"
    calibration: str | None = None
    threads: set[int] = field(default_factory=set)

    def score_many(self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, **_: Any) -> Any:
        self.threads.add(threading.get_ident())
        return self.inner.score_many(items, ReadOptions(split="lines"))

    def score_stream(self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, **_: Any) -> Any:
        return iter(self.score_many(items))

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> Any:
        return self.inner.session(question, ReadOptions(split="lines"))


@pytest.mark.parametrize("missing", ["unscored", "skip"])
def test_members_that_find_other_steps(mini: surefoot.Scorer, scorer: surefoot.Scorer, missing: Any) -> None:
    text = "First we add.\n2 + 3 = 5.\n\nSo it is 5."  # two paragraphs, three lines
    other: Any = ByLine(scorer)
    ensemble = Ensemble([mini, other], missing=missing)
    reason = "It found other steps than another member: 3 instead of 2."
    for result in (ensemble.score(QUESTION, text), ensemble.session(QUESTION).score([text])[0]):
        assert result.step_scores == [None, None]
        assert result.reason == f"by line: {reason}"
        assert result.steps[0].members[1] == MemberScore("by line", None, reason)
        assert result.steps[0].members[0].score is not None
    assert ensemble.score(QUESTION, "One.\nTwo.").status == "scored", "here both find the same"


def test_a_solution_without_steps(mini: surefoot.Scorer, scorer: surefoot.Scorer) -> None:
    ensemble = Ensemble([mini, scorer])
    assert ensemble.score(QUESTION, "").reason == NO_STEPS
    over = ensemble.score(QUESTION, ["2."] * 20_000)
    assert (over.steps, over.reason) == ((), "The solution has 20,000 steps; the limit is 10,000.")


@dataclass
class Second(Judge):
    """A judge that is `shift` below the first, or changed since it was loaded."""

    name: str = "second judge"
    fingerprint: str = "judge-2"
    shift: float = 0.2

    def score(self, question: str, solution: Any, options: ReadOptions = DEFAULT_OPTIONS) -> SolutionScore:
        result = super().score(question, solution, options)
        steps = [s if s.score is None else replace(s, score=s.score - self.shift) for s in result.steps]
        return replace(result, steps=tuple(steps))


def test_a_member_that_changed_its_scale_or_gives_nan() -> None:
    changed = Second()
    ensemble = Ensemble([Judge(), changed])
    assert ensemble.score(QUESTION, ["One [0.8]"]).step_scores == [pytest.approx(0.7)]
    changed.scale = "margin"
    result = ensemble.score(QUESTION, ["One [0.8]"])
    assert result.step_scores == [None]
    assert result.reason is not None
    assert result.reason.startswith("second judge: Its scores are on the scale 'margin'")
    result = Ensemble([Judge(), Second(shift=float("nan"))]).score(QUESTION, ["One [0.8]"])
    assert (result.step_scores, result.steps[0].spread) == ([None], None)
    assert result.reason == "second judge: Its score is nan, which is not a finite number."


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (
            ["mini", Judge(scale="margin", name="pure")],
            {},
            "The scores of pure are on the scale 'margin', and .*'mean'",
        ),
        ([Judge(scale="log_ratio", name="eurus"), "mini"], {"combine": "min"}, "The scores of eurus .*'log_ratio'"),
        (["mini", Judge()], {"combine": "rank"}, "ranks depend on the other candidates.*rank_candidates"),
        (["mini", Judge()], {"combine": "median"}, "combine='median' is unknown. Choose one of: mean, min, calibrated"),
        (["mini", Judge()], {"missing": "zero"}, "missing='zero' is unknown. Choose one of: unscored, skip"),
        ([Judge(calibration="c"), "mini"], {"combine": "calibrated"}, "mini has no calibration"),
        (["mini", "mini"], {}, r"are the same model with the same calibration"),
        (["mini"], {}, "at least two members, and the list has 1"),
        ([], {}, "at least two members, and the list has 0"),
        (["mini", 3], {}, "A member of the ensemble is int"),
        (["mini", ["mini"]], {}, "A member of the ensemble is list"),
        (["mini", Judge()], {"quantize": "int8", "timeout": 3.0}, "timeout: not supported for any member"),
        ("mini", {"combine": "mean"}, "combine and missing are for a list of models"),
    ],
)
def test_what_load_rejects(models: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        surefoot.load(models, **options)


def test_members_of_the_same_name_are_told_apart() -> None:
    ensemble = Ensemble([Judge(), Second(name="judge")], name="judges")
    result = ensemble.score(QUESTION, ["One [0.8]"])
    assert [member.model for member in result.steps[0].members] == ["judge (judge-1)", "judge (judge-2)"]
    assert (ensemble.name, result.model) == ("judges", "judges")
    assert surefoot.load([Judge(), Second()], name="judges").name == "judges"


def test_malformed_items() -> None:
    members = [Judge(), Second()]
    ensemble = Ensemble(members)
    items: list[Any] = [(QUESTION, ["One [0.5]"]), (QUESTION, 3), (QUESTION, ["Two [0.9]"]), (QUESTION, None)]
    with pytest.raises(InputError, match="Item 1"):
        ensemble.score_many(items)
    assert [member.scored for member in members] == [[], []], "nothing is scored before the error"
    for window in (1, 3, 100):
        found = list(ensemble.score_stream(iter(items), window=window))
        assert [each.step_scores for each in found] == [[pytest.approx(0.4)], [], [pytest.approx(0.8)], []]
        assert [each.reason is not None and each.reason[:6] for each in found] == [False, "Item 1", False, "Item 3"]
    with pytest.raises(OptionError, match="window=0"):
        ensemble.score_stream(items, window=0)
    assert list(ensemble.score_stream([])) == ensemble.score_many([]) == []


class Meeting(surefoot.Client):
    """A client that answers only while another one is asked, too."""

    barrier = threading.Barrier(2)

    def score_many(self, *args: Any, **options: Any) -> list[SolutionScore]:
        self.barrier.wait(20)
        return super().score_many(*args, **options)


def test_servers_are_asked_at_the_same_time(
    url: str, mini: surefoot.Scorer, scorer: surefoot.Scorer, second: surefoot.Scorer
) -> None:
    local: Any = ByLine(mini)
    with served([scorer]) as (other, _):
        result = Ensemble([Meeting(url), local, Meeting(other)]).score(*ITEMS[1])
    expected = table([second, mini, scorer], ITEMS[1])
    assert [member.score for member in result.steps[1].members] == pytest.approx(expected[:, 1], abs=1e-5)
    assert local.threads == {threading.get_ident()}, "models in this process stay in the caller's thread"


def test_a_server_that_stops_is_an_error_and_not_a_smaller_ensemble(mini: surefoot.Scorer, scorer: Any) -> None:
    with served([scorer]) as (url, _):
        ensemble = Ensemble([mini, surefoot.Client(url, patience=0.2, timeout=2.0)], missing="skip")
        assert ensemble.score(*ITEMS[1]).status == "scored"
    with pytest.raises(ServiceError, match=url):
        ensemble.score_many(ITEMS)
    with pytest.raises(ServiceError, match=url):
        list(ensemble.score_stream(ITEMS))


def test_a_session_computes_only_new_tokens(members: list[Any]) -> None:
    ensemble = Ensemble(members[:2])
    session = ensemble.session(QUESTION)
    steps = ["3 * 4 = 12.", "2 + 12 = 14.", "So it is 14."]
    for count in (1, 2, 3):
        (result,) = session.score([steps[:count]])
        expected = table(members[:2], (QUESTION, steps[:count]))
        assert result.step_scores == pytest.approx(expected.mean(0), abs=1e-5)
    own = [member.session(QUESTION) for member in members[:2]]
    for each in own:
        each.score([steps])
    assert session.computed_tokens == sum(each.computed_tokens for each in own)
    with pytest.raises(InputError, match="a list of candidates"):
        session.score("One.")


def test_pickles(url: str, checkpoint: Path) -> None:
    ensemble = surefoot.load([checkpoint, url], combine="min", missing="skip", name="two")
    again = pickle.loads(pickle.dumps(ensemble))
    assert (again.name, again.fingerprint) == ("two", ensemble.fingerprint)
    twin = surefoot.load([checkpoint, url], combine="min", missing="skip", name="two")
    assert pickle.dumps(twin) == pickle.dumps(ensemble)
    assert again.score(*ITEMS[0]).step_scores == pytest.approx(ensemble.score(*ITEMS[0]).step_scores, abs=1e-5)
    with again:
        pass


def test_results_as_data(mini: surefoot.Scorer, checkpoint: Path) -> None:
    result = Ensemble([mini, load_local(checkpoint, max_tokens=40, name="short")]).score(*ITEMS[0])
    assert None in result.step_scores
    data = json.loads(result.to_json())
    assert SolutionScore.from_dict(data) == result
    reason = result.steps[-1].members[1].reason
    assert data["steps"][-1]["members"][1] == {"model": "short", "score": None, "reason": reason}
    plain = [[vars(member) for member in step.members] for step in result.steps]
    assert [row["members"] for row in result.to_arrow().to_pylist()] == plain
    assert [step["members"] for step in surefoot.to_arrow([result]).to_pylist()[0]["steps"]] == plain
    old = {**data, "steps": [{k: v for k, v in step.items() if k != "members"} for step in data["steps"]]}
    assert SolutionScore.from_dict(old).steps[0].members == (), "results from before ensembles can be read"
    lines = show(result, width=100).splitlines()
    first = mini.score(*ITEMS[0]).step_scores[0]
    assert lines[1].strip() == f"mini {first:.3f}, short none"
    assert f"note: short: {result.steps[0].members[1].reason}" in lines


def test_evaluation(mini: surefoot.Scorer, scorer: surefoot.Scorer) -> None:
    items = [(f"What is {n} + 2?", [f"{n} + 2 = {n + 2 + wrong}."]) for n in range(6) for wrong in (0, 1)]
    right = [at % 2 == at // 2 % 2 for at in range(12)]  # every other problem has its labels swapped
    rows = [
        {"problem_id": str(at // 2), "problem": problem, "steps": steps, "is_correct": right[at]}
        for at, (problem, steps) in enumerate(items)
    ]
    combined = np.array([table([mini, scorer], item).mean() for item in items]).reshape(6, 2)
    chosen = np.array(right).reshape(6, 2)[range(6), combined.argmax(1)]
    report = evaluate.best_of_n(Ensemble([mini, scorer]), rows, ns=(2,), draws=10, correct_by="label").to_dict()
    assert report["best"]["mean"]["2"]["value"] == pytest.approx(chosen.mean())
    assert report["unscored"] == 0
