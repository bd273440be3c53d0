"""Tells the address of a server from the name of a model."""

from __future__ import annotations

import re

SERVICE_SCHEMES = ("http://", "https://")
VLLM_PREFIX = "vllm+"
CRITIC_SERVER = re.compile(r"[\w.-]+@https?://")


def is_service(model: object) -> bool:
    """Whether `model` is the address of a Surefoot service."""
    return isinstance(model, str) and model.startswith(SERVICE_SCHEMES)


def is_vllm(model: object) -> bool:
    """Whether `model` is the address of a vLLM server."""
    return isinstance(model, str) and model.startswith(VLLM_PREFIX) and is_service(model.removeprefix(VLLM_PREFIX))


def is_critic_server(model: object) -> bool:
    """Whether `model` is a critic and the address of its server, as in `processbench@http://127.0.0.1:8002`."""
    return isinstance(model, str) and CRITIC_SERVER.match(model) is not None


def is_server(model: object) -> bool:
    """Whether `model` is the address of any server."""
    return is_service(model) or is_vllm(model) or is_critic_server(model)
