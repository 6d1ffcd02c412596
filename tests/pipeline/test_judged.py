"""A finished run on new pools, of which people judge a few and another judge all."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.annotators import exported, filled_table
from helpers.pool_folders import read_pools
from helpers.runs import small_settings

from icalib import evaluate_judged, label_import, label_next
from icalib.core.errors import DataError, SettingError
from icalib.data.pools import read_pool_set
from icalib.data.prepare import PrepareSettings, prepare
from icalib.data.schema import Pool
from icalib.data.simulate import simulate
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.pipeline.finished import FinishedRun, iter_predictions
from icalib.pipeline.run import RunContext, run

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def bm25(around: RunContext, tiny_pools: Path, tiny_bert: Path) -> FinishedRun:
    return FinishedRun.open(run(small_settings("bm25", tiny_pools, tiny_bert), around).path)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    simulate(folder / "dialogues.jsonl", num_dialogues=90, seed=9)
    prepare(folder / "dialogues.jsonl", folder / "pools", PrepareSettings(num_candidates=4))
    return folder / "pools"


@pytest.fixture(scope="module")
def truth(bm25: FinishedRun, fresh: Path, around: RunContext) -> PoolScores:
    """The run's scores with the labels that nobody was asked for."""
    return PoolScores.from_predictions(pa.concat_tables(iter_predictions(bm25, fresh, "train", None, around)))


@pytest.fixture(scope="module")
def pools(fresh: Path) -> dict[str, Pool]:
    return {pool.pool_id: pool for pool in read_pools(fresh, "train")}


@pytest.fixture(scope="module")
def batch(fresh: Path) -> Path:
    return label_next(data=fresh, out=fresh.parent / "batch.csv", number=40).path


@pytest.fixture(scope="module")
def judged(batch: Path, pools: dict[str, Pool]) -> Path:
    return filled_table(batch, batch.with_name("judged.csv"), lambda name: pools[name].right)


@pytest.fixture(scope="module")
def judge(pools: dict[str, Pool], fresh: Path) -> Path:
    """A judge that knows the right candidate of most pools."""
    rows = [
        {"pool_id": name, "candidate": index, "prob": 0.8 if (index in pool.right) == (number % 10 > 0) else 0.2}
        for number, (name, pool) in enumerate(pools.items())
        for index in range(len(pool.candidates))
    ]
    return write_rows(fresh.parent / "judge.csv", rows)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


COLUMNS = {"query": "pool_id", "score": "prob"}


def test_a_judge_narrows_what_a_few_labels_say(
    bm25: FinishedRun, fresh: Path, judged: Path, judge: Path, truth: PoolScores, around: RunContext, icalib: Command
) -> None:
    code, out, err = icalib(
        "evaluate", bm25.folder.path, "--data", fresh, "--judged", judged, "--judge", judge, "--columns",
        "query=pool_id,score=prob", "--json", "--runs", around.runs, "--executor", "local",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    num_pools = len(read_pools(fresh, "train"))
    assert (found["split"], found["num_judged"], found["num_pools"]) == ("train", 40, num_pools)
    first = found["metrics"]["R@1"]
    assert first["helps"]
    assert first["correlation"] > 0.6
    assert first["worth"] > 60
    assert first["estimate"]["low"] > first["alone"]["low"]
    assert f"R@1 {first['estimate']['value']:.3f} (95 % interval {first['estimate']['low']:.3f}–" in err
    assert f"from 40 judged pools and a judge of {num_pools}; by the 40 alone {first['alone']['value']:.3f} (" in err
    assert "MAP" in err
    assert "Warning" not in err
    for name, one in found["metrics"].items():
        assert one["estimate"]["low"] < find_metric(name).value(truth) < one["estimate"]["high"]


def test_a_judges_probabilities_over_a_pool_are_read_as_they_are(
    bm25: FinishedRun, fresh: Path, judged: Path, pools: dict[str, Pool], around: RunContext, tmp_path: Path
) -> None:
    """So that their logarithms, which are logits, say the same."""

    def correlation(of_prob: Callable[[float], float]) -> float:
        rows = [
            {"query": name, "candidate": index, "score": of_prob(0.97 - 0.1 * (number % 9) if index in pool.right else
             (0.03 + 0.1 * (number % 9)) / (len(pool.candidates) - 1))}
            for number, (name, pool) in enumerate(pools.items()) for index in range(len(pool.candidates))
        ]  # fmt: skip
        judge = write_rows(tmp_path / "judge.csv", rows)
        found = evaluate_judged(bm25.folder.path, judged, judge, data=fresh, runs=around.runs, executor="local")
        return found.metrics["MAP"].correlation

    assert correlation(lambda prob: prob) == pytest.approx(correlation(math.log), rel=1e-9)


def renamed(batch: Path, out: Path) -> Path:
    rows = list(csv.DictReader(batch.open(encoding="utf-8-sig")))
    return write_rows(out, [*rows, *({**row, "pool_id": "x"} for row in rows[:4])])


def test_judged_pools_that_are_no_random_sample_are_warned_of(
    bm25: FinishedRun, fresh: Path, pools: dict[str, Pool], judge: Path, truth: PoolScores, around: RunContext,
    tmp_path: Path,
) -> None:  # fmt: skip
    """They are pools that the run ranks badly, and the annotators differ about two."""
    wrong = {name for name, hit in zip(truth.pool_ids, top_candidate(truth).hit, strict=True) if hit == 0}
    tasks = label_next(data=fresh, out=tmp_path / "batch.json", number=len(pools)).path
    chosen = [task for task in json.loads(tasks.read_text()) if task["data"]["pool_id"] in wrong]
    tasks.write_text(json.dumps(chosen))
    disputed = {task["data"]["pool_id"] for task in chosen[:2]}

    def other(name: str) -> Sequence[int]:
        return [(pools[name].label + 1) % 4] if name in disputed else pools[name].right

    answers = {"ann": lambda name: pools[name].right, "bob": other}
    export = exported(tasks, tmp_path / "export.json", answers)
    found = evaluate_judged(
        bm25.folder.path, export, judge, data=fresh, columns=COLUMNS, runs=around.runs, executor="local"
    )
    assert found.num_judged == len(chosen) - 2
    shift, left_out = found.warnings
    assert "they are not a random sample, and the intervals don't hold" in shift
    assert "2 pools of the labels are unfinished, or their annotators disagree" in left_out


def test_what_cant_be_used_is_refused(
    bm25: FinishedRun, fresh: Path, batch: Path, judged: Path, judge: Path, tiny_pools: Path, around: RunContext,
    pools: dict[str, Pool], tmp_path: Path,
) -> None:  # fmt: skip
    def refused(match: str, judged: Path = judged, judge: Path = judge, data: Path = fresh) -> None:
        with pytest.raises((DataError, SettingError), match=match):
            evaluate_judged(
                bm25.folder.path, judged, judge, data=data, columns=COLUMNS, runs=around.runs, executor="local"
            )

    refused("the candidates of pool .* are not those of", data=tiny_pools)
    refused(
        "has no training pool 'x'", filled_table(renamed(batch, tmp_path / "x.csv"), tmp_path / "y.csv", lambda _: [0])
    )
    own = label_next(data=tiny_pools, out=tmp_path / "own.csv", number=5).path
    filled = filled_table(own, tmp_path / "own-filled.csv", lambda name: [0])
    relabelled = label_import(filled, tiny_pools, tmp_path / "relabelled").path
    for learned in (tiny_pools, relabelled):
        refused("is about train pools of .*, from which the run has learned", filled, data=learned)
    prepare(
        read_pool_set(tiny_pools).source, tmp_path / "again",
        PrepareSettings(num_candidates=3, context_turns=2, negative_sampler="random"),
    )  # fmt: skip
    again = label_next(data=tmp_path / "again", out=tmp_path / "again.csv", number=5).path
    filled = filled_table(again, tmp_path / "again-filled.csv", lambda name: [0])
    refused("is about train pools of .*, from which the run has learned", filled, data=tmp_path / "again")
    few = filled_table(batch, tmp_path / "few.csv", lambda name: [0] if name < sorted(pools)[20] else [])
    refused(r"judged pools with a right candidate. Intervals hold from 30 on", few)
    rows = list(csv.DictReader(judge.open()))
    refused("has no scores of 1 of", judge=write_rows(tmp_path / "less.csv", rows[4:]))
    shifted = [{**row, "candidate": int(row["candidate"]) + 1} for row in rows]
    refused("has the candidates 1, 2, 3, 4 of pool .* Expected their indices, 0 to 3", judge=write_rows(
        tmp_path / "shifted.csv", shifted
    ))  # fmt: skip
