"""A `StepScorer` over HTTP: the client of `surefoot serve`. No torch."""

from surefoot.client.async_client import AsyncClient
from surefoot.client.clients import Client, connect

__all__ = ["AsyncClient", "Client", "connect"]
