"""Plausible sweep folders without training: the published protocol, a sampler with failures, two objectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from icalib.core.run_tables import PREDICTION_SCHEMA
from icalib.metrics.metric import Direction
from icalib.sweeps.folder import Best, State, SweepFolder, SweepSettings, decoded_params, encoded_params

HOSTILE = "<script>alert('oom')</script> OutOfMemoryError: a worker used 7.9 GiB of 8 GiB. Use smaller batches."
RULE = "regime.rule"
_PUBLISHED = {
    f"{RULE}.gain_threshold": 0.02,
    f"{RULE}.positive_threshold": 0.8,
    f"{RULE}.negative_threshold": 0.1,
    f"{RULE}.confidence_threshold": 0.2,
}
_PROTOCOL = {
    f"{RULE}.gain_threshold": (0.0, 0.01, 0.02, 0.03, 0.04),
    f"{RULE}.positive_threshold": (0.6, 0.7, 0.8, 0.9),
    f"{RULE}.negative_threshold": (0.1, 0.2, 0.3, 0.4),
    f"{RULE}.confidence_threshold": (0.1, 0.2, 0.3, 0.4, 0.5),
}
_STATES: Mapping[int, State] = {4: "failed", 17: "failed", 9: "pruned", 21: "pruned"}


def write_published(root: Path, *, finished: bool = True) -> SweepFolder:
    """One threshold at a time, three seeds; trials share their teachers."""
    folder = _begin(root, "icast_published", {"F1": "maximize"}, seeds=3, sampler="grid")
    rows = [
        _row(trial, seed, "complete", params, _published_metrics(params, seed), reused=trial > 0)
        for trial, params in enumerate(_published_points())
        for seed in (1, 2, 3)
    ]
    folder.write_trials(rows)
    if finished:
        _finish(folder, rows, 3)
    return folder


def write_sampled(root: Path, num_trials: int = 30) -> SweepFolder:
    """A sampler over four settings of a head, one seed; some trials fail, are pruned, or still run."""
    folder = _begin(root, "pg_drr", {"R@1": "maximize"}, seeds=1, sampler="tpe", method="pg_drr")
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = []
    for trial in range(num_trials):
        params = _sampled(rng)
        state = _STATES.get(trial, "complete")
        recall = (
            0.62
            - 0.05 * (np.log10(params["training.learning_rate"]) + 4.3) ** 2
            + 0.04 * (params["head.kernel"] == "rbf")
        )
        metrics = {} if state == "failed" else {"R@1": recall + 0.01 * rng.normal(), "ECE": 0.08 + 0.02 * rng.random()}
        rows.append(_row(trial, 1, state, params, metrics, reused=False))
    rows.append(_row(num_trials, 1, "running", _sampled(rng), {}, reused=False))
    folder.write_trials(rows)
    _finish(folder, rows, 1)
    return folder


def write_two_objectives(root: Path, num_trials: int = 24) -> SweepFolder:
    """R@1 up and ECE down, which pull apart; two seeds."""
    folder = _begin(root, "ranking_and_calibration", {"R@1": "maximize", "ECE": "minimize"}, seeds=2, sampler="tpe")
    rng = np.random.default_rng(11)
    rows: list[dict[str, Any]] = []
    for trial in range(num_trials):
        gamma, rate = float(rng.uniform(0, 5)), float(10 ** rng.uniform(-5, -3))
        params = {"loss.gamma": gamma, "training.learning_rate": rate}
        for seed in (1, 2):
            recall = 0.6 - 0.02 * gamma - 0.04 * (np.log10(rate) + 4.2) ** 2 + 0.01 * rng.normal()
            ece = 0.12 - 0.02 * gamma + 0.02 * (np.log10(rate) + 4.2) ** 2 + 0.005 * rng.normal()
            rows.append(_row(trial, seed, "complete", params, {"R@1": recall, "ECE": abs(ece)}, reused=False))
    folder.write_trials(rows)
    _finish(folder, rows, 2)
    return folder


def write_trials(
    root: Path, points: list[tuple[Mapping[str, Any], float]], metrics: Mapping[str, Direction] | None = None
) -> SweepFolder:
    """Complete trials with one seed each, from settings and the value of the first metric (R@1)."""
    folder = _begin(root, "made", metrics or {"R@1": "maximize"}, seeds=1, sampler="grid")
    rows = [
        _row(trial, 1, "complete", params, {next(iter(folder.settings.metrics)): value}, reused=False)
        for trial, (params, value) in enumerate(points)
    ]
    folder.write_trials(rows)
    return folder


def write_predictions(
    folder: SweepFolder,
    trial: int,
    margins: list[float],
    settings: Mapping[str, Any],
    *,
    epoch: int = 1,
    passes: int = 1,
) -> None:
    """The first seed's run of a trial: pools of two candidates, of which the right one leads by a margin each."""
    run = folder.run_folder(trial, 1)
    logits = [logit for margin in margins for logit in (margin, 0.0)]
    columns: dict[str, Any] = {
        "pool_id": [f"p{number // 2}" for number in range(len(logits))],
        "candidate": [0, 1] * len(margins),
        "label": [1, 0] * len(margins),
        "view": ["plain"] * len(logits),
        "logit": logits,
        "prob": 1 / (1 + np.exp(-np.array(logits))),
        "gain": [float("nan")] * len(logits),
        "num_passes": [passes] * len(logits),
    }
    zeros = [0.0] * len(logits)
    table = pa.table({name: columns.get(name, zeros) for name in PREDICTION_SCHEMA.names}, schema=PREDICTION_SCHEMA)
    run.path.mkdir(parents=True)
    run.write_table("predictions/validation.parquet", table)
    run.write_config({"settings": dict(settings)})
    run.write_json("chosen.json", {"epochs": [epoch]})


def _begin(
    root: Path, space: str, metrics: Mapping[str, Direction], *, seeds: int, sampler: str, method: str = "icast"
) -> SweepFolder:
    folder = SweepFolder(root / f"sweep-{space}-desk-0.05")
    folder.path.mkdir(parents=True)
    folder.write_settings(
        SweepSettings(
            space=space,
            space_digest="5f0c2a9d11e7b3c4",
            method=method,
            data=Path("pools/desk"),
            data_digest="9a3f",
            labelled=0.05,
            seeds=seeds,
            limit={"train": 400},
            settings={"regime.num_rounds": 2},
            backbone="minilm",
            experiment="desk",
            sampler=sampler,
            metrics=dict(metrics),
            pruner="none",
            command=f"icalib sweep {space} --data pools/desk --labelled 0.05 --seeds {seeds} --sampler {sampler}",
        )
    )
    return folder


def _published_points() -> Iterator[dict[str, float]]:
    """A trial names only the threshold that it changes."""
    for name, values in _PROTOCOL.items():
        yield from ({name: value} for value in values)


def _published_metrics(params: Mapping[str, float], seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, *(round(1000 * value) for value in params.values())])
    off = sum(abs(value - _PUBLISHED[name]) * (5 if "gain" in name else 0.2) for name, value in params.items())
    f1 = 0.55 - off + 0.012 * rng.normal()
    return {"F1": f1, "R@1": f1 + 0.1, "MAP": f1 + 0.18, "ECE": 0.06 + 0.01 * rng.random()}


def _sampled(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "head.kernel": str(rng.choice(["rbf", "matern", "linear"])),
        "head.length_scale": float(rng.uniform(0.5, 4)),
        "head.num_chains": int(rng.integers(1, 9)),
        "training.learning_rate": float(10 ** rng.uniform(-5.5, -3)),
    }


def _row(
    trial: int, seed: int, state: str, params: Mapping[str, Any], metrics: Mapping[str, float], *, reused: bool
) -> dict[str, Any]:
    rng = np.random.default_rng([trial, seed])
    has_rounds = any(name.startswith(RULE) for name in params)
    gain = params.get(f"{RULE}.gain_threshold", 0.02)
    is_over = state in ("complete", "pruned")
    return {
        "trial": trial,
        "seed": seed,
        "state": state,
        "params": encoded_params(dict(params)),
        "metrics": [{"split": "validation", "name": name, "value": float(value)} for name, value in metrics.items()],
        "seconds": None if state == "running" else float(40 + 30 * rng.random() + 60 * (not reused)),
        "stages": _stages(rng, reused) if is_over else [],
        "num_pseudo_pools": int(900 + 50 * rng.normal()) if has_rounds and is_over else None,
        "num_pseudo_pairs": int(6300 + 350 * rng.normal()) if has_rounds and is_over else None,
        "pseudo_accuracy": float(0.8 + 0.02 * rng.normal()) if has_rounds and is_over else None,
        "num_selected_intents": int(2400 * np.exp(-40 * gain)) if has_rounds and is_over else None,
        "error": HOSTILE if state == "failed" else None,
        "run": f"trials/{trial}-s{seed}",
        "started": "2026-08-01T09:00:00+00:00",
        "finished": None if state == "running" else "2026-08-01T09:01:10+00:00",
    }


def _stages(rng: np.random.Generator, reused: bool) -> list[dict[str, Any]]:
    names = ("teacher", "round-1/scores", "round-1/student", "evaluate")
    return [
        {
            "name": name,
            "digest": f"{number:016x}",
            "reused": reused and number < 2,
            "seconds": float(10 + 20 * rng.random()),
        }
        for number, name in enumerate(names)
    ]


def _finish(folder: SweepFolder, rows: list[dict[str, Any]], seeds: int) -> None:
    """The winner by the first metric."""
    metric, direction = next(iter(folder.settings.metrics.items()))
    values: dict[int, list[float]] = {}
    for row in rows:
        values.setdefault(row["trial"], [])
        values[row["trial"]] += [
            entry["value"] for entry in row["metrics"] if entry["name"] == metric and row["state"] == "complete"
        ]
    sign = 1 if direction == "maximize" else -1
    winner = max((trial for trial in values if values[trial]), key=lambda trial: sign * np.mean(values[trial]))
    found = [row for row in rows if row["trial"] == winner]
    validation = {
        entry["name"]: _spread([e["value"] for row in found for e in row["metrics"] if e["name"] == entry["name"]])
        for entry in found[0]["metrics"]
    }
    config = folder.best_config_path
    config.parent.mkdir(parents=True)
    config.write_text("method: icast\nsettings:\n  regime: {}\n", encoding="utf-8")
    folder.write_best(
        Best(
            trial=winner,
            params=decoded_params(found[0]["params"]),
            validation=validation,
            test={name: (mean - 0.01, deviation) for name, (mean, deviation) in validation.items()},
            seeds=seeds,
            config="best/config.yaml",
        )
    )


def _spread(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
