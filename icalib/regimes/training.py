"""The training loop. It talks to an `Engine` and a `Curriculum` and knows neither Ray nor DeepSpeed."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from icalib.core.component import Settings
from icalib.core.errors import IcalibError
from icalib.core.seeding import child_seed
from icalib.data.batching import ordered_batches
from icalib.metrics.tags import metric_tag
from icalib.regimes.model import Model

_POINT_EVERY = 10  # updates between points of the learning curve
_STALLED_FACTOR, _LEAST_GAIN = 0.9, 0.01  # BERT_FP's, as its authors coded them
_STAIR_FACTOR, _STAIR_UPDATES = 0.9, 400  # IART's, as its authors coded them

Precision = Literal["auto", "fp32", "bf16"]


class TrainingSettings(Settings):
    """How a model is trained."""

    epochs: int = Field(default=5, ge=1)
    """Passes over the examples, at most."""
    patience: int = Field(default=2, ge=1)
    """Stop after this many epochs without a better validation figure (`selection_metric`)."""
    selection_metric: Literal["F1", "R@1", "MAP", "NLL"] = "F1"
    """What early stopping and the choice of the best weights look at, on validation only."""
    learning_rate: float = Field(default=5e-5, gt=0)
    """Peak learning rate of the pre-trained backbone; of all, where there is none."""
    head_learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate of what is new on the backbone: heads, layers of the encoder; None takes the backbone's."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay, not on biases and norms."""
    warmup_fraction: float = Field(default=0.1, ge=0, lt=1)
    """Share of the updates over which the learning rate rises."""
    schedule: Literal["linear", "constant", "plateau", "staircase"] = "linear"
    """What the learning rate does then. `linear`: falls to 0. `constant`: stays. `plateau`: stays, but is multiplied by
    0.9 after each epoch whose training loss was not at least 0.01 below that of the epoch before (BERT_FP).
    `staircase`: is multiplied by 0.9 after every 400 updates (IART)."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm; None leaves it."""
    max_grad_value: float | None = Field(default=None, gt=0)
    """Each element of the gradients is clipped to this absolute value, after the norm; None leaves them."""
    batch_size: int = Field(default=16, ge=1)
    """Examples an update, over all workers."""
    max_tokens_per_batch: int = Field(default=8192, ge=512)
    """Padded tokens an update; long examples make smaller batches."""
    gradient_accumulation: int = Field(default=1, ge=1)
    """Parts in which each worker computes its share of an update, to save memory."""
    train_negatives: int | None = Field(default=None, ge=1)
    """Wrong candidates for each right one, drawn anew every epoch; None takes all of the pool."""
    precision: Precision = "auto"
    """fp32, bf16 (autocast; weights and heads stay fp32), or auto: bf16 where the hardware computes in it."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """DeepSpeed's ZeRO stage: what is sharded over the workers (1 optimiser, 2 gradients, 3 weights)."""
    checkpoint_every: int = Field(default=100, ge=1)
    """Updates between checkpoints to resume from."""

    def progress_factor(self, progress: float, stalled_epochs: int = 0, updates: int = 0) -> float:
        """Learning-rate factor after a share `progress` of all updates, so many of them, and so many epochs without a
        better loss."""
        if progress < self.warmup_fraction:
            return progress / self.warmup_fraction
        if self.schedule == "linear":
            return max(0.0, (1.0 - progress) / (1.0 - self.warmup_fraction))
        if self.schedule == "staircase":
            return _STAIR_FACTOR ** (updates // _STAIR_UPDATES)
        return _STALLED_FACTOR**stalled_epochs if self.schedule == "plateau" else 1.0


class EarlyStoppingData(Protocol):
    """Validation figures of the model as it stands."""

    def __call__(self, model: Any, rank: int, world_size: int, /) -> Any:
        """This worker's share of the validation scores; `figures` joins all shares."""
        ...

    def figures(self, shares: Sequence[Any]) -> dict[str, float]:
        """Metrics from all workers' shares; without the selection metric among them the last epoch is the best."""
        ...


class Curriculum(Protocol):
    """What is learnt: batches of each epoch and the loss of some examples."""

    def batches(self, epoch: int) -> Sequence[Sequence[Any]]:
        """All batches of an epoch, the same on every worker and every try."""
        ...

    def losses(self, forward: Callable[..., Any], examples: Sequence[Any], device: torch.device) -> tuple[str, Tensor]:
        """The task's name and the summed loss of some examples of one batch."""
        ...


class Engine(Protocol):
    """What moves the weights: one process of possibly many."""

    rank: int
    world_size: int
    device: torch.device

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward pass."""
        ...

    def backward_and_step(self, loss: Tensor) -> None:
        """Backward; the optimiser steps at every `gradient_accumulation`-th call."""
        ...

    def set_learning_rate(self, factor: float) -> None:
        """Scale every parameter group's peak learning rate."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The workers' values, in rank order, on every worker."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """The whole model's weights on rank 0 (other ranks may get an empty dict)."""
        ...

    def save(self, state: dict[str, Any]) -> None:
        """Save a checkpoint to resume from, with the loop's state."""
        ...

    def load(self) -> dict[str, Any] | None:
        """Resume from the last checkpoint, if there is one; gives the loop's state."""
        ...


@dataclass
class LoopState:
    """Where the loop stands; kept in every checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    best: float = -math.inf
    best_epoch: int = -1
    stopped: bool = False
    log: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    examples: int = 0


class Observer(Protocol):
    """Hears of the loop's progress on rank 0."""

    def progress(self, done: float, total: float, note: str) -> None:
        """So many updates are done."""
        ...

    def best(self, weights: dict[str, Tensor]) -> None:
        """These weights are the best so far."""
        ...

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """An epoch is over; these points of the learning curve are all that validation has given so far."""
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
) -> LoopState:
    """Train until the epochs are over or validation stops improving; `observer.best` has had the weights to keep.

    Every random draw is a function of (seed, update, rank), so that a resumed run goes on as if undisturbed.
    """
    state = LoopState(**(engine.load() or {}))
    started = time.monotonic() - state.seconds
    model.train()
    while state.epoch < settings.epochs and not state.stopped:
        batches = curriculum.batches(state.epoch)
        stalled = stalled_epochs(state.log, state.epoch)
        if state.batch == 0:
            model.start_epoch()
        losses: dict[str, list[float]] = {}
        while state.batch < len(batches):
            progress = (state.epoch + state.batch / len(batches)) / settings.epochs
            engine.set_learning_rate(settings.progress_factor(progress + 1e-3, stalled, state.step))
            task, loss = _update(model, engine, curriculum, settings, batches[state.batch], seed, state.step)
            losses.setdefault(task, []).append(loss)
            state.examples += len(batches[state.batch])
            state.batch += 1
            state.step += 1
            if engine.rank == 0:
                observer.progress(
                    state.epoch * len(batches) + state.batch,
                    settings.epochs * len(batches),
                    f"epoch {state.epoch + 1}/{settings.epochs}, loss {np.mean(losses[task][-20:]):.3f}",
                )
            save = state.step % settings.checkpoint_every == 0 and state.batch < len(batches)
            if save or state.step % _POINT_EVERY == 0:
                factor = settings.progress_factor(progress, stalled, state.step)
                state.log += _curve(engine, losses, settings, state, factor)
                losses = {}
            if save:
                state.seconds = time.monotonic() - started
                engine.save(vars(state))
        if losses:
            factor = settings.progress_factor((state.epoch + 1) / settings.epochs, stalled, state.step)
            state.log += _curve(engine, losses, settings, state, factor)
        _end_epoch(model, engine, settings, state, observer, validation)
        state.seconds = time.monotonic() - started
        if state.step % settings.checkpoint_every == 0:
            engine.save(vars(state))
    return state


def _update(
    model: Model,
    engine: Engine,
    curriculum: Curriculum,
    settings: TrainingSettings,
    batch: Sequence[Any],
    seed: int,
    step: int,
) -> tuple[str, float]:
    """One update. Each worker computes every world-size-th example; the loss is the batch's sum over `batch_size`."""
    parts = engine.world_size * settings.gradient_accumulation
    task, summed = "", 0.0
    for number in range(settings.gradient_accumulation):
        torch.manual_seed(child_seed(seed, "update", step, number, engine.rank))
        part = batch[number * engine.world_size + engine.rank :: parts]
        # A worker without an example still takes part in the collective operations, with weight 0.
        model.start_part(counted=bool(part))
        task, loss = curriculum.losses(engine.forward, part or batch[:1], engine.device)
        loss = loss if part else loss * 0.0
        # The engine averages over workers and parts, so the mean over the batch is the sum times their number.
        engine.backward_and_step(loss * (parts / settings.batch_size))
        summed += float(loss.detach())
    if not math.isfinite(summed):
        raise _diverged(f"the loss is {summed} in update {step + 1}")
    return task, summed * engine.world_size / len(batch)


def _diverged(what: str) -> IcalibError:
    return IcalibError(
        f"training diverged: {what}. Lower `learning_rate` or `head_learning_rate`, or set precision=fp32."
    )


def _curve(
    engine: Engine, losses: dict[str, list[float]], settings: TrainingSettings, state: LoopState, factor: float
) -> list[dict[str, Any]]:
    shares = engine.gather({task: (sum(values), len(values)) for task, values in losses.items()})
    points = {
        f"loss/{task}": sum(share[task][0] for share in shares) / sum(share[task][1] for share in shares)
        for task in losses
    }
    points["opt/lr"] = settings.learning_rate * factor
    return [_point(state, "train", tag, value) for tag, value in points.items()]


def stalled_epochs(log: Sequence[dict[str, Any]], epoch: int) -> int:
    """How many of the epochs before `epoch` had a training loss not at least 0.01 below that of the one before."""
    losses: dict[int, list[float]] = {}
    for point in log:
        if point["tag"].startswith("loss/") and point["split"] == "train" and point["epoch"] < epoch:
            losses.setdefault(point["epoch"], []).append(point["value"])
    means = [float(np.mean(values)) for values in losses.values()]
    return sum(after > before - _LEAST_GAIN for before, after in pairwise(means))


def validation_points(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a learning curve has of validation."""
    return [point for point in log if point["split"] == "validation"]


def _point(state: LoopState, split: str, tag: str, value: float) -> dict[str, Any]:
    return {"split": split, "step": state.step, "epoch": state.epoch, "tag": tag, "value": value}


def _end_epoch(
    model: Model,
    engine: Engine,
    settings: TrainingSettings,
    state: LoopState,
    observer: Observer,
    validation: EarlyStoppingData | None,
) -> None:
    state.epoch += 1
    state.batch = 0
    figure = float(state.epoch)  # where validation doesn't choose, the last epoch is the best
    if validation is not None:
        model.eval()
        if settings.zero_stage == 3:  # a forward pass gathers weights, so all workers must make the same ones
            figures = validation.figures([validation(model, 0, 1)])
        else:
            figures = validation.figures(engine.gather(validation(model, engine.rank, engine.world_size)))
        model.train()
        state.log += [_point(state, "validation", tag, value) for tag, value in figures.items()]
        tag = metric_tag(settings.selection_metric)
        if tag in figures:
            figure = -figures[tag] if settings.selection_metric == "NLL" else figures[tag]
    if math.isnan(figure):
        raise _diverged(f"validation is not a number after epoch {state.epoch}")
    if figure > state.best:
        state.best, state.best_epoch = figure, state.epoch
        weights = engine.state_dict()
        if engine.rank == 0:
            observer.best(weights)
    if engine.rank == 0 and validation is not None:
        observer.validated(validation_points(state.log))
    state.stopped = state.epoch - state.best_epoch >= settings.patience


class LocalEngine:
    """One process and plain torch: what the tests and the overhead benchmark compare with."""

    rank = 0
    world_size = 1

    def __init__(self, model: Model, settings: TrainingSettings, device: str = "cpu") -> None:
        self.model = model.to(device)
        self.device = torch.device(device)
        self._settings = settings
        self._optimizer = make_optimizer(model, settings)
        self._calls = 0
        self.saved: dict[str, Any] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward pass, in the chosen precision."""
        with autocast(self.device, resolve_precision(self._settings.precision, self.device)):
            return self.model(*args, **kwargs)

    def backward_and_step(self, loss: Tensor) -> None:
        """Backward, and a clipped step when the parts of an update are complete."""
        (loss / self._settings.gradient_accumulation).backward()
        self._calls += 1
        if self._calls % self._settings.gradient_accumulation == 0:
            if self._settings.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.max_grad_norm)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def set_learning_rate(self, factor: float) -> None:
        """Scale the peak learning rates."""
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor

    def gather(self, value: Any) -> list[Any]:
        """The one worker's value."""
        return [value]

    def state_dict(self) -> dict[str, Tensor]:
        """The weights."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def save(self, state: dict[str, Any]) -> None:
        """Keep a checkpoint in memory."""
        self.saved = copy.deepcopy(
            {"state": state, "model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}
        )

    def load(self) -> dict[str, Any] | None:
        """The checkpoint in memory, if there is one."""
        if self.saved is None:
            return None
        saved = copy.deepcopy(self.saved)  # what is loaded changes in place from here on
        self.model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])
        return saved["state"]


def make_optimizer(model: Model, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW, which clips each element of the gradients first where the settings say so."""
    optimizer = torch.optim.AdamW(parameter_groups(model, settings), fused=True)
    limit = settings.max_grad_value
    if limit is not None:
        # Element by element it doesn't matter how ZeRO has flattened and sharded the gradients.
        optimizer.register_step_pre_hook(lambda taken, *_: _clip_values(taken.param_groups, limit))
    return optimizer


def _clip_values(groups: Sequence[dict[str, Any]], limit: float) -> None:
    torch.nn.utils.clip_grad_value_([parameter for group in groups for parameter in group["params"]], limit)


def parameter_groups(model: Model, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The backbone and what is new on it, each with and without weight decay; `peak_lr` is the schedule's peak."""
    head_rate = settings.head_learning_rate or settings.learning_rate
    groups: dict[tuple[float, float], list[Tensor]] = {}
    learnt = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in learnt:
        rate = settings.learning_rate if name.startswith("encoder.backbone.") else head_rate
        decay = settings.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "peak_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


_MAX_TOKENS_ON_CPU = 2048  # the states of more no longer fit its caches: a third slower, with more memory


def forward_batches(lengths: Sequence[int], max_tokens: int, device: torch.device) -> list[npt.NDArray[np.int64]]:
    """Places of the inputs of each batch of a pass without gradients; empty without inputs."""
    most = max_tokens if device.type != "cpu" else min(max_tokens, _MAX_TOKENS_ON_CPU)
    return ordered_batches(lengths, 256, most) if lengths else []


def resolve_precision(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """What `auto` means on a device: bf16 where it has instructions for it."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.backends.cpu.get_cpu_capability() == "AVX512" and cpu_computes_bf16() else "fp32"


def cpu_computes_bf16() -> bool:
    """Whether this CPU multiplies in bfloat16."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]


def autocast(device: torch.device, precision: Literal["fp32", "bf16"]) -> torch.autocast:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
