"""An engine for one process with plain torch, and the optimiser of any engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from torch import Tensor

from icalib.core.errors import DamagedFileError
from icalib.core.files import atomic_write
from icalib.models.model import Model
from icalib.models.precision import autocast
from icalib.training.settings import TrainingSettings

_CHECKPOINT = "checkpoint.pt"

T = TypeVar("T")


def save_state(state_dict: Any, path: str | Path) -> None:
    """Write what torch can load, through Python, whose errors say what the disk refused."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        torch.save(state_dict, file)


class LocalEngine:
    """Trains in one process with plain torch; `zero_stage` has no effect.

    `device` None is the CPU; `folder` is where the checkpoint to resume from is stored, None disables checkpoints.
    """

    rank = 0
    world_size = 1

    def __init__(
        self, model: Model, settings: TrainingSettings, device: torch.device | None = None, folder: Path | None = None
    ) -> None:
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self._settings, self._folder = settings, folder
        self._optimizer = make_optimizer(model, settings)
        self._parameters = list(model.parameters())  # walking through the modules takes milliseconds
        self._calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward pass in the precision of the settings."""
        with autocast(self.device, self._settings.precision):
            return self.model(*args, **kwargs)

    def backward_and_step(self, loss: Tensor) -> None:
        """Run the backward pass; step with clipped gradients at every `gradient_accumulation`-th call."""
        (loss / self._settings.gradient_accumulation).backward()
        self._calls += 1
        if self._calls % self._settings.gradient_accumulation == 0:
            if self._settings.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_grad_norm)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def set_learning_rate(self, factor: float) -> None:
        """Scale the peak learning rates."""
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor

    def gather(self, value: T) -> list[T]:
        """Return a list of this value, since there is one worker."""
        return [value]

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the weights; those that share memory still do, e.g. the tied weights of language models."""
        return deepcopy(self.model.state_dict())

    def save(self, state: dict[str, Any]) -> None:
        """Save weights, optimiser state and the loop's state."""
        if self._folder is None:
            return
        kept = {
            "model": self.model.state_dict(), "optimizer": self._optimizer.state_dict(), "loop": json.dumps(state)
        }  # fmt: skip
        save_state(kept, self._folder / _CHECKPOINT)

    def load(self) -> dict[str, Any] | None:
        """Load the last checkpoint, if one exists, and return the loop's state."""
        path = self._folder / _CHECKPOINT if self._folder is not None else None
        if path is None or not path.is_file():
            return None
        try:
            kept = torch.load(path, map_location=self.device, weights_only=True)
        except torch.OutOfMemoryError:  # a RuntimeError, of which the file isn't the cause
            raise
        except (OSError, RuntimeError, ValueError, LookupError, EOFError, UnpicklingError) as error:
            reason = " ".join(str(error).split())
            cure = "Remove it and run the same command again: this training then starts from its beginning."
            raise DamagedFileError(path, f"can't be read ({reason:.200})", cure) from error
        self.model.load_state_dict(kept["model"])
        self._optimizer.load_state_dict(kept["optimizer"])
        return json.loads(kept["loop"])


def make_optimizer(model: Model, settings: TrainingSettings) -> torch.optim.AdamW:
    """Return AdamW, with clipping of gradient elements before each step if `max_grad_value` is set."""
    optimizer = torch.optim.AdamW(parameter_groups(model, settings), fused=True)
    limit = settings.max_grad_value
    if limit is not None:
        # Clipping is element-wise, so it is correct on gradients that ZeRO has flattened and sharded.
        optimizer.register_step_pre_hook(lambda stepped, *_: _clip_values(stepped.param_groups, limit))
    return optimizer


def _clip_values(groups: Sequence[dict[str, Any]], limit: float) -> None:
    torch.nn.utils.clip_grad_value_([parameter for group in groups for parameter in group["params"]], limit)


def parameter_groups(model: Model, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Return groups for the backbone and for new layers, each with and without weight decay, and their `peak_lr`."""
    head_rate = settings.head_learning_rate or settings.learning_rate
    groups: dict[tuple[float, float], list[Tensor]] = {}
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in trainable:
        rate = settings.learning_rate if name.startswith("encoder.backbone.") else head_rate
        decay = settings.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "peak_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
