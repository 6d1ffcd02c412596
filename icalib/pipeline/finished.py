"""Inference with a finished run on any pools, with the view rule, calibration and threshold that the run has fitted."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch

from icalib.core.component import validated_file
from icalib.core.errors import RunFolderError, SettingError
from icalib.core.files import content_digest, file_digest, read_json
from icalib.core.job import Artifact
from icalib.core.run_folder import RunFolder
from icalib.core.run_tables import METRIC_SCHEMA
from icalib.core.seeding import child_seed
from icalib.core.stage_cache import Stage, StageName
from icalib.core.storage import location, pull, push, remove
from icalib.data.pools import read_pool_set
from icalib.data.schema import Pool, Split
from icalib.data.selection import Selection
from icalib.metrics.pairs import P_NONE, PoolScores
from icalib.metrics.summary import measured
from icalib.models.checkpoint import POSTERIOR, WEIGHTS
from icalib.parts.cost import Cost, measure_costs
from icalib.parts.intent import OWN_ENCODER
from icalib.parts.intent import WEIGHTS as INTENT_WEIGHTS
from icalib.parts.loaded import LoadedMembers, load_untrained, member_encoder
from icalib.parts.sum import PARTS_FILE, read_member
from icalib.pipeline.config import RunConfig
from icalib.pipeline.evaluation import Fitted, prediction_table
from icalib.pipeline.guarantees import Guarantees
from icalib.pipeline.run import RunContext, stages_of
from icalib.regimes.regime import AbstractRegime, Member
from icalib.scoring.gain import AUTHORS_CHOICE
from icalib.scoring.scores import Shards
from icalib.scoring.untrained import selected_pools
from icalib.stages.composition import ScoringSettings
from icalib.stages.stages import Trained
from icalib.uncertainty.estimator import AbstractEstimator

_TIMED_PAIRS, _TIMES = 500, 5  # pairs of whole pools whose scoring is timed, and how often


@dataclass(frozen=True)
class FinishedRun:
    """A finished run folder, with everything that predictions need."""

    folder: RunFolder
    config: RunConfig
    fitted: Fitted
    members: tuple[tuple[Path, AbstractEstimator.Config], ...]
    """Checkpoint and estimator of each model whose probabilities are averaged; empty for untrained rankers."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a finished run; a RunFolderError if it isn't one, lacks fitted values, or has a damaged file."""
        folder = RunFolder.open(path)
        pull(folder.checkpoint_path)
        folder.check(checkpoints=True)
        config = RunConfig.recorded(path / "config.yaml", folder.config)
        members = tuple(
            (checkpoint, validated_file(path / "members.json", AbstractEstimator.Config, estimator))
            for checkpoint, estimator in folder.members
        )
        if not folder.fitted_path.is_file() or (config.settings.regime.trains and not members):
            raise RunFolderError(
                f"{path} lacks {folder.fitted_path.name} or members.json, which predictions need. "
                "Run its `icalib run` command again with --fresh."
            )
        return cls(folder, config, Fitted.load(folder.fitted_path), members)

    @property
    def digest(self) -> str:
        """Digest of its models and of what was fitted."""
        models = [_kept(path) for path, _ in self.members]
        members = [
            content_digest([part.digest for part in model.parts.values()] + [model.fit.digest if model.fit else ""])
            for model in models
        ]
        return content_digest({"fitted": read_json(self.folder.fitted_path), "members": members})

    @cached_property
    def has_softmax(self) -> bool:
        """Whether a pair alone has no probability, since the loss compares the candidates of a pool."""
        return bool(self.members) and self.config.settings.loss.link == "softmax"

    @cached_property
    def context_turns(self) -> int:
        """Maximum number of utterances of a context."""
        return self.folder.context_turns

    @cached_property
    def guarantees(self) -> Guarantees:
        """Answers questions from their scores."""
        return Guarantees(self.folder)

    def keep(self) -> None:
        """Read now what answers need, so that they stay those of one run when its folder changes later."""
        _ = self.context_turns
        self.guarantees.keep()

    def check_has_models(self) -> None:
        """Refuse a run whose method has no models to load."""
        if not self.config.settings.regime.can_be_loaded:
            raise SettingError(
                f"{self.folder.path} is a run of `{self.config.method}`, which has no model to load. Give a run of a "
                "method with one, such as dual-encoder, bert or icast; `score --data` and `evaluate` take this run."
            )

    def load_members(self, scoring: ScoringSettings | None = None) -> LoadedMembers:
        """Load the models into this process, on its GPU if it has one; `scoring` replaces the method's settings."""
        self.check_has_models()
        method, device = self.config.settings, torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if not method.regime.trains:
            found = next((path / "similarity" for path, _ in self.members), None)
            return load_untrained(method.encoder, found, device)
        scoring = scoring or method.scoring
        rule = method.regime.view_rule()
        return LoadedMembers.load(
            self.members,
            with_intents=rule is not None,
            intent_choice=rule.intents if rule is not None else AUTHORS_CHOICE,
            precision=scoring.precision,
            max_tokens=scoring.max_tokens_per_batch,
            device=device,
        )


def iter_predictions(
    run: FinishedRun, data: Path, split: Split, limit: int | None, context: RunContext
) -> Iterator[pa.Table]:
    """Iterate over predictions (`Fitted.prediction_schema`) of at most `limit` pools, whose labels may be unknown."""
    stages = score_stages(run, data.absolute(), split, limit, context)
    for shard in Shards(*(stage.path for stage in stages)):
        yield prediction_table([shard], run.fitted)


def evaluate(run: FinishedRun, data: Path, limit: int | None, context: RunContext) -> dict[str, Any]:
    """Compute metrics on the test split of another pool set, or read them from the run's folder if computed before.

    The result is like result.json of a run, with `data` the other pool set and `trained_on` the run's own.
    """
    data = data.resolve()
    pool_set = read_pool_set(data)
    folder = RunFolder(run.folder.shift_path(data.name))
    inputs = {"digest": pool_set.digest, "limit": limit, "model": run.digest}
    if folder.is_finished and not any(folder.damages(checkpoints=False)):
        result = run.folder.shift_result(data.name)
        if all(result.get(name) == value for name, value in inputs.items()):
            return result
    started = time.monotonic()
    remove(folder.path / "result.json")
    predictions = pa.concat_tables(iter_predictions(run, data, "test", limit, context))
    metrics = run.fitted.summarise(predictions, seed=run.config.seed, also=run.config.metrics)
    folder.write_table("predictions.parquet", predictions)
    split = pa.array(["test"] * metrics.num_rows)
    folder.write_table("metrics.parquet", metrics.add_column(0, METRIC_SCHEMA.field("split"), split))
    result = {
        "run": location(run.folder.path.absolute()),
        "method": run.config.method,
        "data": location(data),
        "trained_on": location(run.config.data),
        "labelled": run.config.labelled,
        "seed": run.config.seed,
        **inputs,
        "test": measured(metrics.to_pylist()),
        "seconds": {"total": round(time.monotonic() - started, 2)},
    }
    folder.finish(result)
    push(folder.path)
    return result


def cost_of(runs: Sequence[FinishedRun], data: Path) -> list[Cost]:
    """Measure size and scoring time of runs on the same test pools, in the same precision, compared with the first."""
    num_pools = math.ceil(_TIMED_PAIRS / read_pool_set(data).num_candidates)
    pools = selected_pools(data, "test", Selection(labelled_fraction=1.0, limit={"test": num_pools}))
    names = [run.config.method for run in runs]
    labels = names if len(set(names)) == len(names) else [str(run.folder.path) for run in runs]
    members = [run.load_members(ScoringSettings()) for run in runs]
    return measure_costs(list(zip(labels, members, strict=True)), pools, repeats=_TIMES)


def score_stages(
    run: FinishedRun, data: Path, split: Split, limit: int | None, context: RunContext, *, first: tuple[int, ...] = ()
) -> list[Stage]:
    """Return the stages with each member's scores of a split's pools, the `first` rows of training pools before others;
    see `iter_predictions`.
    """
    method = run.config.settings
    limits: dict[Split, int] = {} if limit is None else {split: limit}
    members = [Member(_kept(folder), estimator) for folder, estimator in run.members]
    if members:  # the encoder in a checkpoint refers to the checkpoint's own tokenizer
        method = method.model_copy(update={"encoder": member_encoder(run.members[0][0])})
    stages = replace(
        stages_of(run.config, read_pool_set(data), context),
        composition=method,
        folder=data,
        selection=Selection(labelled_fraction=1.0, limit=limits, labelled_first=first),
        splits=(split,),
    )
    regime: AbstractRegime = method.regime.build()
    return regime.score(stages, members, split)


def _kept(folder: Path) -> Trained:
    _, paths = read_member(folder)
    parts = {name: Artifact(path=path.resolve(), digest=checkpoint_digest(path)) for name, path in paths.items()}
    path = folder.resolve() / PARTS_FILE
    return Trained(StageName("model"), parts, Artifact(path=path, digest=file_digest(path)))


def checkpoint_digest(folder: Path) -> str:
    """Return the digest of a checkpoint's weights, posterior and configuration."""
    names: Sequence[str] = (WEIGHTS, POSTERIOR, INTENT_WEIGHTS, f"{OWN_ENCODER}/{WEIGHTS}")
    files = {name: file_digest(folder / name) for name in names if (folder / name).is_file()}
    return content_digest({**files, "ranker": read_json(folder / "ranker.json")})


def unlabelled_predictions(
    run: FinishedRun, members: LoadedMembers, pools: Sequence[Pool], *, of_pairs: bool = False
) -> pa.Table:
    """Return the predictions of pools with unknown labels, scored in this process; their ids must ascend.

    With `of_pairs` they only say which pairs share a context, and probabilities are those of each pair alone.
    Equal candidates of a pool have the predictions of the first one, unless the method reads their places in it.
    """
    shard = run.config.settings.scoring.pools_per_shard
    fitted = run.fitted.of_pairs if of_pairs else run.fitted
    with tempfile.TemporaryDirectory() as folder:
        store = members.tokenize(pools, Path(folder) / "questions.arrow")
        tables = [
            prediction_table(
                [
                    members.score(
                        store,
                        range(start, min(start + shard, len(pools))),
                        child_seed(run.config.seed, "questions", start),
                    )
                ],
                fitted,
            )
            for start in range(0, len(pools), shard)
        ]
    table = pa.concat_tables(tables)
    if not np.isfinite(table["logit"].to_numpy()).all():
        raise RunFolderError(f"the models in {run.folder.path} give no numbers. Restore them, or train them again.")
    return table if run.config.settings.encoder.whole_pools else _tied(table, pools)


def _tied(table: pa.Table, pools: Sequence[Pool]) -> pa.Table:
    """Return predictions in which equal texts tie: rounding, and masks, depend on a pair's place in its batch."""
    first: dict[tuple[int, str], int] = {}
    texts = ((number, text) for number, pool in enumerate(pools) for text in pool.candidates)
    rows = [first.setdefault(text, row) for row, text in enumerate(texts)]
    if len(first) == table.num_rows:
        return table
    index = table.column_names.index("candidate")
    return table.take(pa.array(rows)).set_column(index, table.field(index), table.column(index))


def unlabelled_scores(table: pa.Table, pools: Sequence[Pool]) -> PoolScores:
    """Return the scores of pools with unknown labels from their predictions, which are in the order of the pools."""
    offsets = np.cumsum([0, *(len(pool.candidates) for pool in pools)])
    return PoolScores(
        pool_ids=tuple(pool.pool_id for pool in pools),
        logit=table["logit"].to_numpy(),
        prob=table["prob"].to_numpy(),
        label=np.full(table.num_rows, -1, np.int64),
        offsets=offsets,
        p_none=table[P_NONE].to_numpy()[offsets[:-1]] if P_NONE in table.column_names else None,
    )
