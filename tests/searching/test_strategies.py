"""Strategies against plain re-implementations on random trees, and tables of single cases."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from helpers.search_parties import Judge, Policy, random_policy
from surefoot.core.generation import GREEDY, GenerationRequest, derived_seed
from surefoot.core.search_result import SearchNode, SearchResult
from surefoot.errors import InputError, OptionError
from surefoot.searching.events import SearchEvent
from surefoot.searching.runner import Plan, SearchRunner
from surefoot.searching.settings import Budget, SearchSettings

QUESTION = "What?"


def run(policy: Policy, strategy: str, judge: Judge | None = None, seed: int = 0, **settings: Any) -> SearchResult:
    async def one() -> SearchResult:
        runner = SearchRunner(policy, judge or Judge())
        plan = Plan.of(strategy, SearchSettings(**settings))
        try:
            await runner.check([plan])
            return await runner.search(QUESTION, plan, seed)
        finally:
            runner.close()

    return asyncio.run(one())


def shape(result: SearchResult) -> list[tuple[str, str]]:
    return [(node.text, node.fate) for node in result.nodes[1:]]


def tells(*texts: str) -> Policy:
    """A policy that knows some solutions. After a prefix, the seed chooses among those that begin with it."""

    def write(prefix: str, seed: int) -> str:
        rest = [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]
        return rest[seed % len(rest)] if rest else "ERROR"

    return Policy(write)


# --- plain re-implementations, which know nothing of trees, sessions and events ---


class Plain:
    """Asks the policy directly and reads scores from the text."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.policy, self.seed = policy, seed
        self.ids: dict[str, int] = {"": 0}
        self.children: dict[str, int] = {}
        self.next = 1

    def continue_(self, prefix: str, count: int, subtree: int | None = None) -> list[tuple[str, str, float]]:
        key = f"{subtree}|{prefix}" if prefix else ""
        seed = derived_seed(self.seed, QUESTION, self.ids[key], self.children.get(key, 0), subtree)
        request = GenerationRequest(QUESTION, prefix, count, "\n\n", 2048, seed=seed)
        found: dict[str, tuple[str, str, float]] = {}
        for each in asyncio.run(self.policy.generate(request)).continuations:
            path = prefix + each.text
            score = min(float(part.split("]")[0]) for part in path.split("[")[1:])
            found.setdefault(path, (path, each.end, score))
        return list(found.values())

    def number(self, prefix: str, subtree: int | None, found: Sequence[tuple[str, str, float]]) -> None:
        key = f"{subtree}|{prefix}" if prefix else ""
        for path, _, _ in found:
            self.ids[f"{subtree}|{path}"] = self.next
            self.children[key] = self.children.get(key, 0) + 1
            self.next += 1


def plain_beam(policy: Policy, beams: int, branches: int, seed: int) -> set[str]:
    """The finished solutions of a beam search over the minimum."""
    plain, paths, places, finished = Plain(policy, seed), [""], beams, set()
    while paths and places:
        each, rest = divmod(places * branches, len(paths))
        rounds = [(path, plain.continue_(path, each + (at < rest))) for at, path in enumerate(paths)]
        candidates = []
        for path, found in rounds:
            plain.number(path, None, found)
            candidates += found
        finished |= {path for path, end, _ in candidates if end == "answer"}
        best = sorted(candidates, key=lambda one: -one[2])[:places]
        paths = [path for path, end, _ in best if end == "step"]
        places -= sum(end == "answer" for _, end, _ in best)
    return finished


def plain_dvts(policy: Policy, subtrees: int, branches: int, seed: int) -> dict[int, set[str]]:
    """The finished solutions of every subtree."""
    plain = Plain(policy, seed)
    tips, finished = dict.fromkeys(range(subtrees), ""), {at: set[str]() for at in range(subtrees)}
    while tips:
        rounds = {at: plain.continue_(path, branches, at) for at, path in tips.items()}
        for at, found in rounds.items():
            plain.number(tips[at], at, found)
            finished[at] |= {path for path, end, _ in found if end == "answer"}
        best = {at: max(found, key=lambda one: one[2]) for at, found in rounds.items()}
        tips = {at: path for at, (path, end, _) in best.items() if end == "step"}
    return finished


@pytest.mark.parametrize("seed", range(40))
def test_beam_search_finds_what_a_plain_one_finds(seed: int) -> None:
    beams, branches = 1 + seed % 4, 1 + seed % 3
    result = run(random_policy(5), "beam", seed=seed, n=beams * branches, branches=branches, aggregation="min")
    expected = plain_beam(random_policy(5), beams, branches, seed)
    assert {result.text(node.id) for node in result.finished} == expected
    assert len(expected) >= 1


@pytest.mark.parametrize("seed", range(40))
def test_dvts_finds_what_a_plain_one_finds_in_every_subtree(seed: int) -> None:
    subtrees, branches = 1 + seed % 4, 1 + seed % 3
    result = run(random_policy(5), "dvts", seed=seed, n=subtrees * branches, branches=branches, aggregation="min")
    found: dict[int, set[str]] = {at: set() for at in range(subtrees)}
    for node in result.finished:
        assert node.subtree is not None
        found[node.subtree].add(result.text(node.id))
        assert {each.subtree for each in result.path(node.id)} == {node.subtree}
    assert found == plain_dvts(random_policy(5), subtrees, branches, seed)


@pytest.mark.parametrize("strategy", ["best-of-n", "beam", "dvts", "backtracking"])
@pytest.mark.parametrize("seed", range(10))
def test_a_search_obeys_the_rules_of_all_searches(strategy: str, seed: int) -> None:
    policy, judge = random_policy(6), Judge()
    result = run(policy, strategy, judge, seed, n=6, branches=3, backtracks=3)
    assert result.to_dict() == SearchResult.from_dict(result.to_dict()).to_dict()
    assert result.spent.generated_tokens == sum(node.tokens for node in result.nodes)
    assert result.spent.generator_calls == sum(request.n for request in policy.requests)
    for node in result.nodes[1:]:
        assert (node.fate == "finished") == (node.end == "answer")
        assert (node.reason is not None) == (node.fate in ("pruned", "failed"))
        siblings = [each for each in result.nodes if (each.parent, each.subtree) == (node.parent, node.subtree)]
        if strategy != "best-of-n":
            assert len({each.text for each in siblings}) == len(siblings), "identical continuations are merged"
    voting = {at for answer in result.answers for at in answer.nodes}
    assert voting == {node.id for node in result.finished if node.answer is not None}
    assert sum(answer.votes for answer in result.answers) == sum(result.nodes[at].count for at in voting)
    # No candidate is sent to the scorer twice.
    assert len(set(judge.scored)) == len(judge.scored) or strategy == "dvts"


def test_best_of_n_ranks_by_every_aggregation_and_votes() -> None:
    one = "A [0.9]\n\nIt is \\boxed{1}. [0.4]"
    two = "B [0.6]\n\nIt is \\boxed{2}. [0.6]"
    three = "C [0.5]\n\nIt is \\boxed{2.0}. [0.5]"
    result = run(tells(one, two, three), "best-of-n", n=30)
    votes = {answer.answer: answer.votes for answer in result.answers}
    assert set(votes) == {"1", "2"}, "2.0 is the same answer as 2"
    assert sum(votes.values()) == 30
    assert result.select("best", "min") == "2"
    assert result.select("best", "mean") == "1"  # 0.65 > 0.6
    assert result.select("best", "final") == "2"
    assert result.select("majority") == "2"
    counts = Counter(result.text(node.id) for node in result.finished)
    (group,) = [answer for answer in result.answers if answer.answer == "2"]
    assert result.weight(group, "min") == pytest.approx(0.6 * counts[two] + 0.5 * counts[three])
    assert result.solution == two


def test_a_pruned_node_says_which_place_it_had() -> None:
    result = run(tells("A [0.9]\n\nYes \\boxed{1} [0.9]", "B [0.2]\n\nNo \\boxed{2} [0.1]"), "beam", n=8, branches=8)
    (pruned,) = [node for node in result.nodes if node.fate == "pruned"]
    assert pruned.text == "B [0.2]\n\n"
    assert pruned.reason == "rank 2 of 2 in this round; 1 kept"
    assert sum(node.count for node in result.nodes[1:3]) == 8


def test_unfinished_paths_are_never_answers() -> None:
    long = "It is \\boxed{7} for now [0.9]\n\n" * 30
    result = run(Policy(lambda prefix, seed: long), "beam", n=2, branches=2, max_steps=5)
    assert result.stop == "steps"
    assert result.answer is None
    assert not result.answers
    assert [node.fate for node in result.nodes[1:]] == ["expanded"] * 4 + ["open"]
    assert result.warnings == ("No path was finished, so there is no answer.",)


def test_a_cut_off_continuation_is_pruned_with_its_reason() -> None:
    result = run(Policy(lambda prefix, seed: "so \\boxed{7} " * 50), "best-of-n", n=2, max_tokens=10)
    for node in result.nodes[1:]:
        assert (node.end, node.fate, node.reason) == ("cut_off", "pruned", "cut off at max_tokens=10")
        assert node.tokens == 10
    assert (len(result.nodes), result.answer, result.stop) == (3, None, "unfinished")
    told = "2 of 2 continuations were cut off at max_tokens=10, without an answer. Raise max_tokens (--max-new-tokens)."
    assert result.warnings == (told, "No path was finished, so there is no answer.")
    assert "0 finished paths, 2 nodes and the root, 20 generated tokens, stop 'unfinished', warning: 2" in repr(result)


def test_samples_that_were_cut_off_are_counted_next_to_finished_ones() -> None:
    texts = ["so \\boxed{7} [0.9]", "so " * 50, "so " * 60, "so " * 70]
    result = run(Policy(lambda prefix, seed: texts[seed % 4]), "best-of-n", n=4, max_tokens=10)
    assert (result.answer, result.score, result.stop) == ("7", 0.9, "finished")
    told = "3 of 4 continuations were cut off at max_tokens=10, without an answer. Raise max_tokens (--max-new-tokens)."
    assert result.warnings == (told,)


def test_the_token_budget_is_named_if_it_cut_off() -> None:
    result = run(Policy(lambda prefix, seed: "so " * 50), "best-of-n", n=2, budget=Budget(tokens=20))
    told = "2 of 2 continuations were cut off at the token budget, without an answer. Raise the budget"
    assert result.warnings[0] == f"{told} (--budget-tokens)."
    assert result.stop == "tokens"


@pytest.mark.parametrize("strategy", ["beam", "dvts", "backtracking"])
@pytest.mark.parametrize("text", ["A [0.9]\n\nB [0.8]\n\nSo \\boxed{1} [0.7]", "\n\n\nA [0.9]\nSo \\boxed{1} [0.7]"])
def test_blank_pieces_are_part_of_the_next_step(strategy: str, text: str) -> None:
    result = run(tells(text), strategy, n=2, branches=2, step_end="\n")
    assert result.answer == "1"
    assert result.text(result.finished[0].id) == text
    steps = [step.text for node in result.path(result.finished[0].id) for step in node.steps]
    assert steps == [line for line in text.split("\n") if line]
    assert result.spent.generated_tokens == sum(node.tokens for node in result.nodes)


def test_a_policy_that_writes_only_blank_pieces_is_given_up() -> None:
    result = run(Policy(lambda prefix, seed: "\n\nMore"), "beam", n=2, branches=2)
    assert [(node.text, node.fate, node.reason) for node in result.nodes[1:]] == [
        ("\n\n" * 5, "pruned", "an empty step")
    ]


@pytest.mark.parametrize("strategy", ["beam", "dvts", "backtracking"])
def test_merged_continuations_do_not_shorten_the_path(strategy: str) -> None:
    """Each step is drawn many times. What that costs does not count towards the length of the path."""
    text = "".join(f"Step {at} has words to count [0.9]\n\n" for at in range(5)) + "So \\boxed{7} [0.9]"
    result = run(tells(text), strategy, n=16, branches=16, max_tokens=39)
    assert (result.answer, len(text.split())) == ("7", 38)
    assert result.spent.generated_tokens == sum(node.tokens for node in result.nodes) > 10 * 38


def test_a_search_that_its_budget_cut_off_says_so() -> None:
    result = run(tells("one two three four five six \\boxed{7} [0.9]"), "best-of-n", n=1, budget=Budget(tokens=3))
    assert (result.stop, result.nodes[1].reason) == ("tokens", "cut off at the token budget")


def test_a_generator_that_fails_in_the_middle_is_an_error() -> None:
    policy = Policy(lambda prefix, seed: "ERROR" if prefix else "Fine [0.9]\n\nMore")
    result = run(policy, "beam", n=4)
    assert (result.stop, result.answer) == ("error", None)


def test_an_unscored_path_does_not_take_the_votes_of_the_others() -> None:
    texts = ["It is \\boxed{1}. [0.9]"] * 6 + ["It is \\boxed{1}. [none]"] + ["It is \\boxed{2}. [0.1]"]
    result = run(tells(*texts), "best-of-n", n=64)
    assert {answer.answer for answer in result.answers} == {"1", "2"}
    assert result.select("weighted") == "1"
    alone = run(tells("It is \\boxed{1}. [none]"), "best-of-n", n=4)
    assert alone.select("weighted") is None


def test_a_long_path_is_no_recursion() -> None:
    text = "".join(f"{at} [0.9]\n\n" for at in range(1500)) + "So \\boxed{7} [0.9]"
    policy = Policy(lambda prefix, seed: text.removeprefix(prefix))
    result = run(policy, "beam", n=1, branches=1, max_steps=2000, max_tokens=10_000)
    assert (result.answer, result.finished[0].depth) == ("7", 1501)


def test_an_answer_that_ends_right_after_a_delimiter_is_finished() -> None:
    result = run(tells("It is \\boxed{3}. [0.8]\n\n"), "beam", n=2, branches=2)
    last = result.finished[0]
    assert (last.text, last.steps, last.value, last.answer) == ("", (), 0.8, "3")


def test_errors_of_the_generator_stay_in_the_tree() -> None:
    def write(prefix: str, seed: int) -> str:
        return "ERROR" if seed % 2 else "It is \\boxed{3}. [0.8]"

    result = run(Policy(write), "best-of-n", n=4)
    assert sorted(node.fate for node in result.nodes[1:]) == ["failed", "failed", "finished", "finished"]
    assert result.warnings == ("2 of 4 continuations failed: the policy is asleep",)
    assert (result.stop, result.answer) == ("finished", "3")
    dead = run(Policy(lambda prefix, seed: "ERROR"), "beam", n=4)
    assert (dead.stop, dead.answer) == ("error", None)


def test_a_step_without_a_score_is_not_continued() -> None:
    result = run(tells("Fine [0.9]\n\nOdd [none]\n\nIt is \\boxed{3}. [0.8]"), "beam", n=2, branches=2)
    assert result.nodes[2].fate == "failed"
    assert result.nodes[2].reason == "unscored: the judge has no opinion"
    assert result.answer is None


def test_a_finished_path_without_a_score_votes_and_is_never_the_best() -> None:
    result = run(tells("It is \\boxed{3}. [none]"), "best-of-n", n=2)
    assert result.answer is None
    assert result.select("majority") == "3"


@pytest.mark.parametrize(
    ("strategy", "lookahead"),
    [("best-of-n", 0), *((name, ahead) for name in ("beam", "dvts", "backtracking") for ahead in (0, 2))],
)
@pytest.mark.parametrize("tokens", [1, 7, 20, 55, 200])
def test_a_budget_of_tokens_is_never_exceeded(strategy: str, tokens: int, lookahead: int) -> None:
    policy = random_policy(8)
    result = run(policy, strategy, n=4, branches=2, budget=Budget(tokens=tokens), lookahead=lookahead)
    assert result.spent.generated_tokens <= tokens
    ahead = sum(node.lookahead.tokens for node in result.nodes if node.lookahead)
    assert result.spent.generated_tokens == sum(node.tokens for node in result.nodes) + ahead


def test_budgets_of_calls_and_seconds_stop_the_search() -> None:
    policy = Policy(lambda prefix, seed: f"Again {seed} [0.9]\n\n" * 2)
    calls = run(policy, "beam", n=4, branches=2, budget=Budget(calls=10))
    assert (calls.stop, calls.spent.generator_calls) == ("calls", 8)
    assert run(policy, "beam", n=4, branches=2, budget=Budget(seconds=1e-9)).stop == "seconds"
    ahead = run(policy, "beam", n=4, branches=2, budget=Budget(calls=10), lookahead=1)
    assert (ahead.stop, ahead.spent.generator_calls) == ("calls", 8)


def test_backtracking_returns_to_the_best_open_path() -> None:
    good = "Good start [0.8]\n\nIt is \\boxed{1}. [0.9]"
    bad = "Great start [0.9]\n\nThen it fails [0.1]\n\nIt is \\boxed{2}. [0.9]"
    result = run(tells(good, bad), "backtracking", n=16, aggregation="final")
    assert result.answer == "1"
    assert ("Then it fails [0.1]\n\n", "pruned") in shape(result)
    stubborn = run(tells(good, bad), "backtracking", n=16, backtracks=0, aggregation="final")
    assert stubborn.answer == "2"


def test_lookahead_scores_what_comes_next() -> None:
    trap = "Nice [0.9]\n\nTrap [0.0]\n\nIt is \\boxed{1}. [0.9]"
    plain = "Plain [0.7]\n\nFine [0.8]\n\nIt is \\boxed{2}. [0.9]"
    without = run(tells(trap, plain), "beam", n=8, branches=8)
    assert without.path(without.finished[0].id)[0].text == "Nice [0.9]\n\n"
    result = run(tells(trap, plain), "beam", n=8, branches=8, lookahead=1)
    values: dict[str, SearchNode] = {node.text: node for node in result.nodes}
    nice, ahead = values["Nice [0.9]\n\n"], values["Nice [0.9]\n\n"].lookahead
    assert ahead is not None
    assert (ahead.text, [step.score for step in ahead.steps], nice.value) == ("Trap [0.0]\n\n", [0.0], 0.0)
    assert [step.score for step in nice.steps] == [0.9]
    assert result.answer == "2"


def test_greedy_decoding_asks_once_and_counts_all() -> None:
    policy = tells("A [0.9]\n\nIt is \\boxed{1}. [0.9]")
    result = run(policy, "beam", n=4, branches=2, sampling=GREEDY)
    assert [node.count for node in result.nodes[1:]] == [4, 4]
    assert all(request.n == 1 for request in policy.requests)


def test_the_makers_aggregation_ranks_unless_another_one_is_given() -> None:
    texts = ("A [0.9]\n\nIt is \\boxed{1}. [0.4]", "B [0.6]\n\nIt is \\boxed{2}. [0.6]")
    assert run(tells(*texts), "best-of-n", Judge(recommended="mean"), n=16).answer == "1"
    assert run(tells(*texts), "best-of-n", Judge(recommended="mean"), n=16, aggregation="min").answer == "2"
    assert run(tells(*texts), "best-of-n", Judge(), n=16).aggregation == "min"


def test_scores_that_are_not_probabilities_can_rank() -> None:
    texts = ("A [-0.9]\n\nIt is \\boxed{1}. [-0.4]", "B [-0.6]\n\nIt is \\boxed{2}. [-0.6]")
    result = run(tells(*texts), "best-of-n", Judge(scale="margin"), n=16)
    assert (result.answer, result.select("weighted")) == ("2", None)
    assert "product" not in result.aggregations
    with pytest.raises(OptionError, match="needs probabilities"):
        run(tells(*texts), "best-of-n", Judge(scale="margin"), aggregation="product")


DISPUTED = "A [0.9] (+-0.4)\n\nIt is \\boxed{1}. [0.9]"
AGREED = "B [0.8] (+-0.1)\n\nIt is \\boxed{2}. [0.9]"


@pytest.mark.parametrize("strategy", ["best-of-n", "beam", "dvts"])
@pytest.mark.parametrize(
    ("uncertainty", "answer", "score"),
    [
        (0.0, "1", 0.9),
        (0.3, "1", 0.78),  # 0.9 - 0.3 * 0.4, against 0.8 - 0.3 * 0.1 = 0.77
        (0.5, "2", 0.75),  # 0.8 - 0.5 * 0.1, against 0.9 - 0.5 * 0.4 = 0.7
        (4.0, "2", 0.4),  # 0.8 - 4 * 0.1, against 0
    ],
)
def test_disagreement_lowers_the_value_of_a_path(strategy: str, uncertainty: float, answer: str, score: float) -> None:
    result = run(tells(DISPUTED, AGREED), strategy, n=16, branches=2, uncertainty=uncertainty)
    assert result.score == pytest.approx(score)
    assert result.answer == answer
    again = SearchResult.from_dict(json.loads(json.dumps(result.to_dict())))
    assert (again.answer, again.score, again.uncertainty) == (result.answer, result.score, uncertainty)
    assert {step.score for node in result.nodes for step in node.steps} <= {0.9, 0.8}, "the scores are not changed"


def test_uncertainty_needs_probabilities() -> None:
    with pytest.raises(OptionError, match="uncertainty lowers probabilities, and the scores of judge are on"):
        run(tells("It is \\boxed{1}. [-0.4]"), "best-of-n", Judge(scale="margin"), uncertainty=1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"uncertainty": -0.1}, "uncertainty=-0.1: pass a number, at least 0"),
        ({"uncertainty": float("nan")}, "uncertainty=nan"),
        ({"uncertainty": "much"}, "uncertainty='much'"),
        ({"n": 0}, "n=0"),
        ({"n": 7, "branches": 2}, "n=7 is not a multiple of branches=2"),
        ({"step_end": ""}, "`step_end` is empty"),
        ({"selection": "worst"}, "selection='worst' is unknown"),
        ({"aggregation": "median"}, "no aggregation 'median'"),
        ({"lookahead": -1}, "lookahead=-1"),
        ({"n": "8"}, "n='8': pass a whole number"),
        ({"n": True}, "n=True"),
        ({"max_tokens": None}, "max_tokens=None"),
        ({"threshold": "a"}, "threshold='a'"),
        ({"budget": 100}, "budget=100: pass a Budget"),
        ({"sampling": {"temperature": 1}}, "pass a Sampling"),
        ({"step_end": 3}, "step_end=3: pass a str"),
        ({"threshold": 7.0}, "outside the scale"),
    ],
)
def test_settings_that_cannot_work_are_rejected_before_anything_is_generated(settings: Any, message: str) -> None:
    policy = random_policy()
    with pytest.raises(OptionError, match=message):
        run(policy, "beam", **settings)
    assert not policy.requests


def test_a_generator_that_cannot_continue_only_samples_whole_answers() -> None:
    policy = tells("It is \\boxed{1}. [0.4]")
    policy.continues = False
    assert run(policy, "best-of-n", n=2).answer == "1"
    with pytest.raises(OptionError, match="cannot continue a partial solution, and beam needs that"):
        run(policy, "beam")


def test_an_empty_question_is_rejected() -> None:
    async def one() -> None:
        runner = SearchRunner(random_policy(), Judge())
        try:
            await runner.search("  ", Plan.of("beam", SearchSettings()))
        finally:
            runner.close()

    with pytest.raises(InputError, match="The question is empty"):
        asyncio.run(one())


@pytest.mark.parametrize("budget", [{"tokens": 0}, {"calls": -1}, {"seconds": 0.0}, {"tokens": 1.5}, {"tokens": True}])
def test_a_budget_that_allows_nothing_is_rejected(budget: Any) -> None:
    with pytest.raises(OptionError, match="allows nothing"):
        Budget(**budget)


def test_an_unknown_strategy_is_rejected() -> None:
    with pytest.raises(OptionError, match="Choose one of: best-of-n, beam, dvts, backtracking"):
        Plan.of("mcts", SearchSettings())


def test_events_report_every_node_and_the_result() -> None:
    events: list[SearchEvent] = []

    async def one() -> SearchResult:
        runner = SearchRunner(random_policy(5), Judge(), on_event=events.append)
        try:
            return await runner.search(QUESTION, Plan.of("beam", SearchSettings(n=4)))
        finally:
            runner.close()

    result = asyncio.run(one())
    assert [node.id for event in events for node in event.nodes] == list(range(1, len(result.nodes)))
    assert events[-1].result == result
    assert {event.label for event in events} == {"beam 2x2"}
