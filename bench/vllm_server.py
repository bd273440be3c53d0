"""Run vLLM's server with a PRM on loopback, in its own environment, for tests and benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from vllm_scorer import vllm_environment, vllm_python

START_SECONDS = 300


@contextmanager
def vllm_server(folder: Path, dtype: str = "float32", *options: str) -> Iterator[str]:
    """Start the server without compilation, yield its address, and stop it at the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--runner", "pooling"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", dtype, "--enforce-eager"]
    command += ["--max-model-len", "4096", "--max-num-batched-tokens", "4096", *options]
    child = subprocess.Popen(command, env=vllm_environment(), stdout=sys.stderr, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            if child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("vLLM's server did not start; see its messages above.")
            try:
                if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(1)
        yield url
    finally:
        # The engine is a child of the server, so stop the whole process group.
        if child.poll() is None:
            os.killpg(child.pid, 15)
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
