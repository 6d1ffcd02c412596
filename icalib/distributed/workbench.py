"""The workbench that users run: stages from the cache, else on Ray."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from icalib.core.errors import SettingError
from icalib.core.files import read_json
from icalib.core.stages import Stage, StageCache
from icalib.data.encoding import TokenStore
from icalib.data.pools import as_pools, iter_pools
from icalib.data.schema import SPLITS, PoolSet, Split
from icalib.data.selection import Part, Selection
from icalib.distributed.scoring import score
from icalib.distributed.session import Resources
from icalib.distributed.training import train
from icalib.encoders.backbone import Tokenizer, backbone_digest
from icalib.encoders.transformer import AbstractEncoder
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.regimes.method import ScoringSettings
from icalib.regimes.post_training import PostTraining
from icalib.regimes.ranker import CHECKPOINT_VERSION, RankerConfig
from icalib.regimes.workbench import ScoreJob, Shards, TrainJob
from icalib.uncertainty.estimator import AbstractEstimator


class Reporter(Protocol):
    """Hears what goes on, for people."""

    def advance(self, name: str, done: float, total: float | None, note: str = "") -> None:
        """So much of a stage is done."""
        ...


class RayWorkbench:
    """Stages of one run.

    Args:
        after_training: called after each training stage with (name, round, stage, whether it is a student).
    """

    def __init__(
        self,
        *,
        data: Path,
        pool_set: PoolSet,
        selection: Selection,
        encoder: AbstractEncoder.Config,
        scoring: ScoringSettings,
        cache: StageCache,
        resources: Resources,
        reporter: Reporter,
        seed: int,
        after_stage: Callable[[str, int, Stage], None],
    ) -> None:
        self._data, self._pool_set, self._selection = data, pool_set, selection
        self._encoder, self._scoring, self._cache = encoder, scoring, cache
        self._resources, self._reporter, self._seed = resources, reporter, seed
        self._after_stage = after_stage
        self._backbone_digest = backbone_digest(encoder.backbone)
        self._tokens = self._tokenize()
        self._check_labels()

    def _check_labels(self) -> None:
        """Find missing labels now rather than after hours of training."""
        for split in SPLITS:
            store = self.store(split)
            rows = self._selection.rows(split, "labelled", store.column("label_order"))
            if not (store.column("label")[rows] >= 0).any():
                raise SettingError(
                    f"no {split} pool of {self._data} has a known right candidate (`label` is -1 in all that this run "
                    "uses). Training needs labelled pools, thresholds and figures need labelled validation and test."
                )

    def _tokenize(self) -> Stage:
        inputs = {"data": self._pool_set.digest, "backbone": self._backbone_digest, **self._encoder.budget.model_dump()}
        return self._cache.run("tokens", inputs, self._write_tokens)

    def _write_tokens(self, folder: Path) -> None:
        from icalib.data.encoding import write_tokens

        tokenize = Tokenizer(self._encoder.backbone)
        for split in SPLITS:
            done = 0

            def batches(split: Split = split) -> Any:
                nonlocal done
                for batch in iter_pools(self._data, split):
                    yield list(as_pools(batch))
                    done += batch.num_rows
                    self._reporter.advance("tokens", done, self._pool_set.num_pools[split], split)

            write_tokens(folder / f"{split}.arrow", batches(), tokenize, self._pool_set.intents, self._encoder.budget)

    def tokens(self, split: Split) -> Path:
        """The token file of a split."""
        return self._tokens.path / f"{split}.arrow"

    def store(self, split: Split) -> TokenStore:
        """The tokens of a split."""
        return TokenStore(self.tokens(split))

    def _common_inputs(self) -> dict[str, Any]:
        return {
            "tokens": self._tokens.digest,
            "selection": self._selection.model_dump(mode="json"),
            "checkpoint_version": CHECKPOINT_VERSION,
        }

    def post_train(self, ranker: RankerConfig, settings: PostTraining) -> Stage:
        """Masked words and next utterances; one for all labelled fractions, seeds and methods."""
        # Intents and labels play no part, so a ranker without intents serves those with them too.
        bare = ranker.model_copy(update={"intents": ()})
        selection = Selection(
            labelled_fraction=1.0, limit={s: n for s, n in self._selection.limit.items() if s == "train"}
        )
        job = TrainJob(
            kind="post_training",
            ranker=bare,
            loss=BinaryCrossEntropy.Config(),
            training=settings.training,
            post_training=settings,
            selection=selection,
            train_tokens=self.tokens("train"),
            validation_tokens=self.tokens("validation"),
            seed=settings.seed,
        )
        inputs = {
            **self._common_inputs(),
            "selection": selection.model_dump(mode="json"),
            "ranker": _portable(bare, self._backbone_digest),
            "settings": settings.model_dump(mode="json"),
        }
        return self._train("post-training", 0, inputs, job)

    def train(
        self,
        name: str,
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: Any,
        with_intents: bool,
        start: Stage | None,
        pseudo_labels: Stage | None = None,
        number: int = 0,
    ) -> Stage:
        """Train on the labelled pools (and pseudo labels)."""
        seed = self._seed * 1000 + number
        job = TrainJob(
            kind="answers",
            ranker=ranker,
            loss=loss,
            training=training,
            selection=self._selection,
            views_with_intents=with_intents,
            train_tokens=self.tokens("train"),
            validation_tokens=self.tokens("validation"),
            start=start.path / "checkpoint" if start else None,
            pseudo_labels=pseudo_labels.path if pseudo_labels else None,
            seed=seed,
        )
        inputs = {
            **self._common_inputs(),
            "ranker": _portable(ranker, self._backbone_digest),
            "loss": loss.model_dump(mode="json"),
            "training": training.model_dump(mode="json"),
            "with_intents": with_intents,
            "start": start.digest if start else None,
            "pseudo_labels": pseudo_labels.digest if pseudo_labels else None,
            "seed": seed,
        }
        return self._train(name, number, inputs, job)

    def _train(self, name: str, number: int, inputs: dict[str, Any], job: TrainJob) -> Stage:
        stage = self._cache.run(
            name,
            inputs,
            lambda folder: train(job, folder, self._resources, partial(self._reporter.advance, name)),
            kind=name.rpartition("/")[2],
        )
        self._after_stage(name, number, stage)
        return stage

    def score(
        self,
        name: str,
        model: Stage,
        *,
        split: Split,
        part: Part,
        estimator: AbstractEstimator.Config,
        with_intents: bool,
        number: int = 0,
        sample: int | None = None,
    ) -> Shards:
        """Score a part of a split with a model, or `sample` pools of it drawn at random."""
        job = ScoreJob(
            checkpoint=model.path / "checkpoint",
            tokens=self.tokens(split),
            selection=self._selection,
            split=split,
            part=part,
            sample=sample,
            estimator=estimator,
            with_intents=with_intents,
            precision=self._scoring.precision,
            max_tokens_per_batch=self._scoring.max_tokens_per_batch,
            pools_per_shard=self._scoring.pools_per_shard,
            seed=self._seed * 1000 + number,
        )
        inputs = {
            **self._common_inputs(),
            "model": model.digest,
            **job.model_dump(mode="json", exclude={"checkpoint", "tokens", "selection"}),
        }
        stage = self._cache.run(
            name,
            inputs,
            lambda folder: score(job, folder, self._resources, partial(self._reporter.advance, name)),
            kind=f"scores-{split}",
        )
        return Shards(stage)

    def stage(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None]) -> Stage:
        """Any other stage."""
        number = int(name.split("/")[0].removeprefix("round-")) if name.startswith("round-") else 0
        stage = self._cache.run(name, inputs, build, kind=name.rpartition("/")[2])
        self._after_stage(name, number, stage)
        return stage

    def figure(self, model: Stage) -> float:
        """The model's best validation figure while it was trained."""
        return float(read_json(model.path / "result.json")["figure"])


def _portable(ranker: RankerConfig, digest: str) -> dict[str, Any]:
    """A ranker's settings with the backbone's digest instead of its place."""
    fields = ranker.model_dump(mode="json")
    fields["encoder"]["backbone"] = digest
    return fields
