"""Everything that the routes of one process share: the models, the limits, the numbers.

The rule: models are there before the state opens and never change; when it is closing, who is inside is served and
nobody else comes in.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterable
from functools import partial

from surefoot.errors import OptionError
from surefoot.scoring.scorer import Scorer
from surefoot.serve.metrics import Metrics
from surefoot.serve.model_service import Service
from surefoot.serve.settings import Settings

LAST_SECONDS = 2.0
"""Seconds that the engine gets in any case to end what it computes."""


class ServiceState:
    """The state of the service."""

    def __init__(self, scorers: Iterable[Scorer], settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.started = int(time.time())
        self.inside = 0
        """Requests that are being answered."""
        self.draining = False
        self.until = math.inf
        """When the time is over, by the monotonic clock, that those inside get to finish."""
        self.stuck = False
        """Whether something was still at work when the process had to end."""
        self.metrics.in_flight.set_function(lambda: self.inside)
        self.services: dict[str, Service] = {}
        for scorer in scorers:
            if scorer.name in self.services:
                raise OptionError(f"Two models are called {scorer.name!r}. Give one another name: --model NAME=FOLDER.")
            service = Service(scorer, settings, partial(self.metrics.observe, scorer.name))
            self.metrics.watch(scorer.name, service.scheduler)
            self.services[scorer.name] = service
        if not self.services:
            raise OptionError("There is no model to serve.")

    def service(self, name: str | None) -> Service:
        """The model of that name; without a name, the only one."""
        if name is None and len(self.services) == 1:
            return next(iter(self.services.values()))
        if name not in self.services:
            problem = "Name the model" if name is None else "There is no model of that name"
            raise OptionError(f"{problem}: {', '.join(self.services)}.")
        return self.services[name]

    @property
    def ready(self) -> bool:
        """Whether new work is taken."""
        return not self.draining and all(service.scheduler.alive for service in self.services.values())

    def close(self) -> None:
        """Finishes what was accepted and ends all threads."""
        self.draining = True
        for service in self.services.values():
            service.close()

    async def close_in_time(self) -> None:
        """Closes, but waits no longer than until the end of the time to finish."""
        until = max(self.until, time.monotonic() + LAST_SECONDS)
        # A thread of its own: the event loop would wait for one of its executor's without any limit.
        closing = threading.Thread(target=self.close, name="surefoot-close", daemon=True)
        closing.start()
        while closing.is_alive() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        self.stuck = closing.is_alive()
