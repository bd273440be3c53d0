"""The training loop.

Invariant: the seed determines the result. A run that was paused and resumed ends with bit-identical weights (on the
same machine with the same number of threads). The loss is binary cross-entropy on the difference of the two logits. It
accepts both labels and probabilities and is averaged over all targets of an optimizer step, across its batches.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from surefoot.display.progress import Progress
from surefoot.engine.hardware import cpu_has_flag, runs_on_cpu
from surefoot.errors import InputError, OptionError
from surefoot.train import snapshot
from surefoot.train.batch import Batch, Encoded, Shape, collate, draw, draw_questions, encode, merge, plan
from surefoot.train.example import Example
from surefoot.train.export import as_stored, change_head, export, move_threshold
from surefoot.train.interrupt import Interrupt
from surefoot.train.metrics import Judged, Quality, best_scale, best_threshold, fit_features, fit_head, measure
from surefoot.train.model import Trainee
from surefoot.train.optimizer import freeze, make_optimizer, rate_factor, set_rate
from surefoot.train.run_log import Log, draw_curve
from surefoot.train.settings import Settings, Sitting
from surefoot.train.trackers import Trackers

logger = logging.getLogger("surefoot")

CALIBRATED_ON, CALIBRATED_EVERY = 400, 50
"""On how many examples, half of them incorrect, and how often the weights of log-probabilities are fitted. With 100
examples, their AUC on other solutions had a standard deviation of 0.04, and with 200 of 0.02 (40 random samples)."""


@dataclass(frozen=True)
class Result:
    """The outcome of one call of `train`."""

    finished: bool
    step: int
    steps: int
    folder: Path
    """Contains the exported model once `finished`."""
    quality: Quality | None
    """Metrics of the exported model on the held-out examples, or on the validation examples if there are none."""
    threshold: float = 0.5
    """The threshold found on the validation examples, which the export moves to 0.5."""


def train(
    trainee: Trainee,
    examples: Sequence[Example],
    folder: str | Path,
    settings: Settings | None = None,
    sitting: Sitting | None = None,
    *,
    held_out: Sequence[Example] = (),
    validation: Sequence[Example] = (),
) -> Result:
    """Train a model and export it to `folder`. If a run was paused there, resume it.

    `held_out` is for measuring. `validation` should come from the same source as the training examples: the best
    weights, the threshold, a factor on the logits and the shares of their parts are selected on it. All are built into
    the head, so that 0.5 is the right threshold for the exported model and its other scores are as close to
    probabilities as that allows.
    Without it, the best weights are selected on `held_out` and the head is not changed.
    """
    run = Run(trainee, examples, Path(folder), settings or Settings(), sitting or Sitting(), held_out, validation)
    return run.go()


class Run:
    """The state of a run, new or resumed from its last snapshot."""

    def __init__(
        self,
        trainee: Trainee,
        examples: Sequence[Example],
        folder: Path,
        settings: Settings,
        sitting: Sitting,
        held_out: Sequence[Example],
        validation: Sequence[Example],
    ) -> None:
        self.trainee, self.model = trainee, trainee.model
        self.folder, self.snapshots = folder, folder / "checkpoints"
        self.settings, self.sitting = settings, sitting
        self.device = next(self.model.parameters()).device
        self.examples = self._encode(examples, "training")
        self.held_out = self._encode(held_out, "held-out", whole=True)
        self.validation = self._encode(validation, "validation", whole=True)
        if not self.examples:
            raise InputError("There is no example to train on.")
        self.steps = settings.steps or max(1, round(len(self._batches(0)) * settings.epochs / settings.accumulate))
        self.fingerprint = _fingerprint(trainee, settings, self.steps, self.examples)
        self.measured_on = _digest([*self.validation, *self.held_out])
        torch.manual_seed(settings.seed)
        freeze(self.model, settings, [trainee.tokenizer.token(name) for name in trainee.family.added_tokens])
        if settings.gradient_checkpointing:
            backbone: Any = self.model.model
            backbone.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.precision = choose_precision(settings.precision, self.device)
        self.step = self.epoch = self.batch = self.tokens = 0
        if snapshot.last(self.snapshots) is None:
            self._calibrate()
        self.optimizer = make_optimizer(self.model, settings)
        self.average: dict[str, Tensor] | None = self._weights() if settings.ema else None
        self.best: tuple[float, float] | None = None
        self.evaluated = time.monotonic()
        self.resumed = self._resume()
        self.log, self.trackers = Log(folder / "log.jsonl", self.step), Trackers()

    # --- data --------------------------------------------------------------------------------------------------------

    @property
    def max_tokens(self) -> int:
        """The longest prompt of an example."""
        return min(self.settings.max_tokens, self.trainee.context)

    def _encode(self, examples: Sequence[Example], what: str, *, whole: bool = False) -> list[Encoded]:
        limit = self.max_tokens
        with Progress(len(examples), shown=self.sitting.progress, unit=f"{what} example") as bar:
            counted = _counting(examples, bar)
            encoded, left_out = encode(counted, self.trainee.family, self.trainee.tokenizer, limit, whole=whole)
        if left_out:
            lack = "have a target after" if whole else "have no target within"
            logger.warning("Skipped %d %s examples that %s %d tokens.", left_out, what, lack, limit)
        return encoded

    def _batches(self, epoch: int) -> list[list[Encoded]]:
        settings = self.settings
        if settings.share:
            limit = min(settings.max_tokens, settings.shape.tokens)
            layers = draw_questions(self.examples, settings.mixture, settings.seed, epoch)
            rows = [row for layer in layers for row in merge(self.examples, layer, limit, settings.seed, epoch)]
            random.Random(f"rows/{settings.seed}/{epoch}").shuffle(rows)
        else:
            rows = [self.examples[at] for at in draw(self.examples, settings.mixture, settings.seed, epoch)]
        planned = plan(rows, range(len(rows)), settings.shape, settings.seed, epoch)
        return [[rows[at] for at in batch] for batch in planned]

    def _stream(self) -> Iterator[Batch]:
        """Yield batches from the current position on, epoch after epoch."""
        while True:
            batches = self._batches(self.epoch)
            if not batches:
                raise InputError("The source weights are so low that no example is drawn. Increase them.")
            while self.batch < len(batches):
                chosen = batches[self.batch]
                self.batch += 1
                yield self._collate(chosen, self.settings.shape, language=self.settings.language_weight > 0)
            self.epoch, self.batch = self.epoch + 1, 0

    def _collate(self, examples: Sequence[Encoded], shape: Shape, *, language: bool = False) -> Batch:
        segments = self.model.attends_by_segments
        return collate(examples, shape, language=language, segments=segments).to(self.device)

    # --- training ----------------------------------------------------------------------------------------------------

    def go(self) -> Result:
        """Train until the run is finished or paused."""
        config, removed = asdict(self.settings), self.log.removed
        try:
            self.trackers.start(
                self.sitting.log_to, self.folder, self.step, config, resumed=self.resumed, removed=removed
            )
            return self._go()
        finally:
            self.trackers.close()

    def _go(self) -> Result:
        started = saved = time.monotonic()
        first, tokens = self.step, self.tokens
        stream = self._stream()
        bar = Progress(self.steps, shown=self.sitting.progress, unit="step", done=self.step)
        with bar, Interrupt() as interrupt:
            last = self.steps if self.sitting.last_step is None else min(self.steps, self.sitting.last_step)
            while self.step < last:
                now = time.monotonic()
                if interrupt.asked:
                    self._save()
                    raise KeyboardInterrupt
                if _due(self.step - first, self.sitting.steps, now - started, self.sitting.minutes):
                    self._save()
                    return Result(False, self.step, self.steps, self.folder, None)
                numbers = self.learn([next(stream) for _ in range(self.settings.accumulate)])
                if self.step % CALIBRATED_EVERY == 0:
                    self._calibrate()
                self._record(step=self.step, **numbers, seconds=round(time.monotonic() - started, 3))
                speed = (self.tokens - tokens) / (time.monotonic() - started)
                bar.update(1, f"loss {numbers['loss']:.3f}, {speed:,.0f} tokens/s")
                now = time.monotonic()
                if _is_due(self.step, self.sitting.evaluate_steps, now - self.evaluated, self.sitting.evaluate_minutes):
                    self._evaluate()
                    self.evaluated = time.monotonic()
                if _is_due(self.step, self.sitting.save_steps, now - saved, self.sitting.save_minutes):
                    self._save()
                    saved = time.monotonic()
        return self._finish()

    def learn(self, batches: list[Batch]) -> dict[str, float]:
        """Run one optimizer step."""
        self.model.train()
        factor = rate_factor(self.step, self.steps, self.settings)
        set_rate(self.optimizer, factor)
        weights = [self._weigh(batch.targets) for batch in batches]
        total = sum(float(weight.sum()) for weight in weights)
        predicted = sum(batch.continuations.shape[1] for batch in batches if batch.continuations is not None)
        loss_sum = language_sum = 0.0
        for batch, weight in zip(batches, weights, strict=True):
            with self._autocast():
                hidden = self.model.hidden(batch)
                parts = self.model.parts(hidden, batch)
                language = self.model.language_loss(hidden, batch) / max(1, predicted)
            # Each part learns to judge alone, and the score is their mean. Trained on their sum, the part that learns
            # faster leaves nothing to learn for the other one.
            logits, targets = parts.float() * parts.shape[1], batch.targets[:, None].expand_as(parts)
            losses = binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)
            loss = (losses * weight).sum() / total
            (loss + self.settings.language_weight * language).backward()  # type: ignore[no-untyped-call]
            loss_sum += float(loss.detach())
            language_sum += float(language.detach())
            self.tokens += batch.tokens
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        if not torch.isfinite(norm):
            raise InputError(
                f"The gradient of step {self.step} is not finite. Lower the learning rate or train in float32. The "
                "last snapshot is not affected."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._update_average()
        return {
            "loss": round(loss_sum, 6),
            **({"language_loss": round(language_sum, 6)} if predicted else {}),
            "rate": self.settings.learning_rate * factor,
            "norm": round(float(norm), 4),
            "tokens": sum(batch.tokens for batch in batches),
        }

    @torch.no_grad()
    def _calibrate(self) -> None:
        """Fit the weights of log-probabilities, if there are any, to some training examples.

        They would learn too slowly: the decoder changes faster, and would itself learn to be more, or less, surprised
        by everything until scores are probabilities.
        """
        surprise = self.model.surprise
        if surprise is None:
            return
        rng = random.Random(f"calibrate/{self.settings.seed}/{self.step}")
        kinds = [[each for each in self.examples if each.wrong is wrong] for wrong in (True, False)]
        some = [each for kind in kinds for each in rng.sample(kind, min(len(kind), CALIBRATED_ON // 2))]
        features = torch.cat(self._read(some, self.model.features))[:, 1:].double()
        targets = np.array([target for example in some for target in example.targets])
        features = torch.cat([features, torch.ones_like(features[:, :1])], 1) * 2  # alone, a part counts twice
        start = surprise.factors.cpu().double().numpy()
        fitted = torch.from_numpy(fit_features(features.numpy(), targets, start))
        surprise.weight.copy_(fitted[:-1].view(surprise.weight.shape))
        surprise.intercept.copy_(fitted[-1:])

    def _record(self, **row: Any) -> None:
        self.log.add(**row)
        self.trackers.add(row)

    def _weigh(self, targets: Tensor) -> Tensor:
        return targets + (1 - targets) * self.settings.wrong_weight

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16)

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _update_average(self) -> None:
        if self.average is None:
            return
        # Early in the run, use a lower decay so that the initial weights are forgotten quickly.
        decay = min(self.settings.ema, (1 + self.step) / (10 + self.step))
        for name, tensor in self.model.state_dict().items():
            self.average[name].lerp_(tensor.detach(), 1 - decay)

    # --- evaluating, saving, exporting -------------------------------------------------------------------------------

    @torch.no_grad()
    def _read(self, examples: Sequence[Encoded], read: Callable[[Tensor, Batch], Tensor]) -> list[Tensor]:
        """Apply a method of the model to hidden states and batches. Return its results per example, in order."""
        self.model.eval()
        shape = Shape(self.settings.shape.tokens, self.settings.shape.multiple)
        found: dict[int, Tensor] = {}
        for indices in plan(examples, range(len(examples)), shape, 0, 0):
            batch = self._collate([examples[at] for at in indices], shape)
            with self._autocast():
                values = read(self.model.hidden(batch), batch).float().cpu()
            found |= zip(indices, torch.split(values, [len(examples[at].reads) for at in indices]), strict=True)
        return [found[at] for at in range(len(examples))]

    def _judge(self, examples: Sequence[Encoded]) -> list[Judged]:
        """Score encoded examples, in order."""
        margins = self._read(examples, self.model.margins)
        return [
            Judged(tuple(margin.sigmoid().tolist()), example.targets)
            for margin, example in zip(margins, examples, strict=True)
        ]

    def _evaluate(self) -> None:
        """Evaluate the weights that would be exported, and save them if they are the best so far."""
        if not self.held_out and not self.validation:
            return
        changes = self.average is not None or self.model.surprise is not None
        own = self._weights() if changes else None
        if self.average is not None:
            self.model.load_state_dict(self.average)
        self._calibrate()
        qualities = {
            name: measure(self._judge(examples))
            for name, examples in (("validation", self.validation), ("held_out", self.held_out))
            if examples
        }
        chosen = qualities.get("validation") or qualities["held_out"]
        key = (chosen.best_f1 if chosen.best_f1 is not None else -1.0, -chosen.loss)
        if self.best is None or key > self.best:
            self.best = key
            snapshot.save_best(self.snapshots, {"step": self.step, "model": self._weights()})
        if own is not None:
            self.model.load_state_dict(own)
        for name, quality in qualities.items():
            self._record(step=self.step, evaluated=name, **quality.to_dict())
            f1 = "none" if quality.f1 is None else f"{quality.f1:.3f}"
            logger.info("Step %d, %s: loss %.3f, F1 %s at 0.5.", self.step, name, quality.loss, f1)

    def _save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "place": [self.step, self.epoch, self.batch, self.tokens],
            "best": None if self.best is None else list(self.best),
            "measured on": self.measured_on,
            "since evaluation": time.monotonic() - self.evaluated,
            "random": torch.get_rng_state(),
            "fingerprint": self.fingerprint,
        }
        snapshot.save(self.snapshots, self.step, state, self.sitting.keep)

    def _resume(self) -> bool:
        file = snapshot.last(self.snapshots)
        if file is None:
            return False
        state = snapshot.load(file)
        other = [name for name, value in self.fingerprint.items() if state["fingerprint"].get(name) != value]
        if other:
            raise OptionError(
                f"{self.folder} contains a run that differs in: {', '.join(other)}. Use the same values to resume it, "
                "or choose another folder."
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = state["average"] and {name: t.to(self.device) for name, t in state["average"].items()}
        self.step, self.epoch, self.batch, self.tokens = state["place"]
        if state["measured on"] != self.measured_on:
            logger.info("The evaluation examples have changed, so the search for the best weights starts again.")
        elif state["best"] is not None:
            self.best = (state["best"][0], state["best"][1])
        self.evaluated -= state["since evaluation"]
        torch.set_rng_state(state["random"])
        logger.info("Resuming from step %d (%s).", self.step, file)
        return True

    def _finish(self) -> Result:
        """Export the selected weights, with the threshold moved to 0.5 if there are validation examples."""
        if self.best is None or not self.log.has("evaluated", self.step):
            self._evaluate()
        self._save()
        final = self.average if self.average is not None else self._weights()
        if self.sitting.export == "best" and self.best is not None:
            final = {n: t.to(self.device) for n, t in snapshot.load(self.snapshots / snapshot.BEST)["model"].items()}
        # Measure the model as it will be loaded: with rounded weights and without autocast.
        final, self.precision = as_stored(final, self.sitting.dtype), torch.float32
        self.model.load_state_dict(final)
        threshold, scale = 0.5, 1.0
        if self.validation:
            final, judged = self._fit_head(final)
            threshold, _ = best_threshold(judged)
            scale = best_scale(judged, threshold)
            final = as_stored(move_threshold(final, threshold, scale), self.sitting.dtype)
            self.model.load_state_dict(final)
        elif self.model.surprise is not None:
            self._calibrate()
            final = as_stored(self._weights(), self.sitting.dtype)
            self.model.load_state_dict(final)
        measured = self.held_out or self.validation
        quality = measure(self._judge(measured)) if measured else None
        metrics = quality.to_dict() if quality else {}
        self._record(step=self.step, exported=True, threshold=threshold, scale=scale, **metrics)
        export(self.trainee, self.folder, weights=final, dtype=self.sitting.dtype, trained_tokens=self.max_tokens)
        logger.info("%s", draw_curve(self.folder / "log.jsonl"))
        return Result(True, self.step, self.steps, self.folder, quality, threshold)

    def _fit_head(self, weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[Judged]]:
        """Fit the shares of MLP and log-probabilities to the validation examples. Also return the scores."""
        features = self._read(self.validation, self.model.features)
        factors = torch.ones(1)
        surprise = self.model.surprise
        if surprise is not None:
            factors = torch.cat([factors, surprise.factors.detach().cpu()])
            targets = np.array([target for example in self.validation for target in example.targets])
            fitted = fit_head(torch.cat(features).double().numpy(), targets, factors[:-1].double().numpy())
            if fitted is not None:
                # The threshold that is selected next takes the place of the intercept.
                factors = torch.from_numpy(np.append(fitted, 0.0)).float()
                weights = change_head(weights, float(factors[0]), factors[1:])
            features = [pad(each, (0, 1), value=1.0) for each in features]
        scores = [(each @ factors).sigmoid().tolist() for each in features]
        return weights, [
            Judged(tuple(each), example.targets) for each, example in zip(scores, self.validation, strict=True)
        ]


def _counting(examples: Iterable[Example], bar: Progress) -> Iterator[Example]:
    for example in examples:
        yield example
        bar.update(1, "encoded")


def _due(steps: int, most_steps: int | None, seconds: float, most_minutes: float | None) -> bool:
    """Whether it is time to pause."""
    return (most_steps is not None and steps >= most_steps) or (
        most_minutes is not None and seconds > 60 * most_minutes
    )


def _is_due(step: int, every: int | None, seconds: float, minutes: float | None) -> bool:
    """Whether a periodic action is due: every N steps if given, else every N minutes."""
    if every is not None:
        return step % every == 0
    return minutes is not None and seconds > 60 * minutes


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Resolve `auto`: bfloat16 on GPUs and on CPUs whose bfloat16 matrix units work, else float32."""
    if name == "float32":
        return torch.float32
    if device.type != "cpu":
        return torch.bfloat16
    if name == "auto" and not cpu_has_flag("amx_bf16"):
        return torch.float32
    if runs_on_cpu("bfloat16"):
        return torch.bfloat16
    logger.warning("bfloat16 crashes on this CPU (it reports AMX, but AMX does not work); training in float32.")
    return torch.float32


def _fingerprint(trainee: Trainee, settings: Settings, steps: int, examples: Sequence[Encoded]) -> dict[str, Any]:
    """Return everything that must be unchanged to resume a run, by name."""
    named = {name.replace("_", " "): json.dumps(value, sort_keys=True) for name, value in asdict(settings).items()}
    return {**named, "steps": steps, "training data": _digest(examples), "base": _mark(trainee)}


def _digest(examples: Sequence[Encoded]) -> str:
    data = hashlib.sha256()
    for example in examples:
        data.update(repr((example.ids, example.reads, example.targets, example.spans, example.source)).encode())
    return data.hexdigest()


def _mark(trainee: Trainee) -> str:
    """Hash the config and a few numbers of every tensor, to distinguish bases of the same shape."""
    mark = hashlib.sha256(json.dumps(trainee.config, sort_keys=True).encode())
    for name, tensor in trainee.model.state_dict().items():
        if name not in trainee.solved:
            mark.update(f"{name} {tensor.flatten()[:: max(1, tensor.numel() // 8)].tolist()}".encode())
    return mark.hexdigest()
