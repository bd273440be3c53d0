"""Rewards for trainers that pass one sample per call: concurrent calls are scored together and monitored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from surefoot.integrations.micro_batching import WAIT, MicroBatcher
from surefoot.rewards.reward import RewardResult
from surefoot.rewards.run_monitor import WINDOW, RunMonitor
from surefoot.rewards.source import RewardSource, Sample


class BatchedRewards:
    """Computes rewards on a background thread, in batches.

        rewards = BatchedRewards(RewardSource("mini", "min"))
        result = rewards.submit(Sample(question, solution)).result()

    `wait` is how many seconds the first sample of a batch waits for others. The batches depend on timing, so the
    monitor observes a fixed number of samples at a time.
    """

    def __init__(self, source: RewardSource, *, wait: float = WAIT) -> None:
        self.source = source
        self._monitor = RunMonitor(min_batch=WINDOW)
        self._batcher: MicroBatcher[Sample, RewardResult] = MicroBatcher(self._rewards, wait=wait)

    @property
    def alarms(self) -> Mapping[str, float]:
        """The alarms of the monitor: 1.0 for each that is on, else 0.0."""
        return self._monitor.alarms

    def submit(self, sample: Sample) -> Future[RewardResult]:
        """Queue a sample. To await its reward, use `asyncio.wrap_future`."""
        return self._batcher.submit(sample)

    def _rewards(self, samples: Sequence[Sample]) -> list[RewardResult]:
        results = self.source.rewards(samples)
        self._monitor.record(results)
        return results
