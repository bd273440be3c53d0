"""Prometheus metrics of one service.

Label values come from a closed set (routes, status codes, model names), never from a request, so that the number of
time series stays bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from surefoot.serve.running_batch import Batch
    from surefoot.serve.scheduler import Scheduler

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "surefoot_requests_total", "Requests by route and status code.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "surefoot_request_duration_seconds",
            "Time from the first byte of a request to the end of its reply.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("surefoot_requests_in_flight", "POST requests in progress.", registry=registry)
        self.disconnects = Counter(
            "surefoot_disconnects_total", "Clients that disconnected before their reply was ready.", registry=registry
        )
        self.items = Counter(
            "surefoot_items_total", "Items by model and status of the result.", ["model", "status"], registry=registry
        )
        self.batch_prompts = Histogram(
            "surefoot_batch_prompts", "Prompts per batch.", ["model"], buckets=SIZES, registry=registry
        )
        self.batch_tokens = Histogram(
            "surefoot_batch_tokens",
            "Tokens per batch; shared tokens count once.",
            ["model"],
            buckets=TOKENS,
            registry=registry,
        )
        self.tokens = Counter(
            "surefoot_tokens_total", "Tokens computed; shared tokens count once.", ["model"], registry=registry
        )
        self.engine_seconds = Counter(
            "surefoot_engine_seconds_total", "Time that the engine was busy.", ["model"], registry=registry
        )
        self.queue_tokens = Gauge(
            "surefoot_queue_tokens", "Tokens queued or being computed.", ["model"], registry=registry
        )
        self.rate = Gauge(
            "surefoot_engine_tokens_per_second",
            "Throughput of the engine: a running average, once it is measured.",
            ["model"],
            registry=registry,
        )
        ProcessCollector(registry=registry)

    def watch(self, model: str, scheduler: Scheduler) -> None:
        """Reads the length of this model's queue from its scheduler."""
        self.queue_tokens.labels(model).set_function(lambda: scheduler.tokens)

    def observe(self, model: str, batch: Batch) -> None:
        """Counts a batch that the engine of this model has computed."""
        self.batch_prompts.labels(model).observe(batch.prompts)
        self.batch_tokens.labels(model).observe(batch.tokens)
        self.tokens.labels(model).inc(batch.tokens)
        self.engine_seconds.labels(model).inc(batch.seconds)
        if batch.rate is not None:
            self.rate.labels(model).set(batch.rate)

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that the `Accept` header prefers, and its media type."""
        encode, media_type = choose_encoder(accept)
        return encode(self.registry), media_type
