"""Settings of training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from icalib.core.component import Settings
from icalib.core.job import NOT_IN_DIGEST
from icalib.models.precision import Precision

_STALLED_FACTOR = 0.9  # BERT_FP's, as its authors coded it


_STAIR_FACTOR, _STAIR_UPDATES = 0.9, 400  # IART's, as its authors coded them


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
    checkpoint_every: Annotated[int, NOT_IN_DIGEST] = Field(default=100, ge=1)
    """Updates between checkpoints to resume from; it has no effect on the result."""

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
