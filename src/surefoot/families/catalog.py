"""The catalog of PRMs that Surefoot knows by name.

Every row holds facts as published; what is not published is None or "unknown". A row gives the model's family and the
options that differ from the family's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.families import makers
from surefoot.families.makers import MakersCode
from surefoot.families.sizes import (
    CODELLAMA_34B,
    DEEPSEEK_7B,
    GRANITE_8B,
    LLAMA_3B,
    LLAMA_8B,
    LLEMMA_7B,
    MISTRAL_7B,
    QWEN3_8B,
    QWEN_05B,
    QWEN_3B,
    QWEN_7B,
    QWEN_14B,
    QWEN_15B,
    QWEN_72B,
    SMOLLM_16,
    Size,
)

UNKNOWN = "unknown"
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per nf4 weight: half a byte, plus its share of a doubly quantized scale for 64 weights."""


@dataclass(frozen=True)
class CatalogEntry:
    """One model.

    CatalogEntry("Qwen/Qwen2.5-Math-PRM-7B", "qwen", QWEN_7B, context=4096, licence="Qwen licence")
    """

    id: str
    family: str
    size: Size
    context: int | None = None
    """The prompt length, in tokens, that the model was made for, as its authors publish it."""
    licence: str = UNKNOWN
    options: Mapping[str, Any] = field(default_factory=dict)
    """Family options that this model needs."""
    two_models: bool = False
    """The family compares two models of this size and loads their output layers."""
    output_layer: bool = False
    """The family needs all logits and loads the whole output layer of its one model."""
    makers: MakersCode | None = None
    """What the makers' own code does, if Surefoot was compared with it."""

    @property
    def parameters(self) -> int:
        """The approximate number of weights that are loaded."""
        return self._models * (self.size.linear + self._vocabulary)

    def bytes(self, *, nf4: bool) -> float:
        """The approximate memory of the weights: in bfloat16, or with the linear layers in nf4."""
        return self._models * (self.size.linear * (NF4_BYTES if nf4 else 2) + 2 * self._vocabulary)

    @property
    def _models(self) -> int:
        return 2 if self.two_models else 1

    @property
    def _vocabulary(self) -> int:
        """The weights of the embeddings and, if it is loaded, of the output layer."""
        return self.size.embeddings * (2 if self.two_models or self.output_layer else 1)


QWEN_LICENCE = "Qwen licence"
SKYWORK_LICENCE = "Skywork Community License"
REASONEVAL_34B_LICENCE = "Llama 2 or Apache-2.0"
"""Its model card says Llama 2, the README of its repository Apache-2.0."""
LITERAL = {"separator": "\\n\\n"}
"""Four characters, not two line breaks: most likely what the training script passed."""
MARGIN = {"margin": True}
QWEN_VERSA = {"opening": None}
DISTILLED_VERSA = {"opening": "<｜begin▁of▁sentence｜>"}
"""The BOS token of DeepSeek's distilled models."""
QWEN_CHAT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""What the chat template of Qwen2.5's chat models writes if there is no system message."""
TEMPLATE_SYSTEM = {"default_system": QWEN_CHAT_SYSTEM, "system_from_template": True}
IMPLICIT_LLAMA = {
    "reference": "meta-llama/Llama-3.1-8B-Instruct",
    "chat": "llama3",
    "default_system": "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
}

CATALOG: tuple[CatalogEntry, ...] = (
    CatalogEntry("mini", "mini", SMOLLM_16, 768, "Apache-2.0"),
    CatalogEntry("Qwen/Qwen2.5-Math-PRM-7B", "qwen", QWEN_7B, 4096, QWEN_LICENCE, makers=makers.QWEN),
    CatalogEntry("Qwen/Qwen2.5-Math-PRM-72B", "qwen", QWEN_72B, 4096, QWEN_LICENCE, makers=makers.QWEN),
    CatalogEntry("Qwen/Qwen2.5-Math-7B-PRM800K", "qwen", QWEN_7B, 4096, QWEN_LICENCE, makers=makers.QWEN),
    CatalogEntry("ZaandaTeika/Qwen2.5-Math-7B-SHARP-Step", "qwen", QWEN_7B, makers=makers.QWEN),
    CatalogEntry("ZaandaTeika/Qwen2.5-Math-7B-Instruct-SHARP-Math-Span", "qwen", QWEN_7B, makers=makers.QWEN),
    CatalogEntry("Gen-Verse/ReasonFlux-PRM-7B", "qwen", QWEN_7B, options=TEMPLATE_SYSTEM, makers=makers.REASONFLUX),
    CatalogEntry("trl-lib/Qwen2-0.5B-Reward-Math-Sheperd", "trl", QWEN_05B, makers=makers.TRL),
    CatalogEntry("plaguss/Qwen2.5-0.5B-Math-Shepherd-PRM-0.2", "trl", QWEN_05B, makers=makers.TRL),
    CatalogEntry("plaguss/Qwen2.5-Math-7B-PRM-0.1", "trl", QWEN_7B, makers=makers.TRL),
    CatalogEntry("plaguss/Qwen2.5-Math-7B-Instruct-PRM-0.1", "trl", QWEN_7B),
    CatalogEntry(
        "plaguss/Llama-3.1-8B-Math-Shepherd-PRM-0.2",
        "trl",
        LLAMA_8B,
        options={"opening": "<|begin_of_text|>"},
        makers=makers.TRL,
    ),
    CatalogEntry(
        "HuggingFaceH4/Qwen2.5-Math-1.5B-Instruct-PRM-0.2", "trl", QWEN_15B, 2048, options=LITERAL, makers=makers.TRL
    ),
    CatalogEntry(
        "HuggingFaceH4/Qwen2.5-Math-7B-Instruct-PRM-0.2", "trl", QWEN_7B, 2048, options=LITERAL, makers=makers.TRL
    ),
    CatalogEntry("axolotl-ai-co/Qwen2.5-Math-PRM-7B", "trl", QWEN_7B, makers=makers.AXOLOTL),
    CatalogEntry("jinachris/PURE-PRM-7B", "trl", QWEN_7B, options=MARGIN, licence="Apache-2.0", makers=makers.PURE),
    CatalogEntry(
        "jinachris/Qwen2.5-Math-7B-PRM800K", "trl", QWEN_7B, options=MARGIN, licence="Apache-2.0", makers=makers.PURE
    ),
    CatalogEntry("peiyi9979/math-shepherd-mistral-7b-prm", "shepherd", MISTRAL_7B, 4096, makers=makers.SHEPHERD),
    CatalogEntry("OpenRLHF/Mistral-7b-PRM-Math-Shepherd", "openrlhf", MISTRAL_7B, 8192, makers=makers.OPENRLHF),
    CatalogEntry("HanningZhang/Llama3.1-Math-PRM", "er-prm", LLAMA_8B, 1024, makers=makers.ER_PRM),
    CatalogEntry("openreasoner/Math-psa", "math-psa", QWEN_7B, 2048, licence="MIT", makers=makers.MATH_PSA),
    CatalogEntry("UW-Madison-Lee-Lab/VersaPRM", "versa", LLAMA_8B, 750, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/VersaPRM-Aug", "versa", LLAMA_8B, 750, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/VersaPRM-Base-8B", "versa", LLAMA_8B, 750, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/VersaPRM-Base-3B", "versa", LLAMA_3B, 750, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/VersaPRM-Math-Subset", "versa", LLAMA_8B, 750, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/VersaPRM-Small-Subset", "versa", LLAMA_8B, 750, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/Llama-PRM800K", "versa", LLAMA_8B, 650, makers=makers.VERSA),
    CatalogEntry("UW-Madison-Lee-Lab/Qwen-PRM800K", "versa", QWEN_7B, 650, options=QWEN_VERSA, makers=makers.VERSA),
    CatalogEntry(
        "RLHFlow/Llama3.1-8B-PRM-Mistral-Data",
        "rlhflow",
        LLAMA_8B,
        8192,
        options={"preamble": None},
        makers=makers.RLHFLOW,
    ),
    CatalogEntry("RLHFlow/Llama3.1-8B-PRM-Deepseek-Data", "rlhflow", LLAMA_8B, 8192, makers=makers.RLHFLOW),
    CatalogEntry("ryokamoi/Llama-3.1-8B-FoVer-PRM", "fover", LLAMA_8B, licence="Llama 3.1", makers=makers.FOVER),
    CatalogEntry(
        "ryokamoi/Qwen-2.5-7B-FoVer-PRM",
        "fover",
        QWEN_7B,
        licence="Apache-2.0",
        options={"chat": "chatml", "preamble": QWEN_CHAT_SYSTEM},
        makers=makers.FOVER,
    ),
    CatalogEntry(
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B", "skywork", QWEN_15B, 4096, SKYWORK_LICENCE, makers=makers.SKYWORK
    ),
    CatalogEntry(
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B", "skywork", QWEN_7B, 4096, SKYWORK_LICENCE, makers=makers.SKYWORK
    ),
    CatalogEntry(
        "PRIME-RL/EurusPRM-Stage1", "implicit", QWEN_7B, 4096, "Apache-2.0", two_models=True, makers=makers.EURUS
    ),
    CatalogEntry(
        "PRIME-RL/EurusPRM-Stage2", "implicit", QWEN_7B, 4096, "Apache-2.0", two_models=True, makers=makers.EURUS
    ),
    CatalogEntry(
        "Windy0822/ImplicitPRM_DPO",
        "implicit",
        LLAMA_8B,
        options=IMPLICIT_LLAMA,
        two_models=True,
        makers=makers.IMPLICIT_PRM,
    ),
    CatalogEntry(
        "Windy0822/ImplicitPRM_CE",
        "implicit",
        LLAMA_8B,
        options=IMPLICIT_LLAMA,
        two_models=True,
        makers=makers.IMPLICIT_PRM,
    ),
    CatalogEntry("sail/ActPRM", "actprm", QWEN_7B, 4096, makers=makers.ACTPRM),
    CatalogEntry("sail/ActPRM-X", "actprm", QWEN_7B, 4096, licence="Apache-2.0", makers=makers.ACTPRM),
    CatalogEntry("ScalableMath/llemma-7b-prm-prm800k-level-1to3-hf", "llemma", LLEMMA_7B, makers=makers.LLEMMA),
    CatalogEntry("ScalableMath/llemma-7b-prm-metamath-level-1to3-hf", "llemma", LLEMMA_7B, makers=makers.LLEMMA),
    CatalogEntry("ScalableMath/llemma-7b-oprm-prm800k-level-1to3-hf", "llemma", LLEMMA_7B, makers=makers.LLEMMA),
    CatalogEntry(
        "GAIR/ReasonEval-7B",
        "reasoneval",
        MISTRAL_7B,
        options={"tokens_back": 1},
        licence="Llama 2",
        makers=makers.REASONEVAL,
    ),
    CatalogEntry(
        "GAIR/ReasonEval-34B", "reasoneval", CODELLAMA_34B, licence=REASONEVAL_34B_LICENCE, makers=makers.REASONEVAL
    ),
    CatalogEntry("infly/Universal-PRM-7B", "universal", QWEN_7B, 32768, licence="Apache-2.0", makers=makers.UNIVERSAL),
    CatalogEntry("Babelscape/Llama-3.1-8B-PRM800k-r", "babelscape", LLAMA_8B, makers=makers.BABELSCAPE),
    CatalogEntry("Babelscape/Llama-3.1-8B-PRM800k-PDDL-r", "babelscape", LLAMA_8B, makers=makers.BABELSCAPE),
    CatalogEntry("Windy0822/PQM", "pqm", DEEPSEEK_7B, licence="MIT", makers=makers.PQM),
    CatalogEntry("UKPLab/Llama-3-8b-spare-prm-math", "spare", LLAMA_8B, 2048, makers=makers.SPARE),
    CatalogEntry(
        "UKPLab/Qwen2.5-3b-spare-prm-math", "spare", QWEN_3B, 2048, options={"chat": "chatml"}, makers=makers.SPARE
    ),
    CatalogEntry("Gen-Verse/ReasonFlux-PRM-1.5B", "reasonflux", QWEN_15B, 2048, makers=makers.REASONFLUX_SMALL),
    CatalogEntry(
        "ibm-granite/granite-3.3-8b-lora-math-prm",
        "granite",
        GRANITE_8B,
        131072,
        "Apache-2.0",
        output_layer=True,
        makers=makers.GRANITE,
    ),
    CatalogEntry(
        "ibm-granite/granite-3.3-8b-math-prm-v2",
        "granite",
        GRANITE_8B,
        131072,
        "Apache-2.0",
        output_layer=True,
        makers=makers.GRANITE,
    ),
    CatalogEntry("declare-lab/PathFinder-PRM-7B", "pathfinder", QWEN_7B, licence="MIT", makers=makers.PATHFINDER),
    CatalogEntry("dongboklee/dPRM-8B", "versa", LLAMA_8B, 650, options=DISTILLED_VERSA, makers=makers.DPRM),
    CatalogEntry("dongboklee/dPRM-14B", "versa", QWEN_14B, 650, options=DISTILLED_VERSA, makers=makers.DPRM),
    CatalogEntry("dongboklee/dPRM-qwen", "versa", QWEN3_8B, 650, options=QWEN_VERSA, makers=makers.DPRM),
    CatalogEntry("dongboklee/dORM-8B", "versa", LLAMA_8B, 650, options=DISTILLED_VERSA, makers=makers.DORM),
    CatalogEntry("dongboklee/dORM-14B", "versa", QWEN_14B, 650, options=DISTILLED_VERSA, makers=makers.DORM),
    CatalogEntry("dongboklee/dORM-qwen", "versa", QWEN3_8B, 650, options=QWEN_VERSA, makers=makers.DORM),
)


def find_rows(rows: Sequence[CatalogEntry], model: str) -> tuple[CatalogEntry, ...]:
    """The rows with this hub id, else those whose model name is the last part of this path."""
    wanted = model.replace("\\", "/").rstrip("/").lower()
    exact = tuple(row for row in rows if row.id.lower() == wanted)
    folder = wanted.rsplit("/", 1)[-1]
    return exact or tuple(row for row in rows if row.id.lower().endswith(f"/{folder}"))
