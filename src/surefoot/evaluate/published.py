"""Results that others published, to stand beside ours.

The rule: facts with their source, as printed, in percent; nothing here was measured by us. They were made with each
author's own prompts and precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from surefoot.evaluate.rows import usual_split

PAPER = "ProcessBench paper, arXiv:2412.06559, tables 5 and 7"
GENPRM = "GenPRM paper, arXiv:2504.00891, table 6"
ACTPRM = "ActPRM repository, sail-sg/ActPRM"
H4 = "search-and-learn repository, recipes/training"
LEADERBOARD = "PRMBench leaderboard, ssmisya/PRMBench"

Cell = tuple[float | None, float | None, float]
"""Accuracy on erroneous solutions, on correct ones, F1."""


@dataclass(frozen=True)
class PublishedProcessBench:
    """One row of a ProcessBench table."""

    model: str
    names: tuple[str, ...]
    """Lower-case endings of the hub ids and folders that mean this model."""
    splits: dict[str, Cell]
    average: float
    source: str

    def cell(self, split: str) -> Cell | None:
        """The numbers of a split, also where only a part of it was measured, such as `gsm8k_dev`."""
        usual = usual_split(split)
        return None if usual is None else self.splits.get(usual)

    def average_of(self, splits: Sequence[str]) -> float | None:
        """The F1 to set beside an average over these splits: as printed for all, else the plain mean of theirs."""
        cells = {usual_split(split): self.cell(split) for split in splits}
        if set(cells) == set(self.splits):
            return self.average
        known = [cell[2] for cell in cells.values() if cell is not None]
        return sum(known) / len(known) if known and len(known) == len(splits) else None


@dataclass(frozen=True)
class PublishedPRMBench:
    """One row of the PRMBench table: PRMScores."""

    model: str
    names: tuple[str, ...]
    overall: float
    simplicity: float
    soundness: float
    sensitivity: float
    source: str = LEADERBOARD


def _full(
    model: str, names: tuple[str, ...], gsm8k: Cell, math: Cell, olympiad: Cell, omni: Cell, average: float, source: str
) -> PublishedProcessBench:
    splits = {"gsm8k": gsm8k, "math": math, "olympiadbench": olympiad, "omnimath": omni}
    return PublishedProcessBench(model, names, splits, average, source)


def _f1_only(
    model: str, names: tuple[str, ...], f1s: tuple[float, float, float, float], average: float, source: str
) -> PublishedProcessBench:
    first, second, third, fourth = ((None, None, f1) for f1 in f1s)
    return _full(model, names, first, second, third, fourth, average, source)


# fmt: off
PROCESSBENCH = (
    _full("Math-Shepherd-7B", ("math-shepherd-mistral-7b-prm",),
          (32.4, 91.7, 47.9), (18.0, 82.0, 29.5), (15.0, 71.1, 24.8), (14.2, 73.0, 23.8), 31.5, PAPER),
    _full("RLHFlow-Mistral-8B", ("llama3.1-8b-prm-mistral-data",),
          (33.8, 99.0, 50.4), (21.7, 72.2, 33.4), (8.2, 43.1, 13.8), (9.6, 45.2, 15.8), 28.4, PAPER),
    _full("RLHFlow-Deepseek-8B", ("llama3.1-8b-prm-deepseek-data",),
          (24.2, 98.4, 38.8), (21.4, 80.0, 33.8), (10.1, 51.0, 16.9), (10.1, 51.9, 16.9), 26.6, PAPER),
    _full("Skywork-1.5B", ("skywork-o1-open-prm-qwen-2.5-1.5b",),
          (50.2, 71.5, 59.0), (37.9, 65.3, 48.0), (15.4, 26.0, 19.3), (13.6, 32.8, 19.2), 36.4, PAPER),
    _full("Skywork-7B", ("skywork-o1-open-prm-qwen-2.5-7b",),
          (61.8, 82.9, 70.8), (43.8, 69.2, 53.6), (17.9, 31.9, 22.9), (14.0, 41.9, 21.0), 42.1, PAPER),
    _full("Qwen2.5-Math-7B-PRM800K", ("qwen/qwen2.5-math-7b-prm800k", "qwen2.5-math-7b-prm800k"),
          (53.1, 95.3, 68.2), (48.0, 90.1, 62.6), (35.7, 87.3, 50.7), (29.8, 86.3, 44.3), 56.5, PAPER),
    _full("Qwen2.5-Math-7B-Math-Shepherd", ("qwen2.5-math-7b-math-shepherd",),
          (46.4, 95.9, 62.5), (18.9, 96.6, 31.6), (7.4, 93.8, 13.7), (4.0, 95.0, 7.7), 28.9, GENPRM),
    _full("EurusPRM-Stage1", ("eurusprm-stage1",),
          (46.9, 42.0, 44.3), (33.3, 38.2, 35.6), (23.9, 19.8, 21.7), (21.9, 24.5, 23.1), 31.2, GENPRM),
    _full("EurusPRM-Stage2", ("eurusprm-stage2",),
          (51.2, 44.0, 47.3), (36.4, 35.0, 35.7), (25.7, 18.0, 21.2), (23.1, 19.1, 20.9), 31.3, GENPRM),
    _full("Qwen2.5-Math-PRM-7B", ("qwen2.5-math-prm-7b",),
          (72.0, 96.4, 82.4), (68.0, 90.4, 77.6), (55.7, 85.5, 67.5), (55.2, 83.0, 66.3), 73.5, GENPRM),
    _full("Qwen2.5-Math-PRM-72B", ("qwen2.5-math-prm-72b",),
          (78.7, 97.9, 87.3), (74.2, 88.2, 80.6), (67.9, 82.0, 74.3), (64.8, 78.8, 71.1), 78.3, GENPRM),
    _full("RetrievalPRM-7B", ("gebro13/retrievalprm", "retrievalprm-7b"),
          (64.7, 88.1, 74.6), (67.2, 75.6, 71.1), (56.0, 65.2, 60.2), (52.8, 62.7, 57.3), 65.8, GENPRM),
    _full("GenPRM-1.5B pass@1", ("genprm-1.5b",),
          (37.0, 92.7, 52.8), (57.1, 80.1, 66.6), (47.0, 66.5, 55.1), (45.2, 68.7, 54.5), 57.3, GENPRM),
    _full("GenPRM-1.5B maj@8", (),
          (34.8, 97.4, 51.3), (64.7, 87.7, 74.4), (57.2, 76.1, 65.3), (51.3, 80.1, 62.5), 63.4, GENPRM),
    _full("GenPRM-7B pass@1", ("genprm-7b",),
          (67.7, 94.0, 78.7), (74.6, 87.0, 80.3), (68.3, 76.6, 72.2), (63.5, 77.4, 69.8), 75.2, GENPRM),
    _full("GenPRM-7B maj@8", (),
          (69.6, 96.9, 81.0), (80.5, 91.6, 85.7), (74.0, 83.5, 78.4), (70.0, 85.1, 76.8), 80.5, GENPRM),
    _full("GenPRM-32B pass@1", ("genprm-32b",),
          (73.1, 96.4, 83.1), (79.4, 84.1, 81.7), (73.4, 72.2, 72.8), (70.3, 75.5, 72.8), 77.6, GENPRM),
    _full("GenPRM-32B maj@8", (),
          (74.9, 98.5, 85.1), (84.0, 88.7, 86.3), (79.0, 78.8, 78.9), (76.3, 84.2, 80.1), 82.6, GENPRM),
    _full("H4 TRL 1.5B", ("qwen2.5-math-1.5b-instruct-prm-0.2",),
          (22.71, 93.78, 36.56), (38.22, 70.69, 49.61), (27.08, 53.98, 36.07), (27.93, 54.77, 37.00), 39.8, H4),
    _full("H4 TRL 7B", ("qwen2.5-math-7b-instruct-prm-0.2",),
          (62.32, 81.87, 70.77), (58.42, 67.49, 62.63), (47.35, 46.90, 47.13), (46.38, 49.79, 48.02), 57.1, H4),
    _f1_only("Universal-PRM-7B", ("universal-prm-7b",), (85.8, 77.7, 67.6, 66.4), 74.3, "its model card"),
    _f1_only("PURE-PRM-7B", ("jinachris/pure-prm-7b", "pure-prm-7b"), (69.0, 66.5, 48.4, 45.9), 57.5, ACTPRM),
    _f1_only("ActPRM", ("sail/actprm", "/actprm"), (81.6, 79.8, 71.4, 67.0), 75.0, ACTPRM),
    _f1_only("ActPRM-X", ("actprm-x",), (82.7, 82.0, 72.0, 67.3), 76.0, ACTPRM),
    _f1_only("Qwen2.5-Math-RM-72B", ("qwen2.5-math-rm-72b",), (43.5, 47.2, 37.6, 27.4), 38.9, "arXiv:2501.07301"),
)

PRMBENCH = (
    PublishedPRMBench("Skywork-1.5B", ("skywork-o1-open-prm-qwen-2.5-1.5b",), 31.5, 33.4, 28.4, 48.6),
    PublishedPRMBench("Skywork-7B", ("skywork-o1-open-prm-qwen-2.5-7b",), 36.2, 38.4, 32.7, 54.3),
    PublishedPRMBench("Math-Shepherd", ("math-shepherd-mistral-7b-prm",), 47.0, 47.1, 45.7, 60.7),
    PublishedPRMBench("Llemma-PRM800k", ("llemma-7b-prm-prm800k-level-1to3-hf",), 52.0, 51.4, 50.9, 66.0),
    PublishedPRMBench("Llemma-MetaMath", ("llemma-7b-prm-metamath-level-1to3-hf",), 50.5, 50.3, 49.0, 66.0),
    PublishedPRMBench("Llemma-oprm", ("llemma-7b-oprm-prm800k-level-1to3-hf",), 50.3, 49.0, 49.8, 64.1),
    PublishedPRMBench("MATHMinos-Mistral-7B", (), 54.2, 51.4, 54.4, 66.5),
    PublishedPRMBench("RLHFlow-Mistral", ("llama3.1-8b-prm-mistral-data",), 54.4, 46.7, 57.5, 68.5),
    PublishedPRMBench("RLHFlow-Deepseek", ("llama3.1-8b-prm-deepseek-data",), 54.2, 47.6, 57.5, 68.1),
    PublishedPRMBench("ReasonEval-7B", ("reasoneval-7b",), 60.1, 55.6, 63.9, 71.1),
    PublishedPRMBench("ReasonEval-34B", ("reasoneval-34b",), 60.5, 51.5, 63.0, 73.1),
    PublishedPRMBench("PURE-PRM-7B", ("jinachris/pure-prm-7b", "pure-prm-7b"), 65.3, 52.2, 70.2, 75.8, ACTPRM),
    PublishedPRMBench("Qwen2.5-Math-PRM-7B", ("qwen2.5-math-prm-7b",), 65.5, 52.1, 71.0, 75.5),
    PublishedPRMBench("ActPRM", ("sail/actprm", "/actprm"), 65.5, 53.6, 71.3, 75.2, ACTPRM),
    PublishedPRMBench("ActPRM-X", ("actprm-x",), 66.7, 54.5, 72.7, 75.6, ACTPRM),
    PublishedPRMBench("Qwen2.5-Math-PRM-72B", ("qwen2.5-math-prm-72b",), 68.2, 54.6, 73.9, 77.0),
    PublishedPRMBench("GPT-4o", (), 66.8, 59.7, 70.9, 75.8),
    PublishedPRMBench("o1-mini (394 items)", (), 68.8, 64.6, 72.1, 75.5),
)
# fmt: on

NAMESAKES = ("jinachris/qwen2.5-math-7b-prm800k", "axolotl-ai-co/qwen2.5-math-prm-7b")
"""Other people's models that end like one of the names above."""


class _Named(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...


Fact = TypeVar("Fact", bound=_Named)


def published_processbench(model: str) -> PublishedProcessBench | None:
    """What was published for the model of this name or folder."""
    return _find(PROCESSBENCH, model)


def published_prmbench(model: str) -> PublishedPRMBench | None:
    """What was published for the model of this name or folder."""
    return _find(PRMBENCH, model)


def _find(facts: Iterable[Fact], model: str) -> Fact | None:
    wanted = model.replace("\\", "/").rstrip("/").lower()
    if wanted in NAMESAKES:
        return None
    return next((fact for fact in facts if fact.names and wanted.endswith(fact.names)), None)
