"""Measured time per input on this machine, and the estimated time of counted work."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from icalib.core.component import Settings
from icalib.data.encoding import TokenStore
from icalib.encoders.forward_batches import forward_batches
from icalib.models.pool_inputs import PoolInputs
from icalib.models.precision import Precision, autocast, resolve_precision
from icalib.models.ranker import Ranker, make_batch
from icalib.pipeline.counting import Lengths, Work
from icalib.training.answers import TrainJob
from icalib.training.local_engine import LocalEngine

_QUANTILES = (0.1, 0.5, 0.95)  # of the inputs' lengths
_REPEATS = 2  # after a warm-up
_EFFICIENCY = 0.9  # of several workers, relative to one worker
_SPREAD = (0.7, 1.3)  # of the time, relative to the estimate, because of other jobs, clock rates and padding


class Rates(Settings):
    """Measured seconds per input at some lengths, interpolated for other lengths.

    `trained` is the time of forward and backward pass and optimiser step, with the worker's threads. `passed` and
    `dropped` are the times of forward passes without and with dropout, on one GPU or one CPU core.
    """

    training_lengths: tuple[float, ...]
    trained: tuple[float, ...]
    scoring_lengths: tuple[float, ...]
    passed: tuple[float, ...]
    dropped: tuple[float, ...]
    memory: int
    """Peak memory of a training worker in bytes: that of its GPU, or of the process; 0 if it isn't measured."""


@dataclass(frozen=True)
class Machines:
    """Machines that do the work.

    Args:
        num_workers: number of training workers.
        threads: number of threads per training worker.
        num_scorers: number of scoring tasks that run at a time.
        training_start, scoring_start: start-up seconds of a stage, for processes, imports and models.
    """

    num_workers: int
    threads: int
    num_scorers: int
    training_start: float
    scoring_start: float


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of a stage, with lower and upper bounds."""

    name: str
    num_inputs: float
    updates: float
    seconds: float
    low: float
    high: float


def estimated(work: Work, rates: Rates, machines: Machines, spread: tuple[float, float] = _SPREAD) -> Estimate:
    """Estimate the time of a stage; 0 for stages that aren't counted.

    Args:
        spread: minimum and maximum time of a fixed amount of work, relative to the estimate.
    """
    if work.kind == "training":
        start = machines.training_start
        trained = _total(work.trained, rates.training_lengths, rates.trained)
        checked = _total(work.passed, rates.scoring_lengths, rates.passed)
        checked += _total(work.dropped, rates.scoring_lengths, rates.dropped)
        busy = (trained + checked / machines.threads) / _effective(machines.num_workers)
    else:
        start = machines.scoring_start if work.kind == "scoring" else 0.0
        passed = _total(work.passed, rates.scoring_lengths, rates.passed)
        dropped = _total(work.dropped, rates.scoring_lengths, rates.dropped)
        busy = (passed + dropped) / _effective(machines.num_scorers)
    return Estimate(
        name=work.name,
        num_inputs=work.num_inputs,
        updates=work.updates,
        seconds=start + busy,
        low=spread[0] * (start + work.low * busy),
        high=spread[1] * (start + work.high * busy),
    )


def _effective(number: int) -> float:
    return 1.0 if number == 1 else _EFFICIENCY * number


def _total(lengths: Lengths, measured: Sequence[float], seconds: Sequence[float]) -> float:
    if not lengths:
        return 0.0
    found = np.array(list(lengths))
    each = np.interp(found, measured, seconds) * np.maximum(found / measured[-1], 1.0)
    return float(each @ np.array(list(lengths.values())))


def measure_rates(
    job: TrainJob,
    *,
    precision: Precision,
    max_tokens: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Rates:
    """Measure training and scoring of short and long pools of a job.

    Args:
        job: the training job, whose model and pools are used.
        precision: precision of scoring.
        max_tokens: maximum number of padded tokens of a scoring batch.
        device: device of the model.
        clock: returns seconds since any fixed time.
    """
    training = job.prepare(device)
    ranker = training.model
    assert isinstance(ranker, Ranker)
    engine = LocalEngine(ranker, job.training, device)
    ranker.train()

    def update(batch: Sequence[object]) -> None:
        _, loss = training.curriculum.losses(engine.forward, batch, device)
        engine.backward_and_step(loss / len(batch))

    batches = training.curriculum.batches(0)
    max_size = max(map(len, batches))
    full = [batch for batch in batches if 2 * len(batch) > max_size]  # small remainders aren't representative
    sizes = [float(np.mean([example.length for example in batch])) for batch in full]
    chosen = {sizes[index]: full[index] for index in _spread(sizes)}
    trained = {
        size: _seconds(lambda batch=batch: update(batch), device, clock) / len(batch) for size, batch in chosen.items()
    }
    memory = _peak_memory(device)
    passed, dropped = _passes(ranker, job, resolve_precision(precision, device), max_tokens, device, clock)
    return Rates(
        training_lengths=tuple(trained),
        trained=tuple(trained.values()),
        scoring_lengths=tuple(passed),
        passed=tuple(passed.values()),
        dropped=tuple(dropped.values()),
        memory=memory,
    )


def _passes(
    ranker: Ranker, job: TrainJob, precision: str, max_tokens: int, device: torch.device, clock: Callable[[], float]
) -> tuple[dict[float, float], dict[float, float]]:
    """Measure seconds per input without and with dropout, by length."""
    store = TokenStore(job.train_tokens.path)
    rows = job.selection.rows("train", "all", store.column("label_order"))
    inputs = PoolInputs.of(list(store.pools(rows.tolist())), ranker.layout, None).inputs
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in scoring tasks
    by_mode: dict[bool, dict[float, float]] = {False: {}, True: {}}
    batches = forward_batches([len(ids) for ids, _ in inputs], max_tokens, device)
    sizes = [float(np.mean([len(inputs[index][0]) for index in batch])) for batch in batches]
    try:
        for chosen in _spread(sizes):
            batch = make_batch([inputs[int(index)] for index in batches[chosen]], ranker.layout, device)
            for stochastic, seconds in by_mode.items():
                ranker.train(stochastic)
                with torch.inference_mode(), autocast(device, "bf16" if precision == "bf16" else "fp32"):
                    taken = _seconds(lambda batch=batch: ranker.answer_logits(batch), device, clock)
                seconds[sizes[chosen]] = taken / len(batches[chosen])
    finally:
        torch.set_num_threads(threads)
    return by_mode[False], by_mode[True]


def _spread(sizes: Sequence[float]) -> list[int]:
    """Return the indices of a short, a medium and a long batch, in ascending order of size."""
    order = np.argsort(sizes, kind="stable")
    return list(dict.fromkeys(int(order[round(quantile * (len(order) - 1))]) for quantile in _QUANTILES))


def _seconds(act: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    """Measure the minimum time of several repetitions, which is least affected by other load on the machine."""
    taken: list[float] = []
    for _ in range(1 + _REPEATS):
        begun = clock()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(clock() - begun)
    return min(taken[1:])


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
