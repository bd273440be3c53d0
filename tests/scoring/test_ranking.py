"""Ranking candidates by several scorers: the ranks are those of pandas, and a missing number is no rank."""

from __future__ import annotations

import pandas
import pytest

import surefoot
from helpers.search_parties import Judge
from helpers.serving import QUESTION
from surefoot.errors import OptionError
from surefoot.scoring.ranking import rank_candidates


def test_ranks_are_those_of_pandas(mini: surefoot.Scorer, scorer: surefoot.Scorer) -> None:
    texts = ["3 * 4 = 12.\n\n2 + 12 = 14.", "2 + 3 = 6.\n\n6 * 4 = 24.", "It is 14.", "3 * 4 = 13.", "It is 14."]
    found = rank_candidates([mini, scorer], QUESTION, texts, aggregation="mean")
    own = [[each.score(QUESTION, text).mean for text in texts] for each in (mini, scorer)]
    # Equal texts are ties, up to the rounding of a batch.
    expected = [pandas.Series(row).round(4).rank(method="average", ascending=False).tolist() for row in own]
    assert [each.ranks for each in found] == list(zip(*expected, strict=True))
    assert [each.rank for each in found] == [sum(pair) / 2 for pair in zip(*expected, strict=True)]
    assert [each.results[0].mean for each in found] == pytest.approx(own[0], abs=1e-5)


def test_scales_may_differ_and_a_missing_score_is_no_rank() -> None:
    texts = [["A [0.9]", "B [0.2]"], ["A [none]"], ["A [0.5]"], ["A [0.2]"]]
    judges = [Judge(), Judge(name="margins", scale="margin", recommended="final")]
    found = rank_candidates(judges, QUESTION, texts)
    # The lowest steps are 0.2, 0.5 and 0.2, and the last ones are the same: two tie for the ranks 2 and 3.
    assert [each.rank for each in found] == [2.5, None, 1.0, 2.5]
    assert found[1].ranks == ()
    assert found[1].reason == "judge: the judge has no opinion margins: the judge has no opinion"
    product = rank_candidates(judges, QUESTION, texts[2:], aggregation="product")
    assert product[0].reason == "margins: The aggregation is undefined for its scores."
    assert rank_candidates(judges, QUESTION, []) == []
    with pytest.raises(OptionError, match="at least one scorer"):
        rank_candidates([], QUESTION, texts)
