"""Loading a sharded ZeRO checkpoint into another number of workers than saved it.

DeepSpeed saves what each worker holds: a part of the flattened fp32 weights and of Adam's moments. With another number
of workers the parts have other bounds, so the parts of all workers are put together to whole tensors, by parameter
name, and each worker takes its own part of them.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

Shapes = Sequence[Mapping[str, torch.Size]]
"""Names and shapes of the parameters in each parameter group, in the order in which they are flattened."""


@dataclass(frozen=True)
class WholeState:
    """A checkpoint without shards.

    Attributes:
        weights: fp32 weights, frozen ones and buffers included, by name.
        moments: by the optimiser's name of a moment, e.g. `exp_avg`, the tensor of each trained parameter.
        step: the number of updates that Adam has counted, as a tensor without dimensions.
    """

    weights: Mapping[str, Tensor]
    moments: Mapping[str, Mapping[str, Tensor]]
    step: Tensor


def read_whole(folder: Path, tag: str) -> WholeState:
    """Read the checkpoint that the workers of a ZeRO stage from 1 to 3 have saved to `folder`/`tag`."""
    from deepspeed.utils.zero_to_fp32 import (
        get_fp32_state_dict_from_zero_checkpoint,
        get_model_state_files,
        get_optim_files,
    )

    saved = str(folder / tag)
    model = _load(get_model_state_files(saved)[0])
    optimizers = [_load(path)["optimizer_state_dict"] for path in get_optim_files(saved)]
    is_stage_3 = int(optimizers[0]["zero_stage"]) == 3
    weights: Mapping[str, Tensor] = model["module"]  # whole, but for stage 3
    if is_stage_3:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # progress bars
            weights = cast("dict[str, Tensor]", get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=tag))
    shapes: Shapes = model["param_shapes"]
    # By worker and flat tensor: the state of torch's AdamW.
    states = [
        list(one["optimizer_state_dict" if is_stage_3 else "base_optimizer_state"]["state"].values())
        for one in optimizers
    ]
    names = [name for name, value in states[0][0].items() if value.dim() > 0]
    paddings = optimizers[0].get("param_alignment_paddings")
    moments = {
        name: _by_parameter(shapes, [[flat[name] for flat in state] for state in states])
        if is_stage_3
        else _by_offset(shapes, [[flat[name] for flat in state] for state in states], paddings)
        for name in names
    }
    return WholeState(weights, moments, states[0][0]["step"])


def _load(path: str) -> dict[str, Any]:
    return torch.load(path, map_location="cpu", weights_only=False)  # DeepSpeed's files have objects of its own


def _by_offset(
    shapes: Shapes, parts: Sequence[Sequence[Tensor]], paddings: Sequence[Sequence[int]] | None
) -> dict[str, Tensor]:
    """Return whole tensors by name from the flat tensors of stages 1 and 2: each worker has a slice of each group."""
    found: dict[str, Tensor] = {}
    for group, named in enumerate(shapes):
        flat = torch.cat([part[group] for part in parts])
        offset = 0
        for index, (name, shape) in enumerate(named.items()):
            found[name] = flat[offset : offset + shape.numel()].view(shape)
            offset += shape.numel() + (paddings[group][index] if paddings else 0)
    return found


def _by_parameter(shapes: Shapes, parts: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
    """Return whole tensors by name from the flat tensors of stage 3: each worker has a slice of each parameter."""
    flats = [torch.cat(list(part)) for part in parts]
    found: dict[str, Tensor] = {}
    offset = 0
    for name, shape in ((name, shape) for named in shapes for name, shape in named.items()):
        length = -(-shape.numel() // len(flats))
        slices = torch.cat([flat[offset : offset + length] for flat in flats])
        found[name] = slices[: shape.numel()].view(shape)
        offset += length
    return found


def restore(engine: Any, state: WholeState) -> None:
    """Set weights and moments of an engine that hasn't made an update yet; all workers call this.

    Args:
        engine: DeepSpeed's engine, of any ZeRO stage from 1 to 3 and any number of workers.
        state: what to set.
    """
    import deepspeed

    module, optimizer = engine.module, engine.optimizer
    is_stage_3 = hasattr(optimizer, "fp32_partitioned_groups_flat")
    weights = list(module.parameters()) if is_stage_3 else []
    with deepspeed.zero.GatheredParameters(weights, modifier_rank=0):
        module.load_state_dict(state.weights)
    optimizer.refresh_fp32_params()
    flats = optimizer.fp32_partitioned_groups_flat if is_stage_3 else optimizer.single_partition_of_fp32_groups
    for flat in flats:
        moments = {name: torch.zeros_like(flat) for name in state.moments}
        optimizer.optimizer.state[flat] = {"step": state.step.to(flat.device, copy=True), **moments}
    for name, parameter in module.named_parameters():
        for moment, wholes in state.moments.items() if parameter.requires_grad else ():
            if is_stage_3:
                _set_slice(parameter, wholes[name], moment)
            elif parameter._hp_mapping is not None:  # this worker has a part of it
                _set_fragment(parameter._hp_mapping, wholes[name], moment, flats, optimizer.optimizer.state)


def _set_slice(parameter: Any, whole: Tensor, moment: str) -> None:
    """Set this worker's slice of a parameter's moment in stage 3."""
    from deepspeed.utils import safe_set_local_optimizer_state

    length, rank = parameter.ds_tensor.ds_numel, torch.distributed.get_rank()
    padded = torch.zeros(length * torch.distributed.get_world_size())
    padded[: whole.numel()] = whole.flatten()
    own = padded[rank * length : (rank + 1) * length].to(parameter.device)
    safe_set_local_optimizer_state(parameter, own, moment)


def _set_fragment(mapping: Any, whole: Tensor, moment: str, flats: Sequence[Tensor], states: Any) -> None:
    """Set the part of a parameter's moment that this worker has in stages 1 and 2."""
    own, part = mapping.hp_fragment_address, mapping.lp_fragment_address
    fragment = states[flats[mapping.param_group_index]][moment].narrow(0, own.start, own.numel)
    fragment.copy_(whole.flatten().narrow(0, part.start, part.numel))
