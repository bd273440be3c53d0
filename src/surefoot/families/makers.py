"""What the makers' own code does, and how Surefoot compares with it.

`tests/families/recorded/` holds token ids and read positions recorded from that code. A test checks that every entry
here has such a record, and that Surefoot agrees with it or differs exactly where `difference` says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MakersCode:
    """The makers' inference code for a model.

    MakersCode("QwenLM/ProcessBench, code/run_eval_prm_rlhflow.py", aggregation="mean")
    """

    source: str
    """The repository and the file, or the model card, that Surefoot was compared with."""
    aggregation: str | None = None
    """How the makers aggregate step scores to rank solutions: a name from `core.aggregation`; None if they do not."""
    threshold: float | None = None
    """The threshold that the makers use to find errors, if it is not the natural one of the scale."""
    difference: str | None = None
    """What Surefoot does differently, and why; None if token ids and read positions are equal."""


FORGED = "Text that spells a marker or a chat token stays text."

QWEN = MakersCode("model card of Qwen/Qwen2.5-Math-PRM-7B", aggregation="product", difference=FORGED)
"""The card has no aggregation; the paper (arXiv:2501.07301) ranks solutions by the product."""
REASONFLUX = MakersCode(
    "Gen-Verse/ReasonFlux@8980b8b, ReasonFlux_PRM/README.md and utils/rm_utils.py", difference=FORGED
)
SKYWORK = MakersCode("SkyworkAI/skywork-o1-prm-inference@719b56b, model_utils/io_utils.py", difference=FORGED)
UNIVERSAL = MakersCode("model card of infly/Universal-PRM-7B", difference=FORGED)
