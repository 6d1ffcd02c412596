"""Checkpoints of one number of workers, resumed by another, in each ZeRO stage that shards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed.resharding_worker import SETTINGS, STAGES, UPDATES, Net, batch, loss_of

from icalib.training.local_engine import LocalEngine

pytestmark = pytest.mark.nightly

WORKERS = (2, 1, 2, 3)


def train_on(world_size: int, folder: Path, load: Path | None, first: int) -> None:
    """Let each worker resume, make its updates and save, in processes of their own."""
    folder.mkdir()
    file = folder / "settings.json"
    file.write_text(json.dumps({"load": str(load or ""), "save": str(folder), "first": first}))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "WORLD_SIZE": str(world_size),
        "DS_ACCELERATOR": "cpu",
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.resharding_worker", str(rank), str(world_size), str(file)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world_size)
    ]
    try:
        assert [worker.wait(550) for worker in workers] == [0] * world_size
    finally:
        for worker in workers:
            worker.kill()


def plain_weights(num_updates: int) -> dict[str, torch.Tensor]:
    """Weights after some updates by plain torch, each on the whole batch."""
    net = Net()
    engine = LocalEngine(net, SETTINGS)  # type: ignore[arg-type]
    for update in range(num_updates):
        engine.set_learning_rate(1.0)
        engine.backward_and_step(loss_of(engine.forward(batch(update))))
    return engine.state_dict()


def test_other_numbers_of_workers_resume_with_equal_weights_and_moments(tmp_path: Path) -> None:
    before: Path | None = None
    for number, world_size in enumerate(WORKERS):
        folder = tmp_path / f"{number}"
        train_on(world_size, folder, before, number * UPDATES)
        plain = plain_weights((number + 1) * UPDATES)
        for stage in STAGES:
            loaded, trained = torch.load(folder / f"weights-{stage}.pt")
            if before is not None:
                saved = torch.load(before / f"weights-{stage}.pt")[1]
                assert all(torch.equal(loaded[name], saved[name]) for name in saved), (world_size, stage)
            for name, tensor in trained.items():  # without the moments, Adam's first step moves each by its rate
                torch.testing.assert_close(tensor, plain[name], rtol=1e-4, atol=2e-5)
        before = folder
