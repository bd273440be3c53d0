"""Step labels from scripted rollouts: every expected value is counted by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.label_parties import GOLD, RIGHT, STEPS, WRONG, Script, solution
from surefoot.core.generation import Generation, GenerationRequest
from surefoot.core.labels import LabelledSolution, Outcomes
from surefoot.errors import InputError, JobError, OptionError
from surefoot.generate.rollouts import RolloutGenerator
from surefoot.labelling.job import LabelReport, label
from surefoot.labelling.reading import cut
from surefoot.labelling.rows import write_training_rows
from surefoot.labelling.settings import LabelBudget, LabelSettings

# After 0 steps (whole answers), 1 step, 2 steps, ...
PLAN = {0: "RRRRRRWW", 1: "RRRRRRWW", 2: "RRRWWWWW", 3: "WWWWWWWW", 4: "WWWWWWWW"}


def run(tmp_path: Path, plan: Any = PLAN, text: Any = None, **given: Any) -> LabelReport:
    generator = given.pop("generator", None) or Script(plan)
    names = ("judge", "screen", "concurrency", "seed", "fresh", "completions", "steps", "limit")
    others = {name: given.pop(name) for name in names if name in given}
    row = {"question": "How long?", "answer": GOLD, "solution": solution(WRONG) if text is None else text}
    if "completions" not in others and "steps" not in others:
        others["solution"] = "solution"
    rows = given.pop("rows", [row])
    settings = LabelSettings(**given)
    return label(rows, tmp_path / "out", generator=generator, settings=settings, **others)


def one(tmp_path: Path, *args: Any, **given: Any) -> LabelledSolution:
    (found,) = run(tmp_path, *args, **given).solutions
    return found


def hard(found: LabelledSolution) -> list[bool | None]:
    return [step.hard for step in found.steps]


def test_every_step_gets_hard_soft_and_relative_labels_from_one_run(tmp_path: Path) -> None:
    found = one(tmp_path)
    assert [step.text for step in found.steps] == [*(f"{step}\n\n" for step in STEPS), WRONG]
    assert "".join(step.text for step in found.steps) == found.text == solution(WRONG)
    assert found.pass_rate == Outcomes(right=6, wrong=2)
    assert hard(found) == [True, True, False, None, None]
    assert [step.soft for step in found.steps] == [0.75, 0.375, 0.0, None, None]
    # 0.75 / 0.75, 0.375 / 0.75, 0 / 0.375
    assert [step.relative for step in found.steps] == [True, False, False, None, None]
    assert [step.state for step in found.steps] == ["labelled"] * 3 + ["unknown"] * 2
    assert {step.reason for step in found.steps[3:]} == {"The step comes after the first error."}
    assert [step.value for step in found.steps] == [0.75, 0.375, 0.0, 0.0, 0.0], "what was measured is kept"
    assert [step.source for step in found.steps] == ["rollouts"] * 4 + ["answer"]
    assert (found.first_error, found.answer, found.outcome) == (2, "121", "wrong")
    # Wilson's interval of 3 out of 8, by hand with z = 1.959964: the middle is (3/8 + z²/16) / (1 + z²/8) = 0.415551,
    # and half its length is z * sqrt(3/8 * 5/8 / 8 + z²/256) / (1 + z²/8) = 0.278706.
    assert found.steps[1].interval == pytest.approx((0.136845, 0.694257), abs=1e-6)
    assert (found.violations, found.checked) == ((), True)


def test_prefixes_are_the_exact_text_and_the_last_step_needs_no_rollouts(tmp_path: Path) -> None:
    script = Script(PLAN)
    text = "First. \n\n\n\n  Second.\n\nThird.\n\n" + WRONG
    script.plan = {0: "R", 1: "R", 2: "R", 3: "R", 4: "R"}
    found = one(tmp_path, text=text, generator=script, k=2)
    assert [step.text for step in found.steps] == ["First. \n\n\n\n", "  Second.\n\n", "Third.\n\n", WRONG]
    prefixes = list(dict.fromkeys(request.prefix for request in script.requests))
    assert prefixes == ["", "First. \n\n\n\n", "First. \n\n\n\n  Second.\n\n", "First. \n\n\n\n  Second.\n\nThird.\n\n"]
    assert hard(found) == [True, True, True, False]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("A\n\nB", ["A\n\n", "B"]),
        ("\n\nA\n\nB\n\n", ["\n\nA\n\n", "B\n\n"]),
        ("A\n\n\n\n\nB", ["A\n\n\n\n", "\nB"]),
        ("A", ["A"]),
        ("\n\n\n\n A", ["\n\n\n\n A"]),
    ],
)
def test_cutting_keeps_every_character(text: str, steps: list[str]) -> None:
    assert list(cut(text, "\n\n")) == steps


def test_a_list_of_steps_is_joined_by_the_delimiter(tmp_path: Path) -> None:
    script = Script({0: "R", 1: "R", 2: "W"})
    rows = [{"question": "q", "answer": GOLD, "parts": ["First.", "Second.\n\n", WRONG]}]
    (found,) = run(tmp_path, generator=script, rows=rows, steps="parts", k=1).solutions
    assert found.text == "First.\n\nSecond.\n\n" + WRONG
    assert hard(found) == [True, False, None]


def test_a_given_solution_without_an_answer_is_measured_to_its_end(tmp_path: Path) -> None:
    found = one(tmp_path, {0: "R", 1: "RW"}, "First.\n\nSecond, and so on.", k=2)
    assert (found.outcome, found.answer) == (None, None)
    assert [step.value for step in found.steps] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("letters", "given", "outcomes", "value", "label"),
    [
        ("RWUUUUUU", {}, Outcomes(1, 1, undecided=6), 0.5, True),
        ("WWWWUUUU", {}, Outcomes(0, 4, undecided=4), 0.0, False),
        ("WWWUUUUU", {}, Outcomes(0, 3, undecided=5), 0.0, None),
        ("WWWUUUUU", {"min_known": 0.25}, Outcomes(0, 3, undecided=5), 0.0, False),
        ("UUUUUUUU", {"min_known": 0.0}, Outcomes(undecided=8), None, None),
        ("CCCCNNWW", {}, Outcomes(0, 2, 4, 2), 0.0, None),
        ("CCCCNNWW", {"count_as_wrong": ("cut_off",)}, Outcomes(0, 6, 0, 2), 0.0, False),
        ("CCCCNNWW", {"count_as_wrong": ("cut_off", "unanswered")}, Outcomes(0, 8), 0.0, False),
        ("RRRRCCNN", {"count_as_wrong": ("unanswered",)}, Outcomes(4, 2, 2), 4 / 6, True),
        ("WEWEWWWW", {}, Outcomes(0, 6, failed=2), 0.0, False),
        ("RRRRWWWW", {"threshold": 0.5}, Outcomes(4, 4), 0.5, False),
        ("RRRRRWWW", {"threshold": 0.5}, Outcomes(5, 3), 0.625, True),
        ("RUUUUUUU", {"threshold": 0.5}, Outcomes(1, 0, undecided=7), 1.0, None),
    ],
)
def test_an_unknown_rollout_is_not_wrong(
    tmp_path: Path, letters: str, given: dict[str, Any], outcomes: Outcomes, value: float | None, label: bool | None
) -> None:
    found = one(tmp_path, {0: "R", 1: letters}, "First.\n\n" + RIGHT, **given)
    step = found.steps[0]
    assert (step.outcomes, step.value, step.hard) == (outcomes, value, label)
    if label is None:
        assert step.reason == f"{outcomes.unknown} of 8 rollouts cannot be judged."
        assert found.first_error is None


@pytest.mark.parametrize(
    ("last", "label", "reason"),
    [
        (RIGHT, True, None),
        (WRONG, False, None),
        ("The answer is \\boxed{2 hours}.", None, "The answer cannot be compared."),
    ],
)
def test_the_last_step_is_judged_by_its_own_answer(
    tmp_path: Path, last: str, label: bool | None, reason: str | None
) -> None:
    step = one(tmp_path, {0: "R", 1: "R"}, "First.\n\n" + last).steps[-1]
    assert (step.hard, step.relative, step.reason, step.outcomes.total) == (label, label, reason, 0)


@pytest.mark.parametrize(
    ("given", "rollouts", "early"),
    [
        ({"stop": "never"}, {0: 8, 1: 8, 2: 8, 3: 8, 4: 8}, [False] * 4),
        # Rounds of 4: a right rollout in the first one ends it.
        ({"stop": "first-right"}, {0: 8, 1: 4, 2: 4, 3: 8, 4: 8}, [True, True, False, False]),
        ({"stop": "first-right", "round_size": 8}, {0: 8, 1: 8, 2: 8, 3: 8, 4: 8}, [False] * 4),
        ({"stop": "first-right", "round_size": 1}, {0: 8, 1: 1, 2: 1, 3: 8, 4: 8}, [True, True, False, False]),
        # Wilson at 4/4 is [0.51, 1], at 0/4 [0, 0.49]; at 3/4 [0.30, 0.95] goes on.
        ({"stop": "interval", "threshold": 0.5}, {0: 8, 1: 4, 2: 8, 3: 4, 4: 4}, [True, False, True, True]),
    ],
)
def test_sampling_stops_when_the_decision_is_certain(
    tmp_path: Path, given: dict[str, Any], rollouts: dict[int, int], early: list[bool]
) -> None:
    script = Script(PLAN)
    found = one(tmp_path, generator=script, **given)
    assert script.rollouts == rollouts
    assert [step.stopped_early for step in found.steps[:4]] == early
    # A value that could have stopped is biased, also if it did not: a step with the chance 0.3 that gets to 8 rollouts
    # has 4 wrong ones first, so its value is 4 * 0.3 / 8 = 0.15 on average.
    fixed = given["stop"] == "never" or given.get("round_size") == 8
    labelled = [step for step in found.steps if step.state == "labelled" and step.source == "rollouts"]
    assert [step.soft for step in labelled] == ([6 / 8, 3 / 8, 0.0] if fixed else [None] * len(labelled))
    assert [step.relative for step in labelled] == ([True, False, False] if fixed else [None] * len(labelled))


def test_the_summary_says_why_steps_have_no_label(tmp_path: Path) -> None:
    rows = [
        {"question": "q0", "answer": GOLD, "solution": solution(WRONG)},  # steps 3 and 4 come after the error
        {"question": "q1", "answer": GOLD, "solution": "First.\n\nSecond.\n\nThe answer is \\boxed{2 hours}."},
    ]
    plan = {0: "R", 1: "R", 2: "CCCCCWRW", 3: "W", 4: "W"}
    text = str(run(tmp_path, plan, rows=rows, threshold=0.25).summary)
    # After two steps, 3 of 8 rollouts can be judged, in both solutions: fewer than half.
    (line,) = [line for line in text.splitlines() if line.startswith("no label: ")]
    parts = line.removeprefix("no label: ").split("; ")
    assert set(parts[:2]) == {"the step comes after the first error (2)", "too many rollouts cannot be judged (2)"}
    assert parts[2:] == ["the answer cannot be compared (1)"]


def test_until_error_measures_no_step_after_it(tmp_path: Path) -> None:
    script = Script(PLAN)
    found = one(tmp_path, generator=script, procedure="until-error")
    assert script.rollouts == {0: 8, 1: 8, 2: 8, 3: 8}
    assert (hard(found), found.first_error) == ([True, True, False, None, None], 2)
    assert found.steps[3].outcomes.total == 0


def test_binary_search_labels_the_same_with_fewer_rollouts(tmp_path: Path) -> None:
    scripts = {name: Script(PLAN) for name in ("every", "binary")}
    found = {
        name: one(tmp_path / name, generator=script, procedure=name, pass_rollouts=0, checks=0)
        for name, script in scripts.items()
    }
    assert hard(found["every"]) == hard(found["binary"]) == [True, True, False, None, None]
    assert scripts["every"].rollouts == {1: 8, 2: 8, 3: 8, 4: 8}
    # The answer is wrong. The middle of steps 0 to 3 is step 1 (right), then step 2 (wrong).
    assert scripts["binary"].rollouts == {2: 8, 3: 8}
    assert [step.source for step in found["binary"].steps] == ["implied", "rollouts", "rollouts", None, "answer"]
    assert found["binary"].steps[0].soft is None
    assert found["binary"].spent.rollouts == 16


def test_a_right_answer_implies_right_steps_for_binary_search(tmp_path: Path) -> None:
    script = Script({})
    found = one(tmp_path, text=solution(RIGHT), generator=script, procedure="binary", pass_rollouts=0)
    assert (hard(found), script.requests, found.first_error) == ([True] * 5, [], -1)


@pytest.mark.parametrize(
    ("procedure", "checks", "last", "violations", "checked"),
    [
        ("every", 1, WRONG, (3,), True),
        ("every", 1, RIGHT, (3, 4), True),
        ("until-error", 1, RIGHT, (4,), True),
        ("until-error", 1, WRONG, (), True),  # the wrong answer does not contradict
        ("binary", 1, WRONG, (3,), True),
        ("binary", 0, WRONG, (), False),  # nothing but the answer, which made the search begin, is known after it
    ],
)
def test_a_right_step_after_a_wrong_one_is_reported(
    tmp_path: Path, procedure: Any, checks: int, last: str, violations: tuple[int, ...], checked: bool
) -> None:
    plan = {0: "R", 1: "R", 2: "R", 3: "W", 4: "R"}
    report = run(tmp_path, plan, solution(last), procedure=procedure, checks=checks)
    (found,) = report.solutions
    assert (found.first_error, found.violations, found.checked) == (2, violations, checked)
    summary = report.summary
    assert (summary.violations, summary.violated, summary.checked) == (len(violations), bool(violations), checked)


def test_sampled_solutions_are_whole_answers_and_only_finished_ones_are_labelled(tmp_path: Path) -> None:
    plan = {0: "RCNW", 1: "R", 2: "R", 3: "R", 4: "W"}
    script = Script(plan)
    rows = [{"question": "q", "answer": GOLD}]
    report = label(rows, tmp_path / "out", generator=script, settings=LabelSettings(k=2, samples=4, pass_rollouts=6))
    assert [each.state for each in report.solutions] == ["labelled", "unfinished", "labelled", "labelled"]
    assert script.rollouts[0] == 6, "whole answers are sampled once, for the pass rate and as solutions"
    assert report.solutions[0].pass_rate == Outcomes(right=2, wrong=1, cut_off=2, unanswered=1)
    assert report.solutions[0].text == solution(RIGHT)
    assert report.solutions[1].reason == "It was cut off at max_tokens=2048."
    assert report.solutions[2].steps[-1].reason == "The step comes after the first error."
    assert [hard(each) for each in report.solutions if each.steps] == [[True, True, True, False, None]] * 3
    assert report.summary.spent.rollouts == sum(script.rollouts.values()) == 6 + 3 * 4 * 2
    assert report.summary.spent.calls == len(script.requests)
    assert report.summary.spent.prompt_tokens == sum(len(r.prefix.split()) + 1 for r in script.requests)
    assert report.solutions[0].spent.rollouts == 8
    assert report.solutions[0].steps[0].spent.rollouts == 2
    fewer = label(rows, tmp_path / "fewer", generator=Script(plan), settings=LabelSettings(samples=4, pass_rollouts=2))
    assert fewer.solutions[3].pass_rate == Outcomes(right=1, cut_off=1)


def test_half_a_surrogate_pair_does_not_stop_the_job(tmp_path: Path) -> None:
    """Servers escape what they cut in the middle of an emoji; JSON can express it, UTF-8 cannot."""

    @dataclass
    class Emoji(Script):
        async def generate(self, request: GenerationRequest) -> Generation:
            found = await super().generate(request)
            first, *others = found.continuations
            return replace(found, continuations=(replace(first, text=f"\ud83d {first.text}"), *others))

    rows = [{"question": "q", "answer": GOLD}]
    settings = LabelSettings(k=2, samples=2, pass_rollouts=0)
    for run in range(2):  # the second one reads what the first one wrote
        report = label(rows, tmp_path / "out", generator=Emoji(PLAN), settings=settings)
        assert [each.state for each in report.solutions] == ["failed", "labelled"], run
        assert report.solutions[0].text.startswith("\ud83d")
        assert "surrogate pair" in (report.solutions[0].reason or "")
    lines = (tmp_path / "out" / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    assert [LabelledSolution.from_dict(json.loads(line)) for line in lines] == list(report.solutions)
    assert write_training_rows(tmp_path / "train.jsonl", report.solutions) == 1


@pytest.mark.parametrize(
    ("letters", "given", "reason"),
    [
        ("WWWWWWWR", {"min_pass": 0.25}, "The pass rate 0.125 is below min_pass=0.25."),
        ("RRRRRRRR", {"max_pass": 0.9}, "The pass rate 1 is above max_pass=0.9."),
        ("CCCCCCCC", {"min_pass": 0.1}, "The pass rate is unknown: none of 8 whole answers can be judged."),
        ("RRRRWWWW", {"min_pass": 0.1, "max_pass": 0.9}, None),
    ],
)
def test_questions_are_filtered_by_pass_rate_and_recorded(
    tmp_path: Path, letters: str, given: dict[str, Any], reason: str | None
) -> None:
    script = Script({**PLAN, 0: letters})
    found = one(tmp_path, generator=script, **given)
    assert (found.state, found.reason) == ("labelled" if reason is None else "filtered", reason)
    assert found.pass_rate is not None
    assert found.pass_rate.total == 8
    if reason is not None:
        assert (found.steps, list(script.rollouts), found.kept) == ((), [0], False)


def test_the_budget_of_a_question_is_not_exceeded_and_undecided_steps_say_so(tmp_path: Path) -> None:
    script = Script(PLAN)
    found = one(tmp_path, generator=script, budget=LabelBudget(calls=22))
    # 8 whole answers, 8 after the first step, and 6 of 8 after the second: 3 are right, which decides.
    assert script.rollouts == {0: 8, 1: 8, 2: 6}
    assert [step.hard for step in found.steps[:3]] == [True, True, None]
    assert found.steps[1].outcomes == Outcomes(right=3, wrong=3)
    assert found.steps[2].reason == "The budget of calls is used up."
    script = Script({**PLAN, 2: "WWWWWWWW"})
    found = one(tmp_path / "wrong", generator=script, budget=LabelBudget(calls=22))
    assert found.steps[1].outcomes == Outcomes(wrong=6)
    assert (found.steps[1].hard, found.steps[1].reason) == (None, "The budget of calls is used up.")
    script = Script(PLAN)
    found = one(tmp_path / "tokens", generator=script, budget=LabelBudget(tokens=100), count_as_wrong=("cut_off",))
    assert 90 < found.question_spent.generated_tokens <= 100
    assert any(step.reason == "The budget of tokens is used up." for step in found.steps)
    assert sum(step.outcomes.cut_off for step in found.steps) > 0, "cut off by the budget is not wrong"


@pytest.mark.parametrize("concurrency", [1, 3, 10])
def test_the_budget_in_total_ends_at_the_same_question_whatever_runs_at_a_time(
    tmp_path: Path, concurrency: int
) -> None:
    rows = [{"question": f"q{at}", "answer": GOLD, "solution": solution(WRONG)} for at in range(10)]
    budget = LabelBudget(total_calls=100)
    report = run(tmp_path, rows=rows, budget=budget, concurrency=concurrency)
    # 40 rollouts per question: the third one starts at 80 and ends at 120.
    assert [each.index for each in report.solutions] == [0, 1, 2]
    assert report.over_budget == 7
    report = run(tmp_path, rows=rows, concurrency=concurrency)
    assert (len(report.solutions), report.over_budget) == (10, 0)
    assert report.resumed >= 3
    # A question that is missing in between is labelled, although later ones have used up the budget.
    journal = tmp_path / "out" / "_surefoot" / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines(keepends=True) if '"index": 1,' not in line]
    journal.write_text("".join(lines))
    report = run(tmp_path, rows=rows, budget=budget, concurrency=concurrency)
    assert ([each.index for each in report.solutions], report.resumed) == ([0, 1, 2], 9)


def test_rollouts_of_recorded_solutions_have_the_share_of_their_rows(tmp_path: Path) -> None:
    texts = ["A.\n\nB.\n\n" + RIGHT] * 3 + ["A.\n\nC.\n\n" + WRONG] * 5 + ["D.\n\n" + WRONG] * 2
    generator = RolloutGenerator([{"question": "q", "solution": text} for text in texts])
    rows = [{"question": "q", "answer": GOLD, "all": list(dict.fromkeys(texts))}]
    report = run(tmp_path, generator=generator, rows=rows, completions="all", k=400, round_size=400)
    true = {"A.\n\n": 3 / 8, "A.\n\nB.\n\n": 1.0, "A.\n\nC.\n\n": 0.0, "D.\n\n": 0.0}
    for found in report.solutions:
        for at, step in enumerate(found.steps[:-1]):
            value = true["".join(each.text for each in found.steps[: at + 1])]
            assert step.value == pytest.approx(value, abs=4 * (value * (1 - value) / 400) ** 0.5)
    assert [found.first_error for found in report.solutions] == [-1, 1, 0]


def test_records_survive_json(tmp_path: Path) -> None:
    report = run(tmp_path)
    lines = (tmp_path / "out" / "labels.jsonl").read_text().splitlines()
    assert [LabelledSolution.from_dict(json.loads(line)) for line in lines] == list(report.solutions)
    with pytest.raises(InputError, match="not a labelled solution"):
        LabelledSolution.from_dict({"index": 0})
    assert replace(report.solutions[0], steps=()).first_error is None


@pytest.mark.parametrize(
    ("rows", "given", "error", "message"),
    [
        ([], {}, InputError, "no question"),
        ([{"text": "x"}], {}, InputError, r"row 0 \(from 0\): `question` is missing"),
        ([{"question": "q", "solution": "x"}], {}, InputError, "`answer` is missing. Labels need a reference"),
        ([{"question": "q", "answer": " ", "solution": "x"}], {}, InputError, "`answer` is empty"),
        ([{"question": "q", "answer": "1"}], {}, InputError, "`solution` is missing"),
        ([{"question": "q\ud800", "answer": "1", "solution": "x"}], {}, InputError, "half of a surrogate pair"),
        ([{"question": "q", "answer": "\ud800", "solution": "x"}], {}, InputError, "half of a surrogate pair"),
        ([{"question": "q", "answer": "1", "solution": "x" * 1_000_001}], {}, InputError, "limit is 1,000,000"),
        ([{"question": "q", "answer": "1", "solution": " \n\n "}], {}, InputError, "Step 0 is blank"),
        ([{"question": "q", "answer": "1", "solution": ""}], {}, InputError, "no steps"),
        ([{"question": "q", "answer": "1", "s": []}], {"completions": "s"}, InputError, "`s` is empty"),
        ([{"question": "q", "answer": "1", "s": ["a", " "]}], {"steps": "s"}, InputError, "Step 1 is blank"),
        (None, {"concurrency": 0}, OptionError, "concurrency=0"),
        (None, {"k": 0}, OptionError, "k=0"),
        (None, {"procedure": "some"}, OptionError, "every, until-error, binary"),
        (None, {"stop": "soon"}, OptionError, "first-right, interval, never"),
        (None, {"stop": "first-right", "threshold": 0.5}, OptionError, "Use stop='interval'"),
        (None, {"threshold": 1.0}, OptionError, "no value is above 1"),
        (None, {"min_pass": 0.9, "max_pass": 0.1}, OptionError, "no question would be left"),
        (None, {"min_pass": 0.1, "pass_rollouts": 0}, OptionError, "Set `pass_rollouts`"),
        (None, {"count_as_wrong": ("errors",)}, OptionError, "cut_off, unanswered"),
        (None, {"generator": Script({}, continues=False)}, OptionError, "cannot continue a partial solution"),
    ],
)
def test_a_wrong_call_fails_before_anything_is_written(
    tmp_path: Path, rows: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path, **given, **({} if rows is None else {"rows": rows}))
    assert not (tmp_path / "out").exists()


def test_other_wrong_settings() -> None:
    from surefoot.core.generation import GREEDY

    with pytest.raises(OptionError, match="makes all rollouts equal"):
        LabelSettings(sampling=GREEDY)
    with pytest.raises(OptionError, match="calls=0 allows nothing"):
        LabelBudget(calls=0)


def test_a_generator_that_is_gone_stops_the_job(tmp_path: Path) -> None:
    rows = [{"question": f"q{at}", "answer": GOLD, "solution": solution(WRONG)} for at in range(8)]
    with pytest.raises(JobError, match=r"failed for 3 questions in a row: the script says so"):
        run(tmp_path, dict.fromkeys(range(5), "E"), rows=rows, concurrency=2)


def test_a_request_that_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    script = Script({**PLAN, 2: "E"})
    report = run(tmp_path, generator=script)
    assert report.failed == 1
    assert report.solutions[0].steps[1].outcomes == Outcomes(failed=8)
    assert report.solutions[0].first_error is None
    report = run(tmp_path)
    assert (report.failed, report.resumed, report.solutions[0].first_error) == (0, 0, 2)
