"""Settings of training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from icalib.core.component import FINITE, Settings
from icalib.core.job import NOT_IN_DIGEST
from icalib.models.precision import Precision

_STALLED_FACTOR = 0.9  # as in the code of BERT_FP's authors


_STAIR_FACTOR, _STAIR_UPDATES = 0.9, 400  # as in the code of IART's authors


class TrainingSettings(Settings):
    """Settings of the training loop and the optimiser."""

    model_config = FINITE

    epochs: int = Field(default=5, ge=0)
    """Maximum number of passes over the examples; with 0, the initial weights are the result."""
    patience: int = Field(default=2, ge=1)
    """Stop after this many epochs without an improvement of the validation metric (`selection_metric`)."""
    selection_metric: Literal["F1", "R@1", "MAP", "NLL"] = "F1"
    """Validation metric used for early stopping and for choosing the best weights. It is that of what predicts: with MC
    dropout, of the mean of two passes, and with intents, of the view that the gain chooses; at most 300 validation
    pools are then drawn, by the seed."""
    learning_rate: float = Field(default=5e-5, gt=0)
    """Peak learning rate of the pre-trained backbone; of all weights in a model without a backbone."""
    head_learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate of newly initialised layers (heads, layers of the encoder); None uses the backbone's."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay; not applied to biases and norms."""
    warmup_fraction: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the updates over which the learning rate rises linearly."""
    schedule: Literal["linear", "constant", "plateau", "staircase"] = "linear"
    """Learning rate after the warm-up. `linear`: decays to 0. `constant`: stays at its peak. `plateau`: is multiplied
    by 0.9 after each epoch whose training loss was not at least 0.01 below that of the previous epoch (BERT_FP).
    `staircase`: is multiplied by 0.9 after every 400 updates (IART)."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Maximum norm of the gradients; larger ones are clipped. None disables clipping by norm."""
    max_grad_value: float | None = Field(default=None, gt=0)
    """Maximum absolute value of each element of the gradients, applied after the norm; None disables clipping by
    value."""
    batch_size: int = Field(default=16, ge=1)
    """Maximum number of examples per update, over all workers."""
    max_tokens_per_batch: int = Field(default=8192, ge=512)
    """Maximum number of padded tokens per update; long examples give smaller batches."""
    gradient_accumulation: int = Field(default=1, ge=1)
    """Number of parts into which each worker splits its examples of an update, to save memory."""
    gradient_checkpointing: Annotated[bool, NOT_IN_DIGEST] = False
    """Compute each layer of the backbone again in the backward pass instead of keeping its states: far less memory for
    long contexts, a third more time, the same result. Not for MPNet, ALBERT and `encoder.spectral_norm`."""
    train_negatives: int | None = Field(default=None, ge=1)
    """Number of wrong candidates per right one, drawn again each epoch; None uses all candidates of the pool."""
    precision: Precision = "auto"
    """`fp32`, `bf16` (autocast; weights and heads stay in fp32), or `auto`: bf16 if the hardware supports it."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """DeepSpeed's ZeRO stage: what is sharded over the workers (1: optimiser state, 2: also gradients, 3: also
    weights)."""
    checkpoint_every: Annotated[int | None, NOT_IN_DIGEST] = Field(default=None, ge=1)
    """Number of updates between checkpoints to resume from; None writes one a minute. No effect on the result."""

    def progress_factor(self, progress: float, stalled_epochs: int = 0, updates: int = 0) -> float:
        """Return the factor of the learning rate; `stalled_epochs` had no better training loss (for `plateau`)."""
        if progress < self.warmup_fraction:
            return progress / self.warmup_fraction
        if self.schedule == "linear":
            return max(0.0, (1.0 - progress) / (1.0 - self.warmup_fraction))
        if self.schedule == "staircase":
            return _STAIR_FACTOR ** (updates // _STAIR_UPDATES)
        return _STALLED_FACTOR**stalled_epochs if self.schedule == "plateau" else 1.0


def _trains(settings: TrainingSettings) -> TrainingSettings:
    if not settings.epochs:
        raise ValueError("found `epochs` 0. Expected: 1 or more, as the initial weights are of no use here")
    return settings


EpochsRequired = Annotated[TrainingSettings, AfterValidator(_trains)]
"""Settings of a training that has at least one epoch."""


def measured_by(*metrics: str) -> AfterValidator:
    """Return a validator of settings whose training measures only these metrics on validation."""

    def check(settings: TrainingSettings) -> TrainingSettings:
        if settings.selection_metric not in metrics:
            raise ValueError(f"found `selection_metric` {settings.selection_metric}. Expected: {' or '.join(metrics)}")
        return settings

    return AfterValidator(check)
