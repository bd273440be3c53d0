"""A `StepScorer` over HTTP: the client of `surefoot serve`. No torch."""

from surefoot.client.clients import AsyncClient, Client, connect

__all__ = ["AsyncClient", "Client", "connect"]
