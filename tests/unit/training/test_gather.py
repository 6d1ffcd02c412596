"""Workers gather values without running code that one of them sends."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import torch
from helpers.gathering import RunsCode, work
from torch import multiprocessing

from icalib.training.gather import from_bytes, to_bytes


def test_two_workers_gather_their_values_and_run_no_code_of_each_other(tmp_path: Path) -> None:
    multiprocessing.spawn(work, (tmp_path,), nprocs=2)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(RunsCode(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


def test_a_tensor_arrives_on_the_cpu_whatever_device_it_was_sent_from() -> None:
    stored = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(to_bytes(torch.zeros(2)))) as sent, zipfile.ZipFile(stored, "w") as changed:
        for name in sent.namelist():
            data = sent.read(name).replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:9")
            changed.writestr(name, data)
    assert b"cuda:9" in stored.getvalue()
    assert from_bytes(stored.getvalue()).device.type == "cpu"
