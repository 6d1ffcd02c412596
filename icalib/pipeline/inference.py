"""Using a finished run on any pools; nothing is fitted there: view rule, calibration and threshold are the run's."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import torch

from icalib.core.component import validated_file
from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import content_digest, file_digest, read_json
from icalib.core.run_folder import METRIC_SCHEMA, RunFolder
from icalib.core.storage import location, pull, push, remove
from icalib.data.pools import read_pool_set
from icalib.data.schema import Split
from icalib.data.selection import Selection
from icalib.distributed.untrained import score_untrained, selected_pools, untrained_table
from icalib.methods.composition import Method, ScoringSettings, Untrained
from icalib.models.checkpoint import POSTERIOR, WEIGHTS, load_ranker_config
from icalib.pipeline.evaluation import Fitted, MemberScores, prediction_table
from icalib.pipeline.run import RunSettings, Surroundings, stage_cache
from icalib.pipeline.stages import RayWorkbench
from icalib.regimes.regime import scores_name
from icalib.scoring.cost import Cost, measure_costs
from icalib.scoring.loaded import LoadedMembers
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class FinishedRun:
    """A run folder, wherever it lies now, with what its predictions need."""

    folder: RunFolder
    settings: RunSettings
    fitted: Fitted
    members: tuple[tuple[Path, AbstractEstimator.Config], ...]
    """Checkpoint and estimator of each model whose probabilities are averaged; none without training."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a finished run.

        Raises:
            RunFolderError: it is no finished run, lacks what it was fitted to, or has a file that can't be read.
        """
        folder = RunFolder.open(path)
        pull(folder.checkpoint_path)
        fields = {name: value for name, value in folder.config.items() if name != "version"}
        settings = validated_file(path / "config.yaml", RunSettings, fields)
        members = tuple(
            (checkpoint, validated_file(path / "members.json", AbstractEstimator.Config, estimator))
            for checkpoint, estimator in folder.members
        )
        if not folder.fitted_path.is_file() or (isinstance(settings.settings, Method) and not members):
            raise RunFolderError(
                f"{path} lacks {folder.fitted_path.name} or members.json, so its probabilities can't be had again. "
                "Give its `icalib run` command with --fresh: this icalib keeps them."
            )
        return cls(folder, settings, Fitted.load(folder.fitted_path), members)

    def load_members(self, scoring: ScoringSettings | None = None) -> LoadedMembers:
        """The models in this process, on its GPU where it has one; `scoring` replaces the method's own settings.

        Raises:
            SettingError: the method was not trained.
        """
        method = self.settings.settings
        if isinstance(method, Untrained):
            raise SettingError(
                f"{self.folder.path} is a run of `{self.settings.method}`, which has no trained model to load. Name a "
                "run of a trained method such as bert or icast; `score` and `evaluate` take this one too."
            )
        scoring = scoring or method.scoring
        return LoadedMembers.load(
            self.members,
            with_intents=method.regime.view_rule() is not None,
            precision=scoring.precision,
            max_tokens=scoring.max_tokens_per_batch,
            device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        )


def iter_predictions(
    run: FinishedRun, data: Path, split: Split, limit: int | None, surroundings: Surroundings
) -> Iterator[pa.Table]:
    """PREDICTION_SCHEMA of the pools of a split, some at a time; their labels may be unknown.

    Args:
        run: says how to score and what was fitted.
        data: a pool folder, whatever the run was trained on.
        split: which pools.
        limit: at most so many of them.
        surroundings: where to compute; scores are cached beside `runs`.
    """
    limits: dict[Split, int] = {} if limit is None else {split: limit}
    selection = Selection(labelled_fraction=1.0, limit=limits)
    method = run.settings.settings
    if isinstance(method, Untrained):
        assert run.fitted.calibration is not None
        scored = score_untrained(data, [split], method, selection)
        yield untrained_table(scored[split], run.fitted.calibration)
        return
    for shard in _member_scores(run, method, data, split, selection, surroundings):
        yield prediction_table([shard], run.fitted)


def evaluate(run: FinishedRun, data: Path, limit: int | None, surroundings: Surroundings) -> dict[str, Any]:
    """Metrics on the test split of another pool set, kept in the run's folder; the same again is read from there.

    Returns:
        What result.json of a run holds, with `data` the other pool set and `trained_on` the run's own.
    """
    data = data.resolve()
    pool_set = read_pool_set(data)
    folder = RunFolder(run.folder.shift_path(data.name))
    inputs = {"digest": pool_set.digest, "limit": limit}
    if folder.is_finished and all(folder.result[name] == value for name, value in inputs.items()):
        return folder.result
    started = time.monotonic()
    remove(folder.path / "result.json")
    predictions = pa.concat_tables(iter_predictions(run, data, "test", limit, surroundings))
    metrics = run.fitted.summarise(predictions, seed=run.settings.seed, also=run.settings.metrics)
    folder.write_table("predictions.parquet", predictions)
    split = pa.array(["test"] * metrics.num_rows)
    folder.write_table("metrics.parquet", metrics.add_column(0, METRIC_SCHEMA.field("split"), split))
    result = {
        "run": location(run.folder.path),
        "method": run.settings.method,
        "data": location(data),
        "trained_on": location(run.settings.data),
        "labelled": run.settings.labelled,
        "seed": run.settings.seed,
        **inputs,
        "test": dict(zip(metrics["metric"].to_pylist(), metrics["value"].to_pylist(), strict=True)),
        "seconds": {"total": round(time.monotonic() - started, 2)},
    }
    folder.write_json("result.json", result)
    push(folder.path)
    return result


def cost_of(runs: Sequence[FinishedRun], data: Path, *, num_pairs: int, repeats: int) -> list[Cost]:
    """Size and scoring time of runs on the same test pools, in the same precision.

    Args:
        runs: of trained methods; the first is what the others are compared with.
        data: the pool folder.
        num_pairs: rounded up to whole pools; fewer if there are fewer.
        repeats: rounds.
    """
    num_pools = math.ceil(num_pairs / read_pool_set(data).num_candidates)
    pools = selected_pools(data, "test", Selection(labelled_fraction=1.0, limit={"test": num_pools}))
    names = [run.settings.method for run in runs]
    labels = names if len(set(names)) == len(names) else [str(run.folder.path) for run in runs]
    members = [run.load_members(ScoringSettings()) for run in runs]
    return measure_costs(list(zip(labels, members, strict=True)), pools, repeats=repeats)


def _member_scores(
    run: FinishedRun, method: Method, data: Path, split: Split, selection: Selection, surroundings: Surroundings
) -> MemberScores:
    bench = RayWorkbench(
        data=data,
        pool_set=read_pool_set(data),
        selection=selection,
        encoder=load_ranker_config(run.members[0][0]).encoder,  # it names the tokenizer that lies in the checkpoint
        scoring=method.scoring,
        cache=stage_cache(surroundings),
        resources=surroundings.resources,
        reporter=surroundings.reporter,
        seed=run.settings.seed,
        splits=[split],
    )
    return MemberScores(
        [
            bench.score_checkpoint(
                f"{data.name}/{scores_name(split, place)}",
                checkpoint.resolve(),
                checkpoint_digest(checkpoint),
                split=split,
                part="all",
                estimator=estimator,
                with_intents=method.regime.view_rule() is not None,
            )
            for place, (checkpoint, estimator) in enumerate(run.members)
        ]
    )


def checkpoint_digest(folder: Path) -> str:
    """Tells a model from others: its weights, its posterior and what it is made of."""
    names: Sequence[str] = (WEIGHTS, POSTERIOR)
    files = {name: file_digest(folder / name) for name in names if (folder / name).is_file()}
    return content_digest({**files, "ranker": read_json(folder / "ranker.json")})
