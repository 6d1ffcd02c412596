"""One worker of a DeepSpeed training without Ray: resume from a checkpoint, make some updates, and save another.

    python -m distributed.resharding_worker RANK WORLD_SIZE SETTINGS

SETTINGS is a JSON file with `load` and `save` (folders; no `load` for a start from scratch) and `first`, the number
of the first update. Rank 0 writes the weights after loading and after the updates to `save`/weights-STAGE.pt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from icalib.distributed.engine import DeepSpeedEngine
from icalib.training.settings import TrainingSettings

STAGES = (1, 2, 3)
UPDATES = 3
BATCH = 12
SETTINGS = TrainingSettings(learning_rate=1e-3, head_learning_rate=3e-3, weight_decay=0.1, precision="fp32")


class Net(nn.Module):
    """One weight is large enough for stage 3 to shard it in the forward pass, too; odd sizes need padding."""

    weights_read_elsewhere = ()

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.wide, self.last = nn.Linear(7, 320), nn.Linear(320, 331), nn.Linear(331, 1)
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.last(torch.tanh(self.wide(torch.tanh(self.first(inputs))))) * self.frozen.sum()


class Folders:
    """Checkpoints that are read from one folder and written to another."""

    def __init__(self, load: Path | None, save: Path) -> None:
        self._load, self._save = load, save

    def save(self, write: Callable[[Path], None], step: int) -> None:
        self._save.mkdir(exist_ok=True)
        write(self._save)

    @contextmanager
    def last(self) -> Generator[Path | None, None, None]:
        yield self._load


def batch(update: int) -> torch.Tensor:
    return torch.randn(BATCH, 7, generator=torch.Generator().manual_seed(update))


def loss_of(outputs: torch.Tensor) -> torch.Tensor:
    return (outputs - 1).square().mean()


def main(rank: int, world_size: int, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    save = Path(settings["save"])
    torch.distributed.init_process_group("gloo", f"file://{save}/rendezvous", rank=rank, world_size=world_size)
    for stage in STAGES:
        name = f"stage-{stage}"
        engine = DeepSpeedEngine(
            Net(),  # type: ignore[arg-type]
            SETTINGS.model_copy(update={"zero_stage": stage}),
            torch.device("cpu"),
            Folders(Path(settings["load"]) / name if settings["load"] else None, save / name),
        )
        state = engine.load()
        assert (state or {"step": 0})["step"] == settings["first"]
        weights = [{name: tensor.clone() for name, tensor in engine.state_dict().items()}]
        for update in range(settings["first"], settings["first"] + UPDATES):
            engine.set_learning_rate(1.0)
            engine.backward_and_step(loss_of(engine.forward(batch(update)[rank::world_size])))
        engine.save({"step": settings["first"] + UPDATES})
        weights.append(engine.state_dict())
        if rank == 0:
            torch.save(weights, save / f"weights-{stage}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
