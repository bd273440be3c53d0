"""What the routes of one process share: models, settings, metrics.

The set of models never changes. A draining service finishes the requests in flight and accepts no others.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterable
from functools import partial

from surefoot.core.protocols import StepScorer
from surefoot.errors import OptionError
from surefoot.scoring.critic_scorer import CriticScorer
from surefoot.scoring.ensemble import Ensemble
from surefoot.scoring.scorer import Scorer
from surefoot.serve.critic_service import CriticService
from surefoot.serve.ensemble_service import EnsembleService
from surefoot.serve.metrics import Metrics
from surefoot.serve.model_service import ModelService, ServedModel
from surefoot.serve.settings import Settings

MIN_CLOSE_SECONDS = 2.0
"""Seconds that the engine always gets to finish its current batch."""

DUPLICATE = "Two models have the name {name!r}. Rename one: --model NAME=MODEL."


class UnknownModelError(OptionError):
    """The request names no model, or one that is not served."""


class ServiceState:
    """The state of the service."""

    def __init__(self, scorers: Iterable[StepScorer], settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.started = int(time.time())
        self.in_flight = 0
        """POST requests in progress."""
        self.draining = False
        self.deadline = math.inf
        """The end of the drain period, on the monotonic clock."""
        self.stuck = False
        """Whether work was still running when the drain period ended."""
        self.metrics.in_flight.set_function(lambda: self.in_flight)
        self.models: dict[str, ServedModel] = {}
        self.engines: dict[str, ModelService] = {}
        """All models that compute, members of ensembles included. Metrics of engines are by these names."""
        for scorer in scorers:
            if scorer.name in self.models:
                raise OptionError(DUPLICATE.format(name=scorer.name))
            self.models[scorer.name] = self._served(scorer)
        if not self.models:
            raise OptionError("There is no model to serve.")

    def _served(self, scorer: StepScorer) -> ServedModel:
        if isinstance(scorer, Ensemble):
            return EnsembleService(scorer, [self._served(member) for member in scorer.members])
        return CriticService(scorer) if isinstance(scorer, CriticScorer) else self._model(scorer)

    def _model(self, scorer: StepScorer) -> ModelService:
        if not isinstance(scorer, Scorer):
            raise OptionError(f"{scorer.name} is not a model that can be served. Serve a folder, a hub id or vLLM.")
        if scorer.name in self.engines:
            raise OptionError(DUPLICATE.format(name=scorer.name))
        model = ModelService(scorer, self.settings, partial(self.metrics.observe, scorer.name))
        self.metrics.watch(scorer.name, model.scheduler)
        self.engines[scorer.name] = model
        return model

    def model(self, name: str | None) -> ServedModel:
        """The model with this name; if only one is served, the name may be omitted."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name not in self.models:
            problem = "Name a model" if name is None else "There is no model with that name. Choose one"
            raise UnknownModelError(f"{problem}: {', '.join(self.models)}.")
        return self.models[name]

    @property
    def ready(self) -> bool:
        """Whether new work is accepted."""
        return not self.draining and all(engine.scheduler.alive for engine in self.engines.values())

    def close(self) -> None:
        """Finishes accepted requests and ends all threads."""
        self.draining = True
        for model in self.models.values():
            model.close()

    async def close_before_deadline(self) -> None:
        """Closes, but gives up at the end of the drain period."""
        deadline = max(self.deadline, time.monotonic() + MIN_CLOSE_SECONDS)
        # Not a thread of the event loop's executor: the loop would wait for it without a limit.
        closing = threading.Thread(target=self.close, name="surefoot-close", daemon=True)
        closing.start()
        while closing.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self.stuck = closing.is_alive()
