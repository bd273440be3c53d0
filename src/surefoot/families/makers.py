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
    """The threshold that the makers use to find errors, if it is not the natural one of the scale. Only shown."""
    difference: str | None = None
    """What Surefoot does differently, and why; None if token ids and read positions are equal for all texts that do not
    spell markers, tags or chat tokens. Those stay text in Surefoot, and become structure in most makers' code."""
    assumes: str | None = None
    """What the comparison assumes about files of the checkpoint that could not be seen."""


QWEN = MakersCode("model card of Qwen/Qwen2.5-Math-PRM-7B", aggregation="product")
"""The aggregation is that of the paper, arXiv:2501.07301."""
REASONFLUX = MakersCode(
    "Gen-Verse/ReasonFlux@8980b8b, ReasonFlux_PRM/README.md and utils/rm_utils.py",
    assumes="the chat template of Qwen2.5",
)
REASONFLUX_SMALL = MakersCode(REASONFLUX.source, aggregation="final", assumes="the tokenizer of Qwen2.5")
"""ReasonFlux-PRM-1.5B: the makers' score of a solution is that of its whole text."""
SKYWORK = MakersCode(
    "SkyworkAI/skywork-o1-prm-inference@719b56b, model_utils/io_utils.py",
    assumes="the BOS token of the 1.5B also for the 7B",
)
UNIVERSAL = MakersCode("model card of infly/Universal-PRM-7B", assumes="`<|im_end|>` as the EOS token")
REASONEVAL = MakersCode(
    "GAIR-NLP/ReasonEval@6c91c7a, codes/examples.py",
    aggregation="min",
    assumes="`<s>` as the pad token of the 7B, and Mistral's vocabulary in place of CodeLlama's",
)
RLHFLOW = MakersCode(
    "RLHFlow/RLHF-Reward-Modeling@fc39179, math-rm/prm_evaluate.py",
    aggregation="mean",
    assumes="the chat templates of Llama 3.1 (Deepseek-Data) and Llama 3 (Mistral-Data)",
)
FOVER = MakersCode(
    "psunlpgroup/FoVer@742fcf9, src/prm/preprocessing.py and src/prm/postprocessing.py",
    aggregation="min",
    assumes="the chat templates of the base models",
)
SHEPHERD = MakersCode("model card of peiyi9979/math-shepherd-mistral-7b-prm", aggregation="min")
"""The aggregation is that of the paper, arXiv:2312.08935."""
ER_PRM = MakersCode("hanningzhang/ER-PRM@5a996d4, evaluation/evaluate_math_reward_model.py", aggregation="min")
MATH_PSA = MakersCode("openreasoner/openr@54ae004, reason/inference/rm_call.py and prm/infer_fns.py", aggregation="min")
"""openr ranks solutions by the lowest score or by the last one."""
VERSA = MakersCode(
    "UW-Madison-Lee-Lab/VersaPRM@81a3c99, evaluation/get_rewards_reasoning_step.py and evaluation/prm_models"
)
"""Its evaluation reports the last, the mean and the lowest score and prefers none."""
TRL = MakersCode("huggingface/trl@f2cd577, trl/experimental/prm/prm_trainer.py and docs/source/prm_trainer.md")
AXOLOTL = MakersCode("axolotl-ai-cloud/axolotl@067b021, src/axolotl/prompt_strategies/stepwise_supervised.py")
PURE = MakersCode("CJReinforce/PURE@41f9363, PRM/finetune.py", aggregation="soft_min")
"""The temperature of the soft minimum is 0.1, as in openrlhf/trainer/ppo_utils/experience_maker.py."""
ACTPRM = MakersCode(
    "sail-sg/ActivePRM@a93b338, examples/py_scripts/code_snippets.py and test_actprm_on_processbench.py",
    assumes="the tokenizer of ActPRM also for ActPRM-X",
)
EURUS = MakersCode(
    "PRIME-RL/ImplicitPRM@c044175, eval/processbench.py",
    threshold=0.0004,
    difference="The score of a step takes nothing from the step after it, and a labelled step is not labelled again.",
)
"""eval/process_eval.sh finds errors with a sigmoid below 0.5005 and a coefficient of 0.005; its reference model is
Qwen2.5-7B-Instruct. On Surefoot's scale, with the coefficient 0.001 of the model card, that is 0.0004. It was tuned
with another reference model than our default, that of the card."""
LLEMMA = MakersCode(
    "Edward-Sun/easy-to-hard@cf1d6d8, inference_reward.py",
    difference="A blank line inside a step is written as one line break, because it would end the step.",
    assumes="Mistral's vocabulary in place of Llemma's",
)
BABELSCAPE = MakersCode(
    "model card of Babelscape/Llama-3.1-8B-PRM800k-r", difference="A labelled step is not labelled again."
)
IMPLICIT_PRM = MakersCode(
    "PRIME-RL/ImplicitPRM@c044175, eval/prm_eval_utils.py",
    aggregation="min",
    difference="The word `Step` inside a step stays as it is; the makers' script writes it in lower case.",
)
PQM = MakersCode(
    "WindyLee0822/Process_Q_Model@c5a2a02, train_main.py and bon_eval_hf.py",
    aggregation="min",
    assumes="the 100k vocabulary of DeepSeek-LLM",
)
GRANITE = MakersCode(
    "ibm-granite/granite-io@9ee74ae, src/granite_io/io/process_reward_model/best_of_n.py",
    aggregation="mean",
    assumes="Qwen's vocabulary with Granite's special tokens in place of Granite's",
)
PATHFINDER = MakersCode(
    "declare-lab/PathFinder-PRM@2f80ed4, src/evaluation/ProcessBench/code/run_eval_pathfinder_prm.py",
    assumes="the chat template of Qwen2.5",
)
MULTI_RM = "db-Lee/Multi-RM@65b3e8e, discriminative/get_reward.py and discriminative/reward_model.py"
DPRM = MakersCode(MULTI_RM, aggregation="min", assumes="the BOS tokens of the base models")
DORM = MakersCode(MULTI_RM, aggregation="final", assumes="the BOS tokens of the base models")
"""The aggregations of dPRM and dORM are those of the makers' README."""
OPENRLHF = MakersCode("OpenRLHF/OpenRLHF@09d86a2, openrlhf/datasets/process_reward_dataset.py")
SPARE = MakersCode("UKPLab/aaai2026-spare-prm@d1076e0, README.md", assumes="the chat templates of the base models")
