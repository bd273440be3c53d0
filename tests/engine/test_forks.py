"""Forked processes: a model from before the fork raises at once, one that is loaded in the child works.

Each test is a program of its own whose torch has two threads, because only then there is something to wait for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

START = """
import multiprocessing, os, sys, threading
import torch
import surefoot
from surefoot.errors import SurefootError

ITEM = ("What is 2 + 3?", ["2 + 3 = 5.", "So the answer is 5."])
SECONDS = 60


def in_child(work):
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(work()), daemon=True)
    child.start()
    child.join(SECONDS)
    assert child.exitcode == 0, "it hangs" if child.exitcode is None else child.exitcode
    return answers.get()


def refused(work):
    try:
        work()
    except SurefootError as error:
        return str(error)
    return "not refused"


torch.set_num_threads(2)
scorer = surefoot.load(sys.argv[1])
# Large enough that torch really starts its threads.
torch.ones(2000, 2000) @ torch.ones(2000, 2000)
expected = scorer.score(*ITEM).step_scores
"""


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    child = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(program), *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child


def test_a_model_from_before_the_fork_raises_at_once(tiny: Path) -> None:
    """Also while another thread of the parent holds the lock of the model."""
    run(
        """
        session = scorer.session(ITEM[0])
        session.score([ITEM[1]])
        uses = [
            lambda: scorer.score(*ITEM),
            lambda: scorer.score_many([ITEM] * 3),
            lambda: list(scorer.score_stream([ITEM])),
            lambda: scorer.session(ITEM[0]),
            lambda: session.score([ITEM[1]]),
            lambda: list(scorer.packs([scorer.family.render(scorer.tokenizer, *ITEM)])),
        ]
        with scorer.engine.lock:
            for number, use in enumerate(uses):
                message = in_child(lambda: refused(use))
                assert f"loaded in process {os.getpid()}" in message, (number, message)
                assert "Load the model in the child" in message
        assert scorer.score(*ITEM).step_scores == expected
        """,
        tiny,
    )


def test_a_model_that_is_loaded_in_the_child_works(tiny: Path) -> None:
    done = run(
        """
        def load_and_score():
            return surefoot.load(sys.argv[1]).score(*ITEM).step_scores, torch.get_num_threads()

        found, threads = in_child(load_and_score)
        assert max(abs(a - b) for a, b in zip(found, expected)) < 1e-5
        assert (threads, torch.get_num_threads()) == (1, 2)

        # As reward functions do, whose model the parent has loaded too.
        from surefoot.rewards.source import find_scorer

        def score():
            return find_scorer(sys.argv[1]).score(*ITEM).step_scores

        assert score() == expected
        assert max(abs(a - b) for a, b in zip(in_child(score), expected)) < 1e-5
        """,
        tiny,
    )
    assert done.stderr.count("This process was forked, so torch computes with one thread here.") == 2


def test_map_of_datasets_with_several_processes(tiny: Path, tmp_path: Path) -> None:
    """Its workers are forked, and find the model by the name of its module."""
    # The package does not import next to the older hub client of transformers 4.
    pytest.importorskip("datasets", exc_type=ImportError)
    (tmp_path / "mapped.py").write_text(
        "scorer = None\n"
        "def score(row):\n"
        "    return {'score': scorer.score(row['question'], row['steps']).step_scores[0]}\n"
    )
    run(
        """
        sys.path.insert(0, sys.argv[2])
        import datasets, mapped

        mapped.scorer = scorer
        rows = datasets.Dataset.from_list([{"question": ITEM[0], "steps": ITEM[1]}] * 4)
        one = rows.map(mapped.score)["score"]
        assert max(abs(score - expected[0]) for score in one) < 1e-5
        assert "Load the model in the child" in refused(lambda: rows.map(mapped.score, num_proc=2))
        """,
        tiny,
        tmp_path,
    )
