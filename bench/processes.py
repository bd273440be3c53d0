"""Divide the questions of a benchmark among processes with one thread each.

On a CPU, that is faster for small language models than one process with several threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run_shares(
    script: str, arguments: Sequence[str], questions: Path, out: Path, processes: int, limit: int | None
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Run a script once per share, with its own file of questions, `--out` folder and `--processes 0`.

    Return the folders, and what each process printed last, as JSON. Of an option that is given twice, the last counts.
    """
    lines = questions.read_text(encoding="utf-8").strip().split("\n")[:limit]
    folders = [out / f"part-{at}" for at in range(processes)]
    children = []
    for at, folder in enumerate(folders):
        folder.mkdir(parents=True, exist_ok=True)
        share = folder.with_suffix(".jsonl")
        share.write_text("".join(f"{line}\n" for line in lines[at::processes]), encoding="utf-8")
        rest = [each for each in arguments if Path(each) != questions]
        command = [sys.executable, script, *rest, "--processes", "0", "--out", str(folder), str(share)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    printed = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        sys.exit("A process failed. Run the same command again to continue.")
    return folders, [json.loads(text.splitlines()[-1]) for text in printed]
