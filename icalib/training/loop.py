"""The training loop. It uses an `Engine` and a `Curriculum` and does not depend on Ray or DeepSpeed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from icalib.core.errors import IcalibError
from icalib.core.seeding import child_seed
from icalib.encoders.transfer import to_device
from icalib.metrics.catalogue import find_metric
from icalib.models.model import Model
from icalib.training.settings import TrainingSettings

_MIN_IMPROVEMENT = 0.01  # of the training loss, as in the code of BERT_FP's authors
_POINT_EVERY = 10  # updates between points of the learning curve
_SHOWN = 20  # updates whose mean loss is shown
_CHECKPOINT_SECONDS = 60.0  # a fixed number of updates takes minutes on a CPU, and as long as writing it on a GPU


class EarlyStoppingData(Protocol):
    """Validation metrics of the current model."""

    def __call__(self, model: Any, rank: int, world_size: int, /) -> Any:
        """Compute this worker's part of the validation results, which `metrics` combines; workers `gather` them."""
        ...

    def metrics(self, results: Sequence[Any]) -> dict[str, float]:
        """Compute metrics from all workers' results, by tag; without the selection metric, the last epoch is best."""
        ...


class Curriculum(Protocol):
    """Batches of each epoch, and the loss of their examples."""

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """Return all batches of an epoch, the same on every worker and in every attempt."""
        ...

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """Return the name of the task and the summed loss of some examples of one batch."""
        ...


@runtime_checkable
class JointCurriculum(Curriculum, Protocol):
    """A curriculum whose loss compares all examples of an update with each other, e.g. by in-batch negatives; all
    workers call `compare` with the same arguments and must get the same loss.
    """

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """Return the summed loss of a whole batch."""
        return self.compare(self.represent(forward, examples, device), examples)

    def is_joint(self, examples: Sequence[Any]) -> bool:
        """Return whether the loss of this batch compares its examples; otherwise `losses` is used."""
        return True

    def represent(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> Tensor:
        """Return what the loss reads of each example, from the model; [B, ...]."""
        ...

    def compare(self, representations: Tensor, examples: Sequence[Any]) -> tuple[str, Tensor]:
        """Return the name of the task and the summed loss of all examples of a batch, from their representations."""
        ...


class Engine(Protocol):
    """Runs forward and backward passes and optimiser steps in one of the worker processes."""

    rank: int
    world_size: int
    device: torch.device

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward pass."""
        ...

    def backward_and_step(self, loss: Tensor) -> None:
        """Run the backward pass; the optimiser steps at every `gradient_accumulation`-th call."""
        ...

    def set_learning_rate(self, factor: float) -> None:
        """Set each parameter group's learning rate to its peak times `factor`."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all workers in rank order, on every worker (`training.gather` says of which types)."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of the whole model on rank 0 (other ranks may get an empty dict)."""
        ...

    def save(self, state: dict[str, Any]) -> None:
        """Save a checkpoint to resume from, including the loop's state."""
        ...

    def load(self) -> dict[str, Any] | None:
        """Load the last checkpoint, if one exists, and return the loop's state."""
        ...


@dataclass
class LoopState:
    """Progress of the loop, saved in every checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best: float = -math.inf
    best_epoch: int = -1
    stopped: bool = False
    log: list[dict[str, Any]] = field(default_factory=list)
    losses: list[dict[str, list[float]]] = field(default_factory=list)
    """Of each epoch and task, the sum of the updates' losses and their number. A sum is added up update by update, so
    that points and checkpoints, at which it grows, don't change its rounding."""
    seconds: float = 0.0
    examples: int = 0


class Observer(Protocol):
    """Receives the loop's progress on rank 0."""

    def progress(self, done: float, total: float, note: str) -> None:
        """Report that `done` of `total` updates are done."""
        ...

    def best(self, weights: dict[str, Tensor]) -> None:
        """Receive the best weights so far."""
        ...

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """Receive the validation points of all epochs so far, from the start (epoch 0) on; may raise `Abandoned`."""
        ...


def train(
    model: Model,
    engine: Engine,
    curriculum: Curriculum,
    settings: TrainingSettings,
    observer: Observer,
    *,
    seed: int,
    validation: EarlyStoppingData | None,
    start_ranks: bool = False,
) -> LoopState:
    """Train until all epochs are done or validation stops improving; `observer.best` receives the weights to keep.

    Every random draw is a function of (seed, update, rank), so a resumed run gives the same result as an uninterrupted
    one. With `start_ranks`, the initial weights are validated, too, and kept if no epoch is better.
    """
    state = LoopState(**(engine.load() or {}))
    saved = time.monotonic()
    started = saved - state.seconds
    if (start_ranks or settings.epochs == 0) and state.best_epoch < 0:
        _validate(model, engine, settings, state, observer, validation)
    model.train()
    while state.epoch < settings.epochs and not state.stopped:
        batches = curriculum.batches(state.epoch)
        stalled = stalled_epochs(state.losses[: state.epoch])
        if state.batch == 0:
            model.start_epoch()
        if len(state.losses) == state.epoch:
            state.losses.append({})
        losses, factor = RunningLosses(engine.device), 0.0
        while state.batch < len(batches):
            progress = (state.epoch + state.batch / len(batches)) / settings.epochs
            # the addend lets the first update of a warm-up count
            factor = settings.progress_factor(progress + 1e-3, stalled, state.step)
            engine.set_learning_rate(factor)
            task, loss, share = _update(model, engine, curriculum, settings, batches[state.batch], seed, state.step)
            losses.add(task, loss, share, state.step)
            state.examples += len(batches[state.batch])
            state.batch += 1
            state.step += 1
            if engine.rank == 0:
                observer.progress(
                    state.epoch * len(batches) + state.batch,
                    settings.epochs * len(batches),
                    f"epoch {state.epoch + 1}/{settings.epochs}{losses.note(task)}",
                )
            save = state.batch < len(batches) and _checkpoint_is_due(engine, settings, state, saved)
            if save or state.step % _POINT_EVERY == 0:
                state.log += _curve(engine, losses.taken(), settings, state, factor)
            if save:
                state.seconds = time.monotonic() - started
                engine.save(vars(state))
                saved = time.monotonic()
        if rest := losses.taken():
            state.log += _curve(engine, rest, settings, state, factor)
        state.epoch += 1
        state.batch = 0
        is_best = _validate(model, engine, settings, state, observer, validation)
        state.seconds = time.monotonic() - started
        # A redone epoch needn't be equal to the bit on a GPU: the state has to know whose weights are kept.
        if is_best or _checkpoint_is_due(engine, settings, state, saved):
            engine.save(vars(state))
            saved = time.monotonic()
    return state


def _checkpoint_is_due(engine: Engine, settings: TrainingSettings, state: LoopState, saved: float) -> bool:
    """Return the same on all workers: the clock of rank 0 counts, and is asked where losses are read anyway."""
    if settings.checkpoint_every is not None:
        return state.step % settings.checkpoint_every == 0
    return state.step % _POINT_EVERY == 0 and engine.gather(time.monotonic() - saved)[0] >= _CHECKPOINT_SECONDS


def _update(
    model: Model,
    engine: Engine,
    curriculum: Curriculum,
    settings: TrainingSettings,
    batch: Sequence[Any],
    seed: int,
    step: int,
) -> tuple[str, Tensor, float]:
    """Run one update on every world-size-th example.

    Return its task, a loss [] that isn't read from the device, whose mean over the workers is the batch's sum of losses
    divided by its size, and the part of the batch that this worker's loss stands for, times the number of workers.
    """
    parts = engine.world_size * settings.gradient_accumulation
    numbers = range(settings.gradient_accumulation)
    part_seeds = [child_seed(seed, "update", step, number, engine.rank) for number in numbers]
    rows = [range(number * engine.world_size + engine.rank, len(batch), parts) for number in numbers]
    joint = None
    if parts > 1 and isinstance(curriculum, JointCurriculum) and curriculum.is_joint(batch):
        joint = _JointLoss(curriculum, engine, batch, rows, part_seeds)
    task, summed = "", torch.zeros((), dtype=torch.float64, device=engine.device)
    for part_seed, part in zip(part_seeds, rows, strict=True):
        torch.manual_seed(part_seed)
        # A worker without examples must still take part in the collective operations; its loss has weight 0.
        model.start_part(counted=bool(part))
        examples = [batch[row] for row in part] or batch[:1]
        if joint is None:
            task, loss = curriculum.losses(engine.forward, examples, engine.device)
        else:
            task, loss = joint.task, joint.surrogate(examples, part)
        loss = loss if part else loss * 0.0
        # The engine averages over workers and parts, so the sum is multiplied by their number.
        engine.backward_and_step(loss * (parts / settings.batch_size))
        summed = summed + loss.detach().double()
    model.end_update()
    share = sum(map(len, rows)) * engine.world_size / len(batch)
    if joint is not None:
        summed, share = joint.loss / engine.world_size, 1.0
    return task, summed * engine.world_size / len(batch), share


class _JointLoss:
    """The loss of a whole batch whose forward passes are split into parts: gradient caching (Gao et al. 2021).

    A first pass without gradients represents all examples on all workers. The gradient of the loss with respect to
    these representations then weighs those of a second pass, with the same dropout by `part_seeds`, part by part
    (`rows`: indices into the batch): memory holds one part and the weights' gradient is that of the whole batch.
    """

    def __init__(
        self,
        curriculum: JointCurriculum,
        engine: Engine,
        batch: Sequence[Any],
        rows: Sequence[Sequence[int]],
        part_seeds: Sequence[int],
    ) -> None:
        self._curriculum, self._engine = curriculum, engine
        own: dict[int, Tensor] = {}
        for part_seed, part in zip(part_seeds, rows, strict=True):
            torch.manual_seed(part_seed)
            with torch.no_grad():
                found = self._represent([batch[row] for row in part] or batch[:1])
            own |= dict(zip(part, found.cpu(), strict=False))  # a part without examples represents a stand-in
        by_row = {row: tensor for found in engine.gather(own) for row, tensor in found.items()}
        representations = torch.stack([by_row[row] for row in range(len(batch))]).to(engine.device).requires_grad_()
        self.task, loss = curriculum.compare(representations, batch)
        (self._gradient,) = torch.autograd.grad(loss, representations)
        self.loss = loss.detach().double()

    def surrogate(self, examples: Sequence[Any], rows: Sequence[int]) -> Tensor:
        """Return a value whose gradient is these examples' share of the gradient of the loss."""
        index = to_device(torch.tensor(list(rows) or [0]), self._gradient.device)
        return (self._represent(examples) * self._gradient[index]).sum()

    def _represent(self, examples: Sequence[Any]) -> Tensor:
        return self._curriculum.represent(self._engine.forward, examples, self._engine.device)


def _curve(
    engine: Engine, losses: dict[str, list[float]], settings: TrainingSettings, state: LoopState, factor: float
) -> list[dict[str, Any]]:
    workers = engine.gather(losses)
    for task in losses:
        _add_losses(state.losses[-1], task, [worker[task] for worker in workers])
    points = {
        f"loss/{task}": sum(sum(worker[task]) for worker in workers) / sum(len(worker[task]) for worker in workers)
        for task in losses
    }
    points["opt/lr"] = settings.learning_rate * factor
    return [_point(state, "train", tag, value) for tag, value in points.items()]


def _add_losses(sums: dict[str, list[float]], task: str, workers: Sequence[Sequence[float]]) -> None:
    """Add losses of updates, of each worker, to the sum and the number of their epoch."""
    total, number = sums.get(task, (0.0, 0))
    for shares in zip(*workers, strict=True):
        total, number = total + sum(shares) / len(shares), number + 1
    sums[task] = [total, number]


def stalled_epochs(losses: Sequence[Mapping[str, Sequence[float]]]) -> int:
    """Count the epochs whose mean loss of an update was not at least 0.01 below that of the previous epoch; `losses`
    are those of `LoopState`.
    """
    sums = [tuple(map(sum, zip(*epoch.values(), strict=True))) for epoch in losses if epoch]
    return sum(
        after > before - _MIN_IMPROVEMENT for before, after in pairwise(total / number for total, number in sums)
    )


def validation_points(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the validation points of a learning curve."""
    return [point for point in log if point["split"] == "validation"]


def _point(state: LoopState, split: str, tag: str, value: float) -> dict[str, Any]:
    return {"split": split, "step": state.step, "epoch": state.epoch, "tag": tag, "value": value}


def _validate(
    model: Model,
    engine: Engine,
    settings: TrainingSettings,
    state: LoopState,
    observer: Observer,
    validation: EarlyStoppingData | None,
) -> bool:
    """Validate, and return whether the weights are the best so far, which `observer` has then received."""
    value = float(state.epoch)  # without a selection metric, the last epoch counts as the best
    if validation is not None:
        model.eval()
        # ZeRO 3 gathers weights in forward passes, so all workers must run the same ones.
        whole = settings.zero_stage == 3
        found = validation(model, 0, 1) if whole else validation(model, engine.rank, engine.world_size)
        results = engine.gather(found)  # also where all are the same but for rounding: ranks have to decide alike
        metrics = validation.metrics(results[:1] if whole else results)
        model.train()
        state.log += [_point(state, "validation", tag, measured) for tag, measured in metrics.items()]
        metric = find_metric(settings.selection_metric)
        if metric.tag in metrics:
            value = metric.sign * metrics[metric.tag]
    if math.isnan(value):
        raise diverged(f"the validation metric is nan after epoch {state.epoch}")
    is_best = value > state.best
    if is_best:
        state.best, state.best_epoch = value, state.epoch
        weights = engine.state_dict()
        if not all(engine.gather(_are_finite(weights))):
            raise diverged(f"a weight is nan or infinite after epoch {state.epoch}")
        if engine.rank == 0:
            observer.best(weights)
    if engine.rank == 0 and validation is not None:
        observer.validated(validation_points(state.log))
    state.stopped = state.epoch - max(1, state.best_epoch) >= settings.patience  # the start is no epoch
    return is_best


def _are_finite(weights: Mapping[str, Tensor]) -> bool:
    return all(bool(weight.isfinite().all()) for weight in weights.values() if weight.is_floating_point())


class RunningLosses:
    """Losses of updates since the last point of the curve.

    They stay on a device until a point needs them, as reading waits for the device; a CPU's are read at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._reads_at_once = device.type == "cpu"
        self._unread: list[tuple[str, Tensor, float, int]] = []
        self._read: dict[str, list[float]] = {}
        self._shown: dict[str, deque[float]] = {}

    def add(self, task: str, loss: Tensor, share: float, step: int) -> None:
        """Add what `_update` returned."""
        self._unread.append((task, loss, share, step))
        if self._reads_at_once:
            self._read_all()

    def note(self, task: str) -> str:
        """Return the mean loss of this worker's examples in the task's last updates that were read, as text."""
        return f", loss {np.mean(self._shown[task]):.3f}" if task in self._shown else ""

    def taken(self) -> dict[str, list[float]]:
        """Return the losses of each task since the last call."""
        self._read_all()
        taken, self._read = self._read, {}
        return taken

    def _read_all(self) -> None:
        for task, loss, share, step in self._unread:
            value = float(loss)
            if not math.isfinite(value):
                raise diverged(f"the loss is {value} in update {step + 1}")
            self._read.setdefault(task, []).append(value)
            self._shown.setdefault(task, deque(maxlen=_SHOWN)).append(value / (share or 1.0))
        self._unread = []


def diverged(what: str) -> IcalibError:
    """Return the error of a training whose numbers aren't finite."""
    return IcalibError(
        f"training diverged: {what}, expected a finite number. "
        "Lower `learning_rate` or `head_learning_rate`, or set precision=fp32."
    )
