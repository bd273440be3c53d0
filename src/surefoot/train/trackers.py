"""Send the log of a run to TensorBoard, Weights & Biases or trackio.

Invariant: a tracker neither changes nor stops a run. If it fails, it is reported once and dropped; log.jsonl is the
record of the run and always complete.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from surefoot.errors import MissingDependencyError, OptionError

logger = logging.getLogger("surefoot")

TrackerName = Literal["tensorboard", "wandb", "trackio"]
IDS = "trackers.json"
NAMES = {"loss": "loss", "rate": "learning_rate", "norm": "gradient_norm", "tokens": "tokens"}
"""The fields of a step in log.jsonl that are sent, and what trackers call them."""


@dataclass(frozen=True)
class Start:
    """What a tracker knows about a run when it opens."""

    folder: Path
    step: int
    """The last step that is kept from earlier calls."""
    id: str
    """Identifies the run across calls."""
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The run's name, for people."""
        return self.folder.resolve().name


class Tracker(Protocol):
    """Where numbers go."""

    def log(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Writes event files to the subfolder tensorboard."""

    def __init__(self, start: Start) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # TensorBoard hides what an earlier call wrote from `purge_step` on.
        self._writer: Any = SummaryWriter(str(start.folder / "tensorboard"), purge_step=start.step + 1)

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to the project of WANDB_PROJECT, or to `surefoot`. WANDB_MODE=offline writes files only."""

    def __init__(self, start: Start) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "surefoot"),
            name=start.name,
            id=start.id,
            resume="allow",
            dir=str(start.folder),
            config=dict(start.config),
            reinit="create_new",  # leaves a run of the caller alone
        )
        # W&B drops what is logged for an earlier `step` of its own, such as an evaluation after resuming.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """Logs to the project of TRACKIO_PROJECT, or to `surefoot`, in trackio's database on this machine.

    TRACKIO_SPACE_ID or TRACKIO_SERVER_URL name another place.
    """

    def __init__(self, start: Start) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", "surefoot")
        with redirect_stdout(sys.stderr):
            # trackio finds a run by its name, so the id makes it unique.
            self._run = trackio.init(
                project, f"{start.name}-{start.id}", resume="allow", config=dict(start.config), embed=False
            )

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        import trackio

        with redirect_stdout(sys.stderr):
            trackio.finish()


TRACKERS: dict[str, Callable[[Start], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}
"""Trackers by the name of their package."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error if a tracker is unknown or not installed."""
    if isinstance(names, str):
        raise OptionError(f"log_to={names!r} is a text. Pass a list: log_to=[{names!r}].")
    for name in names:
        if name not in TRACKERS:
            raise OptionError(f"log_to={name!r} is not supported. Choose from: {', '.join(TRACKERS)}.")
        if find_spec(name) is None:
            raise MissingDependencyError(f"`log_to` {name} needs the package {name}. Run: pip install {name}")


class Trackers:
    """The open trackers of a run."""

    def __init__(self) -> None:
        self._open: dict[str, Tracker] = {}
        self._sent: dict[str, set[tuple[Any, ...]]] = {}

    def start(
        self,
        names: Sequence[str],
        folder: Path,
        step: int,
        config: Mapping[str, Any],
        *,
        resumed: bool = False,
        removed: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Open the trackers. `removed` are rows that an earlier call logged, but whose work was lost."""
        ids = _ids(folder / IDS, names, resumed)
        lost = [dict(row) for row in removed]
        for name in dict.fromkeys(names):
            # TensorBoard hides later steps itself. The others only append, so what they have is not sent again.
            known = [row for row in lost if name != "tensorboard" or row["step"] <= step]
            self._sent[name] = {_identity(row) for row in known} if name in ids.known else set()
            opened = self._try(name, partial(TRACKERS[name], Start(folder, step, ids.all[name], config)))
            if opened is not None:
                self._open[name] = opened

    def add(self, row: Mapping[str, Any]) -> None:
        """Send a row of log.jsonl."""
        for name, tracker in list(self._open.items()):
            if _identity(row) not in self._sent[name]:
                self._try(name, partial(tracker.log, row["step"], named_values(row)))

    def close(self) -> None:
        """Write what is buffered and end."""
        for name, tracker in list(self._open.items()):
            self._try(name, tracker.close)
        self._open.clear()

    def _try(self, name: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            self._open.pop(name, None)
            logger.warning(
                "Logging to %s failed (%s: %s). Training continues without it; log.jsonl is complete.",
                name,
                type(error).__name__,
                " ".join(str(error).split()),
            )
            return None


def named_values(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row of log.jsonl, by the names that trackers show. Missing numbers are left out.

    >>> named_values({"step": 3, "loss": 0.5, "rate": 0.01, "seconds": 1.5})
    {'train/loss': 0.5, 'train/learning_rate': 0.01}
    >>> named_values({"step": 3, "evaluated": "held_out", "f1": None, "step_auc": 0.7})
    {'held_out/step_auc': 0.7}
    """
    if "evaluated" in row or "exported" in row:
        group = row.get("evaluated", "exported")
        return {
            f"{group}/{name}": value
            for name, value in row.items()
            if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
        }
    return {f"train/{shown}": row[name] for name, shown in NAMES.items() if name in row}


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["step"], *sorted(named_values(row).items()))


@dataclass(frozen=True)
class _Ids:
    all: dict[str, str]
    known: frozenset[str]
    """The trackers that an earlier call of the run had."""


def _ids(file: Path, names: Sequence[str], resumed: bool) -> _Ids:
    """Read the ids of a resumed run, and store those of new trackers."""
    known: dict[str, str] = {}
    if resumed and file.is_file():
        with suppress(ValueError):
            known = json.loads(file.read_text(encoding="utf-8"))
    ids = known | {name: uuid4().hex[:8] for name in names if name not in known}
    if ids != known:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(ids) + "\n", encoding="utf-8")
    return _Ids(ids, frozenset(known))
