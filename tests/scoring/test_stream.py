"""Streams: any length, bounded memory, the input's order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import surefoot
from surefoot.errors import OptionError

Item = tuple[str, list[str]]


def items(count: int) -> list[Item]:
    return [(f"What is {n // 4} + 1?", [f"It is {n // 4 + 1}.", f"Try {n % 4}."]) for n in range(count)]


def test_a_stream_gives_what_a_list_gives(scorer: surefoot.Scorer) -> None:
    expected = scorer.score_many(items(37))
    for window in (1, 5, 1000):
        found = list(scorer.score_stream(iter(items(37)), window=window))
        for one, other in zip(found, expected, strict=True):
            assert one.step_scores == pytest.approx(other.step_scores, abs=1e-5)


def test_a_stream_reads_no_further_than_its_window(scorer: surefoot.Scorer) -> None:
    taken = 0

    def endless() -> Iterator[Item]:
        nonlocal taken
        while True:
            taken += 1
            yield ("q", [f"step {taken}"])

    stream = scorer.score_stream(endless(), window=8)
    assert taken == 0, "nothing is read before the first result is asked for"
    for number in range(1, 21):
        assert next(stream).steps[0].text == f"step {number}"
        assert taken == -(-number // 8) * 8


def test_a_malformed_item_does_not_end_the_stream(scorer: surefoot.Scorer) -> None:
    mixed = [("q", ["fine"]), ("q", 7), (None, "x"), ("q", ["fine too"])]
    results = list(scorer.score_stream(mixed, window=2))  # type: ignore[arg-type]
    assert [result.status for result in results] == ["scored", "unscored", "unscored", "scored"]
    assert results[1].reason is not None
    assert results[1].reason.startswith("Item 1: ")
    assert results[2].reason == "Item 2: The question is NoneType, not a string."


def test_progress_tells_solutions_and_tokens(
    scorer: surefoot.Scorer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.display.progress.LINE_EVERY", 0.0)
    list(scorer.score_stream([*items(11), ("q", "")], window=4, progress=True))
    shown = capsys.readouterr().err
    assert "12 of 12 solutions" in shown
    assert "tokens/s" in shown
    scorer.score_many(items(12), progress=True)
    assert "12 of 12 solutions" in capsys.readouterr().err
    scorer.score_many(items(12))
    assert capsys.readouterr().err == ""


def test_an_empty_window_is_refused(scorer: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match="window=0 is empty"):
        scorer.score_stream([], window=0)
