"""Train a small policy with GRPO on a CPU: TRL's trainer, with step scores as the reward.

    python examples/grpo.py
    python examples/grpo.py --policy Qwen/Qwen2.5-0.5B-Instruct --model Qwen/Qwen2.5-Math-PRM-7B --steps 500

By default the scorer is mini and the policy is created with random weights and one token per byte. This shows how the
parts fit together and what the trainer logs about the reward and reward hacking; the policy does not learn arithmetic.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from surefoot.integrations.trl import reward_function
from surefoot.testing import write_base

SHOWN = (
    "reward",
    "surefoot/monitor/unscored",
    "surefoot/monitor/unanswered",
    "surefoot/monitor/steps",
    "surefoot/monitor/filler",
    "surefoot/monitor/repeated",
)
ALARM = "surefoot/alarm/"


def problems(count: int) -> Dataset:
    """Additions, with their answers in a second column."""
    pairs = [(a % 10 + 1, a * 7 % 10 + 1) for a in range(count)]
    prompts = [f"What is {a} + {b}? Write steps, then a line with the final answer.\n" for a, b in pairs]
    return Dataset.from_dict({"prompt": prompts, "answer": [str(a + b) for a, b in pairs]})


def small_policy(folder: Path) -> tuple[Any, Any]:
    """Two layers, one token per byte."""
    write_base(folder, hidden_size=64)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    return AutoModelForCausalLM.from_pretrained(folder), tokenizer


class Show(TrainerCallback):  # type: ignore[misc]
    """Print one line per log entry."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "reward" in logs:
            found = "  ".join(f"{name.split('/')[-1]} {logs[name]:.3f}" for name in SHOWN if name in logs)
            alarms = ", ".join(name.split("/")[-1] for name in logs if name.startswith(ALARM) and logs[name])
            print(f"step {state.global_step:4}  {found}  alarms: {alarms or 'none'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", help="hub id or folder (default: a small model with random weights)")
    parser.add_argument("--model", default="mini", help="a model for surefoot.load (default: mini)")
    parser.add_argument("--recipe", help="name of a recipe (default: outcome+process)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--length", type=int, default=48, help="maximum number of tokens per completion")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        if options.policy:
            policy, tokenizer = (
                AutoModelForCausalLM.from_pretrained(options.policy),
                AutoTokenizer.from_pretrained(options.policy),
            )
        else:
            policy, tokenizer = small_policy(folder / "policy")
        trainer = GRPOTrainer(
            model=policy,
            processing_class=tokenizer,
            reward_funcs=reward_function(options.model, options.recipe, gold="answer"),
            train_dataset=problems(64),
            args=GRPOConfig(
                output_dir=str(folder / "out"),
                max_steps=options.steps,
                per_device_train_batch_size=16,
                num_generations=8,
                max_completion_length=options.length,
                learning_rate=2e-3 if options.policy is None else 1e-6,
                logging_steps=max(1, options.steps // 10),
                use_cpu=not torch.cuda.is_available(),
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            callbacks=[Show()],
        )
        trainer.remove_callback(PrinterCallback)  # which prints every entry as a dict
        trainer.train()


if __name__ == "__main__":
    main()
