"""An ensemble: several scorers as one `StepScorer`, whose `spread` is their disagreement.

Every member scores every item. An error of one member, such as a server that cannot be reached, is an error of the
call: an ensemble never continues with fewer members on its own.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar

from surefoot.client import Client
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item, SearchSession, StepScorer
from surefoot.core.result import Scale, SolutionScore
from surefoot.data.batching import check_window
from surefoot.data.items import read_candidates, read_item, read_question
from surefoot.display.progress import Progress
from surefoot.errors import InputError, OptionError
from surefoot.scoring.combining import COMBINES, MISSING_MEMBER, Combine, Member, MissingMember, Rule
from surefoot.scoring.load_call import LoadCall

T = TypeVar("T")


class Ensemble:
    """Several scorers as one. Create it with `surefoot.load` and a list.

    >>> ensemble = surefoot.load(["Qwen/Qwen2.5-Math-PRM-7B", "mini"], combine="mean")
    >>> step = ensemble.score("What is 2 + 3?", "2 + 3 = 6.").steps[0]
    >>> [member.model for member in step.members]
    ['Qwen/Qwen2.5-Math-PRM-7B', 'mini']

    `combine` is `mean`, `min`, or `calibrated`: the mean of members that all have a calibration. If a member gives no
    score for a step, the step is unscored; `missing="skip"` combines the other members and adds a warning.
    """

    def __init__(
        self,
        members: Sequence[StepScorer],
        combine: Combine = "mean",
        missing: MissingMember = "unscored",
        name: str | None = None,
    ) -> None:
        _check_options(combine, missing)
        if len(members) < 2:
            raise OptionError(f"An ensemble needs at least two members, and the list has {len(members)}.")
        self.members = tuple(members)
        self._given = (combine, missing, name)
        described = _described(self.members)
        _check_members(described, self.members, combine)
        calibrations = sorted(each.calibration for each in described if each.calibration is not None)
        self._rule = Rule(
            name or f"{combine}({', '.join(each.label for each in described)})",
            described,
            combine,
            missing,
            "+".join(calibrations) if len(calibrations) == len(described) else None,
        )

    def __repr__(self) -> str:
        return f"<surefoot.Ensemble {self.name!r}: {len(self.members)} members, {self.scale}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """An ensemble is pickled as its members, each in its own way."""
        return Ensemble, (self.members, *self._given)

    @property
    def name(self) -> str:
        """The name that was given, or the rule and the names of all members."""
        return self._rule.name

    @property
    def scale(self) -> Scale:
        """What the scores are: always `probability`."""
        return "probability"

    @property
    def fingerprint(self) -> str:
        """A hash of the members with their calibrations, in any order, and of how they are combined."""
        identities = sorted([each.fingerprint, each.calibration or ""] for each in self.members)
        text = json.dumps(["ensemble", identities, self._rule.combine, self._rule.missing])
        return sha256(text.encode()).hexdigest()

    @property
    def calibration(self) -> str | None:
        """The names of the members' calibrations if all have one, else None."""
        return self._rule.calibration

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Scores every step of one solution, given as text or as a list of steps."""
        return self.score_many([(question, solution)], options)[0]

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        """Scores items with every member. A malformed item raises `InputError` before a member scores anything."""
        asked = [read_item(item, number) for number, item in enumerate(items)]
        with Progress(len(asked), shown=progress) as bar:
            results = self._combined(lambda member: member.score_many(asked, options))
            bar.settle(len(results), sum(result.tokens for result in results))
            return results

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """Scores any number of items, `window` at a time. A malformed item becomes an unscored result."""
        check_window(window)

        def stream() -> Iterator[SolutionScore]:
            waiting = enumerate(items)
            with Progress(len(items) if isinstance(items, Sized) else None, shown=progress) as bar:
                while some := [_read(item, number) for number, item in islice(waiting, window)]:
                    valid = [item for item in some if not isinstance(item, InputError)]
                    # As a stream, so that an item which a member cannot accept does not end the call.
                    score = partial(_stream, valid, options)
                    scored = iter(self._combined(score) if valid else [])
                    results = [
                        self._rule.unscored(str(item)) if isinstance(item, InputError) else next(scored)
                        for item in some
                    ]
                    bar.settle(len(results), sum(result.tokens for result in results))
                    yield from results

        return stream()

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> EnsembleSession:
        """Starts a search over candidate solutions of one question, with a session of every member."""
        return EnsembleSession(self, question, options)

    def close(self) -> None:
        """Closes all members that can be closed, such as clients."""
        for member in self.members:
            if callable(close := getattr(member, "close", None)):
                close()

    def __enter__(self) -> Ensemble:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def waits_for_servers(self) -> bool:
        """Whether all members are on servers, so that the ensemble itself computes nothing."""
        return all(map(_waits, self.members))

    def _combined(self, score: Callable[[StepScorer], list[SolutionScore]]) -> list[SolutionScore]:
        return self.combine_results(lambda at: score(self.members[at]))

    def combine_results(self, score: Callable[[int], list[SolutionScore]]) -> list[SolutionScore]:
        """Calls `score` with the index of each member, and combines the results item by item.

        Members on servers are called at the same time, the others one after the other in this thread.
        """
        started = time.perf_counter()
        by_member = _run([(partial(score, at), _waits(member)) for at, member in enumerate(self.members)])
        return self.combine(by_member, time.perf_counter() - started)

    def combine(self, by_member: Sequence[Sequence[SolutionScore]], seconds: float) -> list[SolutionScore]:
        """Combines the results of all members, in their order, item by item. They share `seconds` by their tokens."""
        by_item = list(zip(*by_member, strict=True))
        tokens = [sum(result.tokens for result in results) for results in by_item]
        per_token = seconds / max(1, sum(tokens))
        return [self._rule.combined(each, per_token * count) for each, count in zip(by_item, tokens, strict=True)]


class EnsembleSession:
    """A search over one question with a session of every member. Created by `Ensemble.session`."""

    def __init__(self, ensemble: Ensemble, question: str, options: ReadOptions) -> None:
        self.question = read_question(question)
        self._ensemble = ensemble
        self._sessions: list[SearchSession] = [each.session(self.question, options) for each in ensemble.members]

    @property
    def computed_tokens(self) -> int:
        """Tokens that all members have computed so far."""
        return sum(session.computed_tokens for session in self._sessions)

    def score(self, prefixes: Sequence[str | Sequence[str]]) -> list[SolutionScore]:
        """Scores candidates, finished or not, each as text or as a list of steps."""
        candidates = [read_item(item, at)[1] for at, item in enumerate(read_candidates(self.question, prefixes))]
        return self._ensemble.combine_results(lambda at: self._sessions[at].score(candidates))


def _check_options(combine: str, missing: str) -> None:
    if combine == "rank":
        raise OptionError(
            "combine='rank' is not possible for a scorer: ranks depend on the other candidates, and scores must not. "
            "To rank the candidates of one question, use surefoot.scoring.ranking.rank_candidates."
        )
    for name, value, choices in (("combine", combine, COMBINES), ("missing", missing, MISSING_MEMBER)):
        if value not in choices:
            raise OptionError(f"{name}={value!r} is unknown. Choose one of: {', '.join(choices)}.")


def _described(members: Sequence[StepScorer]) -> tuple[Member, ...]:
    """Describes members. Those that have the same name get a part of their fingerprint as a suffix."""
    for member in members:
        if not all(hasattr(member, name) for name in ("score_many", "score_stream", "session")):
            raise OptionError(
                f"A member of the ensemble is {type(member).__name__}. Pass what surefoot.load takes, or a scorer."
            )
    counts = Counter(member.name for member in members)
    return tuple(
        Member(
            each.name if counts[each.name] == 1 else f"{each.name} ({each.fingerprint[:8]})",
            each.scale,
            each.calibration,
        )
        for each in members
    )


def _check_members(described: Sequence[Member], members: Sequence[StepScorer], combine: Combine) -> None:
    seen: dict[tuple[str, str | None], str] = {}
    for member, scorer in zip(described, members, strict=True):
        identity = scorer.fingerprint, member.calibration
        if identity in seen:
            raise OptionError(
                f"{member.label} and {seen[identity]} are the same model with the same calibration, so they never "
                "disagree. Leave one out."
            )
        seen[identity] = member.label
        if combine == "calibrated" and member.calibration is None:
            raise OptionError(
                f"{member.label} has no calibration, and combine='calibrated' needs one for every member. Fit one with "
                "`surefoot calibrate`, load the member with calibration=..., and pass that scorer."
            )
        if member.scale != "probability":
            raise OptionError(
                f"The scores of {member.label} are on the scale {member.scale!r}, and combine={combine!r} needs "
                "probabilities. Leave the member out, or rank candidates on any scale with "
                "surefoot.scoring.ranking.rank_candidates."
            )


def _read(item: Any, number: int) -> tuple[str, str | Sequence[str]] | InputError:
    try:
        return read_item(item, number)
    except InputError as error:
        return error


def _stream(items: Sequence[Item], options: ReadOptions, member: StepScorer) -> list[SolutionScore]:
    return list(member.score_stream(items, options, window=len(items)))


def _waits(member: StepScorer) -> bool:
    """Whether a server computes the scores of this member. Members of an unknown kind are called in this thread."""
    if isinstance(member, Ensemble):
        return member.waits_for_servers
    call = getattr(member, "load_call", None)
    return isinstance(member, Client) or (isinstance(call, LoadCall) and call.server is not None)


def _run(calls: Sequence[tuple[Callable[[], T], bool]]) -> list[T]:
    """Calls functions and returns their results in order. Those with a true flag run in threads."""
    waiting = sum(waits for _, waits in calls)
    if waiting == 0:
        return [call() for call, _ in calls]
    with ThreadPoolExecutor(waiting, thread_name_prefix="surefoot-ensemble") as threads:
        futures = {at: threads.submit(call) for at, (call, waits) in enumerate(calls) if waits}
        results = {at: call() for at, (call, waits) in enumerate(calls) if not waits}
        results |= {at: future.result() for at, future in futures.items()}
    return [results[at] for at in range(len(calls))]
