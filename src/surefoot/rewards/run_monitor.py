"""Watch the rewards of a training run: log a warning once per alarm, with advice, and keep the alarms as metrics."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from surefoot.errors import OptionError
from surefoot.rewards.monitor import Monitor
from surefoot.rewards.reward import RewardResult

logger = logging.getLogger("surefoot")

WINDOW = 64
"""The number of samples over which a metric must exceed its threshold."""

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "outside": "Text outside the steps is not scored. Use the recipe 'outcome+process+format', or add penalty().",
        "repeated": "Add penalty() to the recipe.",
        "templated": "These steps differ in their numbers only, which may be padding. Read samples, and use 'product' "
        "or 'min' instead of a mean of step scores.",
        "filler": "These steps have no content. Add penalty() to the recipe.",
        "markers": "The policy writes step markers or chat turns. They are scored as text, but check its stop tokens.",
        "false_positives": "Wrong solutions get high step scores. Weight the outcome more, or use a better model.",
        "unscored": "Read the reasons. If solutions are too long for the scorer, limit the length of completions.",
        "unanswered": "Without an answer the outcome is 0. Name an answer format in the prompt, such as a line "
        "'Final Answer: 14', and check whether completions are cut off.",
        "steps_drift": "Read samples. More steps can be padding; fewer steps can be a policy that avoids blank lines.",
        "length_drift": "Read samples. Longer steps can be a policy that avoids blank lines, shorter ones padding.",
    }
)
"""What to do about each alarm."""


class RunMonitor:
    """Raises the alarms of a `Monitor` for a whole run. Call `record` with all rewards, from one thread at a time.

        watch = RunMonitor()
        metrics = watch.record(results)     # those of `Monitor.observe`
        watch.alarms["unanswered"]          # 1.0 while the alarm is on, else 0.0

    An alarm is on while the mean of its metric over the last `window` samples exceeds the threshold. `min_batch` joins
    small batches: they are observed together once there are this many samples.
    """

    def __init__(self, monitor: Monitor | None = None, *, window: int = WINDOW, min_batch: int = 1) -> None:
        if window < 1 or min_batch < 1:
            raise OptionError(f"window={window} and min_batch={min_batch} are numbers of samples: at least 1.")
        self.monitor = monitor or Monitor()
        self._window, self._min_batch = window, min_batch
        self._pending: list[RewardResult] = []
        self._recent: deque[tuple[int, dict[str, float]]] = deque()
        self._warned: set[str] = set()
        self._alarms = dict.fromkeys(self.monitor.thresholds, 0.0)

    @property
    def alarms(self) -> Mapping[str, float]:
        """Every alarm by name: 1.0 while it is on, else 0.0. The names are always the same."""
        return dict(self._alarms)

    def record(self, results: Sequence[RewardResult]) -> dict[str, float]:
        """Add a batch. Return the metrics of what was observed: nothing while a small batch waits for others."""
        self._pending += results
        if len(self._pending) < self._min_batch:
            return {}
        observed, self._pending = self._pending, []
        metrics = self.monitor.observe(observed)
        self._recent.append((len(observed), metrics))
        while self._samples() - self._recent[0][0] >= self._window:
            self._recent.popleft()
        if self._samples() >= self._window:
            self._check()
        return metrics

    def _samples(self) -> int:
        return sum(size for size, _ in self._recent)

    def _check(self) -> None:
        means = {name: mean for name in self.monitor.thresholds if (mean := self._mean(name)) is not None}
        on = self.monitor.alerts(means)
        self._alarms = {name: float(name in on) for name in self._alarms}
        for name in on:
            if name not in self._warned:
                self._warned.add(name)
                logger.warning(
                    "Reward hacking: %s is %.2f over the last %d samples (threshold: %.2f). %s This is logged once.",
                    name, means[name], self._samples(), self.monitor.thresholds[name],
                    ADVICE.get(name, "Read some samples."),
                )  # fmt: skip

    def _mean(self, name: str) -> float | None:
        known = [(size, metrics[name]) for size, metrics in self._recent if name in metrics]
        return math.fsum(size * value for size, value in known) / sum(size for size, _ in known) if known else None
