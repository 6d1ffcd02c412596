"""One process and plain torch behind the training loop."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from icalib.models.model import Model
from icalib.models.precision import autocast, resolve_precision
from icalib.training.optimizer import make_optimizer
from icalib.training.settings import TrainingSettings


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
