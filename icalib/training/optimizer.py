"""AdamW with the parameter groups of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icalib.models.model import Model
from icalib.training.settings import TrainingSettings


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
