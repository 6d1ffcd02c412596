"""The training loop's `Engine`, implemented with DeepSpeed."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from icalib.core.errors import DamagedFileError, SettingError
from icalib.core.files import atomic_write, read_json
from icalib.distributed.checkpoints import STATE, Checkpoints
from icalib.models.model import Model
from icalib.models.precision import autocast
from icalib.training.gather import gather
from icalib.training.local_engine import make_optimizer, save_state
from icalib.training.settings import TrainingSettings

_TAG = "ds"
_FRESH = "Use --fresh to train from scratch."


def load_deepspeed() -> Any:
    """Import DeepSpeed without compiling operators and without its start-up output."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    with contextlib.redirect_stdout(io.StringIO()):
        import deepspeed
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # Only all-reduce at inference uses this operator, and building it takes a minute on every new machine.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _load_weights_only(path: str, map_location: Any = None) -> Any:
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    with torch.serialization.safe_globals([LossScaler, ZeroStageEnum, fragment_address]):  # ZeRO's states have them
        try:
            return torch.load(path, map_location=map_location, weights_only=True)
        except UnpicklingError as error:
            raise DamagedFileError(
                Path(path), "holds more than tensors and settings, which icalib doesn't load", _FRESH
            ) from error
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, LookupError, EOFError) as error:  # torch says so of a file that is cut off
            raise DamagedFileError(
                Path(path), f"can't be read ({' '.join(str(error).split()):.200})", _FRESH
            ) from error


class DeepSpeedEngine:
    """The engine of one worker, whose process group torch has initialised.

    Autocast applies bfloat16; weights are fp32, so that heads and optimiser keep their precision in every ZeRO stage.
    """

    def __init__(
        self, model: Model, settings: TrainingSettings, device: torch.device, checkpoints: Checkpoints
    ) -> None:
        self._deepspeed = load_deepspeed()
        self.rank, self.world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.device = device
        self._settings, self._checkpoints = settings, checkpoints
        # Around the model itself: DeepSpeed ends an autocast that was begun outside of its own forward pass.
        model.forward = autocast(device, settings.precision)(model.forward)
        if device.type == "cuda":  # DeepSpeed takes the GPU of this number; above ten, Ray's ranks are in another order
            os.environ["LOCAL_RANK"] = str(device.index or 0)
        optimizer = make_optimizer(model, settings)
        self._peaks = [group["peak_lr"] for group in optimizer.param_groups]
        if settings.zero_stage == 3:
            model.whole = self._whole
            for weight in model.weights_read_elsewhere:
                self._deepspeed.zero.register_external_parameter(model, weight)
        self._engine, *_ = self._deepspeed.initialize(
            model=model.to(device),
            optimizer=optimizer,
            config={
                "train_micro_batch_size_per_gpu": 1,  # DeepSpeed only checks its product with the accumulation steps
                "gradient_accumulation_steps": settings.gradient_accumulation,
                "gradient_clipping": settings.max_grad_norm or 0.0,
                "zero_optimization": {"stage": settings.zero_stage},
                "zero_allow_untested_optimizer": True,
                "steps_per_print": 10**9,
                "timers": {"throughput": {"enabled": False}},  # it waits for the GPU in every update
            },
        )
        if self.world_size == 1 and settings.zero_stage == 0:
            # There is nothing to reduce, but DeepSpeed would copy all gradients into flat buckets and back.
            self._engine.enable_backward_allreduce = False
        self._engine.checkpoint_engine.load = _load_weights_only  # DeepSpeed's own unpickles whatever a file holds
        self._engine.checkpoint_engine.save = save_state

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model's forward pass in the chosen precision."""
        return self._engine(*args, **kwargs)

    def backward_and_step(self, loss: Tensor) -> None:
        """Run the backward pass; DeepSpeed updates the weights once all micro-batches of an update are accumulated."""
        self._engine.backward(loss)
        self._engine.step()

    def set_learning_rate(self, factor: float) -> None:
        """Set the learning rates to `factor` times their peak."""
        for group, peak in zip(self._engine.optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * factor

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all workers, in rank order."""
        return gather(value, self.device) if self.world_size > 1 else [value]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the whole model's fp32 weights on rank 0, and an empty dict on other ranks."""
        module = self._engine.module
        if self._settings.zero_stage < 3:
            return module.state_dict() if self.rank == 0 else {}
        with self._whole(module.parameters()):
            return {name: t.detach().cpu().clone() for name, t in module.state_dict().items()} if self.rank == 0 else {}

    def _whole(self, weights: Iterable[Tensor]) -> AbstractContextManager[Any]:
        return self._deepspeed.zero.GatheredParameters(list(weights), modifier_rank=None)

    def save(self, state: dict[str, Any]) -> None:
        """Save a checkpoint; every worker writes its part."""

        def write(folder: Path) -> None:
            self._engine.save_checkpoint(str(folder), tag=_TAG)
            if self.rank == 0:
                facts = {"world_size": self.world_size, "zero_stage": self._settings.zero_stage, "state": state}
                with atomic_write(folder / STATE) as temporary:
                    temporary.write_text(json.dumps(facts))

        self._checkpoints.save(write, state["step"])

    def load(self) -> dict[str, Any] | None:
        """Resume from the training's last checkpoint; without ZeRO any number of workers may have saved it."""
        with self._checkpoints.last() as folder:
            if folder is None:
                return None
            facts = read_json(folder / STATE)
            self._check_shards(facts["zero_stage"], facts["world_size"])
            if self._engine.load_checkpoint(str(folder))[0] is None:
                raise SettingError(f"DeepSpeed can't read the checkpoint in {folder}. {_FRESH}")
        return facts["state"]

    def _check_shards(self, stage: int, num_workers: int) -> None:
        # DeepSpeed refuses shards of another number of workers, and in one case silently loads wrong weights.
        own = self._settings.zero_stage
        if stage != own or (own > 0 and num_workers != self.world_size):
            raise SettingError(
                f"the unfinished training was checkpointed by {num_workers} workers with ZeRO stage {stage}; this run "
                f"has {self.world_size} with stage {own}. Use --workers {num_workers} and stage {stage} to resume, or "
                "--fresh to train from scratch."
            )

    def close(self) -> None:
        """Remove ZeRO's hooks and buckets, by which weights would stay in memory; of ZeRO 3 some still do."""
        self._engine.destroy()
