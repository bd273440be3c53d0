"""Labels all solutions of one question: samples or takes them, filters by pass rate, screens, measures and judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from surefoot.core.generation import Generator
from surefoot.core.labels import NONE_SAMPLED, LabelCost, LabelledSolution, Outcomes, ScorerVerdict, SolutionState
from surefoot.data.items import is_unicode
from surefoot.labelling.reading import Question, cut
from surefoot.labelling.rollouts import Judged, RolloutSampler
from surefoot.labelling.scorers import Scorers, screened
from surefoot.labelling.settings import LabelSettings
from surefoot.labelling.steps import SolutionProbes, label_steps, screened_steps
from surefoot.text.answers import find_answer


@dataclass(frozen=True)
class LabelledQuestion:
    """The solutions of one question, and whether the generator worked."""

    solutions: tuple[LabelledSolution, ...]
    failure: str | None = None
    """Why a request failed as a whole. The next run tries the question again."""
    reachable: bool = True
    """Whether any request succeeded, or none was needed."""

    @property
    def spent(self) -> LabelCost:
        """What the question cost."""
        return self.solutions[0].question_spent


async def label_question(
    generator: Generator, scorers: Scorers, question: Question, settings: LabelSettings, seed: int
) -> LabelledQuestion:
    """Label all solutions of a question, one after the other."""
    sampler = RolloutSampler(generator, question, settings, seed)
    samples = 0 if question.solutions else settings.samples
    wanted = max(samples, settings.pass_rollouts)
    answers = (await sampler.whole_answers(wanted))[0] if wanted else []
    pass_rate = _pass_rate(answers[: settings.pass_rollouts]) if settings.pass_rollouts else None
    if question.solutions:
        found = [await _given(question, number, sampler) for number in range(len(question.solutions))]
    else:
        found = [_sampled(question, number, each) for number, each in enumerate(answers[:samples])]
        found = found or [_solution(question, 0, "", "failed", "The budget is used up.", sampled=True)]
    if rejected := settings.rejects(pass_rate):
        found = [replace(each, state="filtered", reason=rejected) for each in found]
    steps = [_steps(question, each, settings.step_end) for each in found]
    labelled = await _label_all(found, steps, sampler, scorers, settings, pass_rate)
    finished = tuple(replace(each, pass_rate=pass_rate, question_spent=sampler.spent) for each in labelled)
    return LabelledQuestion(
        finished, next(iter(sampler.failures), None), bool(sampler.succeeded) or not sampler.failures
    )


async def _label_all(
    found: Sequence[LabelledSolution],
    steps: Sequence[Sequence[str]],
    sampler: RolloutSampler,
    scorers: Scorers,
    settings: LabelSettings,
    pass_rate: Outcomes | None,
) -> list[LabelledSolution]:
    usable = [at for at, each in enumerate(found) if each.state == "labelled"]
    question, texts = found[0].question, [steps[at] for at in usable]
    probes = {at: _probes(found[at], steps[at], sampler, settings) for at in usable}
    given = await scorers.verdicts(scorers.screen, question, texts)
    screens = {at: screened(verdict, probes[at].last, settings) for at, verdict in zip(usable, given, strict=True)}
    # Where the screening scorer is certain, nothing expensive is asked: neither rollouts nor the judge.
    uncertain = [at for at in usable if not _certain(screens[at])]
    judged = await scorers.verdicts(scorers.judge, question, [steps[at] for at in uncertain])
    judges = dict(zip(uncertain, judged, strict=True))
    labelled = list(found)
    for at in usable:
        solution = replace(found[at], judge=judges.get(at), screen=screens[at])
        labelled[at] = await _label(solution, probes[at], pass_rate)
    return labelled


def _probes(
    solution: LabelledSolution, texts: Sequence[str], sampler: RolloutSampler, settings: LabelSettings
) -> SolutionProbes:
    own = None
    if solution.outcome is not None:
        own = Judged(solution.text, solution.outcome, solution.answer)
    return SolutionProbes(texts, solution.number, sampler, settings, own)


def _certain(screen: ScorerVerdict | None) -> bool:
    return screen is not None and screen.certain is True


async def _label(solution: LabelledSolution, probes: SolutionProbes, pass_rate: Outcomes | None) -> LabelledSolution:
    before = probes.sampler.spent
    if solution.screen is not None and _certain(solution.screen):
        labels = screened_steps(probes.texts, solution.screen)
    else:
        labels = await label_steps(probes, None if pass_rate is None else pass_rate.value)
    after = probes.sampler.spent
    spent = LabelCost(**{name: value - getattr(before, name) for name, value in vars(after).items()})
    return replace(solution, steps=labels.steps, violations=labels.violations, checked=labels.checked, spent=spent)


async def _given(question: Question, number: int, sampler: RolloutSampler) -> LabelledSolution:
    """A given solution is finished if it states an answer."""
    text = "".join(question.solutions[number])
    solution = _solution(question, number, text, "labelled")
    if find_answer(text) is None:
        return solution
    judged = await sampler.judge(text)
    return replace(solution, answer=judged.answer, outcome=judged.verdict)


def _sampled(question: Question, number: int, judged: Judged) -> LabelledSolution:
    state: SolutionState = "labelled" if judged.reason is None else "unfinished"
    reason = judged.reason
    if judged.verdict == "failed":
        state = "failed"
    elif not judged.text.strip():
        state, reason = "unfinished", reason or "The generator wrote nothing."
    elif not is_unicode(judged.text):
        state, reason = "failed", "The generator wrote half of a surrogate pair, which is not a character."
    solution = _solution(question, number, judged.text, state, reason, sampled=True)
    return replace(solution, answer=judged.answer, outcome=judged.verdict)


def _solution(
    question: Question,
    number: int,
    text: str,
    state: SolutionState,
    reason: str | None = None,
    *,
    sampled: bool = False,
) -> LabelledSolution:
    return LabelledSolution(
        question.index, number, question.text, question.gold, text, (), state, reason, question.id, sampled
    )


def _steps(question: Question, solution: LabelledSolution, step_end: str) -> tuple[str, ...]:
    return cut(solution.text, step_end) if solution.sampled else question.solutions[solution.number]


def _pass_rate(answers: Sequence[Judged]) -> Outcomes:
    outcomes = NONE_SAMPLED
    for each in answers:
        outcomes = outcomes.plus(each.verdict)
    return outcomes
