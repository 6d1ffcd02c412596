"""Plausible run folders without training: three methods, two seeds, one simulated support desk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.calibration.post_hoc import post_hoc_metrics
from icalib.core.files import read_json, write_json
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import METRIC_SCHEMA, PREDICTION_SCHEMA, PSEUDO_LABEL_SCHEMA, TRAINING_SCHEMA, RoundSummary
from icalib.data.schema import POOL_SCHEMA, POOLS_FILE
from icalib.metrics.summary import summarise
from icalib.regimes.round_tally import GAIN_EDGES

NUM_CANDIDATES = 10
HOSTILE = "<script>alert('printer')</script> my printer & scanner \"both\" refuse </script> to start"
_DEVICES = ("printer", "router", "laptop", "phone", "scanner")
_FIXES = ("restart the {d}", "update the {d}'s driver", "hold the {d}'s reset button for ten seconds")
_QUALITY = {"bm25": 0.6, "tsst": 1.6, "icast": 2.2}


def write_pools(folder: Path, num_pools: int = 60, digest: str = "5f0c2a9d11e7b3c4") -> Path:
    """A pool set with its test split and metadata; the first pool's text is hostile HTML."""
    rng = np.random.default_rng(5)
    rows = [_pool(rng, number) for number in range(num_pools)]
    rows[0]["context"][0]["text"] = HOSTILE
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=POOL_SCHEMA), folder / "test.parquet")
    totals = {"train": 1200, "validation": 80, "test": num_pools}
    write_json(folder / POOLS_FILE, {"digest": digest, "num_pools": totals})
    return folder


def write_run(
    root: Path,
    data: Path,
    method: str,
    seed: int,
    *,
    finished: bool = True,
    rounds: int = 3,
    config: Mapping[str, Any] | None = None,
) -> RunFolder:
    """One run folder of `method`; bm25 has neither training nor rounds nor gain; `config` has other settings."""
    rng = np.random.default_rng([seed, *method.encode()])
    run = RunFolder(root / f"{method}-{data.name}-0.05-s{seed}")
    run.path.mkdir(parents=True)
    run.write_config({**_config(method, data, seed), **(config or {})})
    run.write_json("provenance.json", _provenance(method, data, seed))
    trained, self_trained = method != "bm25", method in ("tsst", "icast")
    run.write_json("stages.json", _stages(trained, rounds if self_trained else 0))
    if trained:
        run.write_table("training.parquet", _training(rng, rounds if self_trained else 0))
    if self_trained:
        for number in range(1, rounds + 1):
            _write_round(run, rng, number, intents=method == "icast")
    if finished:
        _write_outcome(run, rng, data, method, seed)
    return run


def write_runs(root: Path) -> list[RunFolder]:
    """Three methods × two seeds over one pool set."""
    data = write_pools(root / "desk")
    return [write_run(root / "runs", data, method, seed) for method in _QUALITY for seed in (1, 2)]


def _pool(rng: np.random.Generator, number: int) -> dict[str, Any]:
    device = str(rng.choice(_DEVICES))
    turns = [
        ("user", f"Hello, my {device} stopped working after the last update.", ["OQ"]),
        ("agent", "I'm sorry to hear that. Which lights do you see at the front?", ["IR", "GG"]),
        ("user", f"Two amber lights blink, and the {device} hums. I tried the power cord.", ["FD", "NF"]),
    ]
    candidates = [
        f"Please {_FIXES[j % 3].format(d=_DEVICES[(j // 3) % 5])}, then wait for the green light ({j})."
        for j in rng.permutation(NUM_CANDIDATES)
    ]
    return {
        "pool_id": f"desk-{number:04d}",
        "dialog_id": f"d{number}",
        "domain": device,
        "split": "test",
        "context": [{"speaker": s, "text": t, "intents": i} for s, t, i in turns],
        "candidates": candidates,
        "label": int(rng.integers(NUM_CANDIDATES)),
        "label_order": -1,
        "also_right": [],
    }


def _config(method: str, data: Path, seed: int) -> dict[str, Any]:
    return {
        "method": method,
        "data": str(data),
        "labelled": 0.05,
        "seed": seed,
        "limit": {"train": None, "validation": None, "test": 60},
        "backbone": "minilm",
        "settings": {
            "head": {"target": "icalib.heads.linear.LinearHead", "dropout": 0.1},
            "regime": {"target": "icalib.regimes.untrained.Untrained"}
            if method == "bm25"
            else {"gain_threshold": 0.02, "num_passes": 5, "warm": None, "layers": [1, 2]},
        },
        "experiment": "desk",
    }


def _provenance(method: str, data: Path, seed: int) -> dict[str, Any]:
    return {
        "icalib": "0.1.0",
        "python": "3.11.2",
        "packages": {"torch": "2.13.0", "ray": "2.60.0"},
        "command": f"icalib run {method} --data {data} --labelled 0.05 --seed {seed}",
        "data_digest": read_json(data / POOLS_FILE)["digest"],
        "started": "2026-08-01T09:00:00+00:00",
        "finished": "2026-08-01T09:04:10+00:00",
        "machine": {"cpus": 2, "system": "Linux"},
    }


def _stages(trained: bool, rounds: int) -> list[dict[str, Any]]:
    names = ["teacher"] if trained else []
    names += [f"{part} {r}" for r in range(1, rounds + 1) for part in ("scores", "student")] + ["evaluate"]
    return [
        {"name": name, "digest": f"{i:016x}", "reused": name == "teacher", "seconds": 3.5 * (i + 1), "path": name}
        for i, name in enumerate(names)
    ]


def _training(rng: np.random.Generator, rounds: int) -> pa.Table:
    rows: list[tuple[str, int, str, int, int, str, float]] = []
    step = 0
    for number in range(rounds + 1):
        stage = "student" if number else "teacher"
        for epoch in range(1, 4):
            for _ in range(10):
                step += 5
                loss = 0.15 + 0.5 * np.exp(-step / 180) + 0.02 * rng.normal()
                rows.append((stage, number, "train", step, epoch, "loss/total", loss))
                rows.append((stage, number, "train", step, epoch, "opt/lr", 3e-5 * (1 - epoch / 4)))
            progress = 1 - np.exp(-step / 250)
            ends = {"loss/total": (0.6, 0.2), "rank/R@1": (0.25, 0.55), "rank/MAP": (0.4, 0.7), "cal/ECE": (0.15, 0.07)}
            for tag, (first, last) in ends.items():
                value = first + (last - first) * progress + 0.01 * rng.normal()
                rows.append((stage, number, "validation", step, epoch, tag, value))
    names = ("stage", "round", "split", "step", "epoch", "tag", "value")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=TRAINING_SCHEMA)


def _write_round(run: RunFolder, rng: np.random.Generator, number: int, *, intents: bool) -> None:
    gain = rng.normal(0.005, 0.012, 4000) if intents else np.array([])
    gain[::400] *= 20  # a few gains lie far out
    counts, edges = np.histogram(gain, GAIN_EDGES)
    selected = 380 + 90 * number
    right = int(selected * (0.7 + 0.03 * number))
    wrong = {"false_positive": selected - right, "false_negative": 40}
    summary = RoundSummary(
        round=number,
        num_pools_scored=1140,
        num_pools_selected=selected,
        num_pairs_selected=selected * 7,
        num_pools_by_rule={"confident": selected - 60, "calibrated": 60} if intents else {"confident": selected},
        share_with_intents=0.3 + 0.02 * number if intents else 0.0,
        pool_accuracy=right / selected,
        pair_accuracy=0.93,
        base_accuracy=0.5 + 0.02 * number,
        confusion={"true_positive": right, **wrong, "true_negative": selected * 6 - 40},
        gain_histogram_edges=edges.tolist() if intents else [],
        gain_histogram_counts=counts.tolist() if intents else [],
    )
    run.write_json(f"rounds/{number}/summary.json", summary.model_dump())
    run.write_table(f"rounds/{number}/pseudo_labels.parquet", PSEUDO_LABEL_SCHEMA.empty_table())


def _write_outcome(run: RunFolder, rng: np.random.Generator, data: Path, method: str, seed: int) -> None:
    pools = pq.read_table(data / "test.parquet")
    predictions = _predictions(rng, pools, method)
    run.write_table("predictions/test.parquet", predictions)
    metrics = summarise(predictions, threshold=0.3, seed=seed, num_bootstrap=50)
    splits = [metrics.add_column(0, "split", pa.array([split] * metrics.num_rows)) for split in ("validation", "test")]
    prior = None if method == "bm25" else 0.5
    fitted_on = _predictions(rng, pools, method)
    run.write_table("predictions/validation.parquet", fitted_on)
    post_hoc = post_hoc_metrics(fitted_on, predictions, train_prior=prior)
    table = pa.concat_tables([*(split.cast(METRIC_SCHEMA) for split in splits), post_hoc])
    run.write_table("metrics.parquet", table)
    values = {
        split: {row["metric"]: row["value"] for row in table.to_pylist() if row["split"] == split}
        for split in ("test", "validation")
    }
    seconds = {stage["name"]: stage["seconds"] for stage in run.stages}
    seconds["total"] = sum(seconds.values())
    facts = {"run": str(run.path), "method": method, "data": data.name, "labelled": 0.05, "seed": seed}
    run.write_json("result.json", {**facts, **values, "seconds": seconds})


def _predictions(rng: np.random.Generator, pools: pa.Table, method: str) -> pa.Table:
    rows: list[dict[str, Any]] = []
    same = {"logit_var": 0.1, "prob_var": 0.01, "num_passes": 5}
    for pool in pools.to_pylist():
        for candidate in range(NUM_CANDIDATES):
            right = candidate == pool["label"]
            logit = float(-2.5 + _QUALITY[method] * right + rng.normal(0, 0.9))
            gain = float(rng.normal(0.01, 0.03)) if method == "icast" else float("nan")
            row = {
                "pool_id": pool["pool_id"],
                "candidate": candidate,
                "label": int(right),
                "logit": logit,
                "gain": gain,
            }
            view, prob = "intent" if gain > 0.02 else "plain", float(1 / (1 + np.exp(-1.3 * logit)))
            rows.append({**row, **same, "view": view, "prob": prob, "mutual_information": float(rng.gamma(2, 0.02))})
    return pa.Table.from_pylist(rows, schema=PREDICTION_SCHEMA)
