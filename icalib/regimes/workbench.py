"""What a regime may ask for: trained models and scored pools. Ray does the work in use, one process in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, SerializeAsAny, TypeAdapter

from icalib.core.component import Settings
from icalib.core.stages import Stage
from icalib.core.stored import Stored
from icalib.data.schema import Split
from icalib.data.selection import Part, Selection
from icalib.losses.binary import AbstractLoss
from icalib.regimes.augmented_answers import AbstractContrast
from icalib.regimes.generators.generator import AbstractGenerator, Wanted
from icalib.regimes.generators.language_model import GeneratorJob
from icalib.regimes.post_training.kind import AbstractPostTraining
from icalib.regimes.preliminary.intent_classifier import IntentClassifierJob
from icalib.regimes.preliminary.word_vectors import WordVectorJob
from icalib.regimes.ranker import RankerConfig
from icalib.regimes.training import Precision, TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator


class TrainJob(Settings):
    """One training run: everything a worker needs, with paths to what lies on disk.

    `kind` tells which curriculum: answers (labelled and pseudo-labelled pools) or post_training.
    """

    kind: Literal["answers", "post_training"]
    ranker: RankerConfig
    loss: SerializeAsAny[AbstractLoss.Config]
    training: TrainingSettings
    post_training: SerializeAsAny[AbstractPostTraining.Config] | None = None
    selection: Selection
    views_with_intents: bool = False
    """Learn the intent view and the intents of labelled pools too."""
    train_tokens: Stored
    validation_tokens: Stored
    start: Stored | None = None
    """Checkpoint whose weights to start from; None starts from the backbone."""
    pseudo_labels: Stored | None = None
    """Folder of pseudo-label shards to learn from beside the labelled pools."""
    contrast: SerializeAsAny[AbstractContrast.Config] | None = None
    """What made-up texts add to the loss; None learns from the pools alone."""
    made_up: Stored | None = None
    """Token file of the made-up texts."""
    seed: int


AnyTrainJob = Annotated[TrainJob | GeneratorJob | WordVectorJob | IntentClassifierJob, Field(discriminator="kind")]
"""A training run of a ranker, of a language model that makes up texts, or of what a ranker starts from."""


def read_train_job(text: str) -> AnyTrainJob:
    """A training job that travelled as JSON."""
    return TypeAdapter[AnyTrainJob](AnyTrainJob).validate_json(text)


class ScoreJob(Settings):
    """One scoring run over a part of a split, cut into shards."""

    checkpoint: Stored
    tokens: Stored
    selection: Selection
    split: Split
    part: Part
    sample: int | None = None
    """Score so many pools of the part, drawn by seed; None scores all."""
    estimator: SerializeAsAny[AbstractEstimator.Config]
    with_intents: bool
    precision: Precision
    max_tokens_per_batch: int
    pools_per_shard: int
    seed: int


@dataclass(frozen=True)
class Augmentation:
    """Texts that were made up for the labelled pools, and what they add to the loss."""

    texts: Stage
    contrast: AbstractContrast.Config


@dataclass(frozen=True)
class Shards:
    """A folder of scored shards: `scores-<n>.parquet` and, with intents, `intents-<n>.parquet`."""

    stage: Stage

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """SCORE_SCHEMA and SHARD_INTENT_SCHEMA, one shard after the other: memory doesn't grow with the pool."""
        for path in sorted(self.stage.path.glob("scores-*.parquet")):
            intents = path.with_name(path.name.replace("scores-", "intents-"))
            yield pq.read_table(path), pq.read_table(intents) if intents.is_file() else None


class Workbench(Protocol):
    """Runs stages; every answer may come from the cache."""

    def post_train(self, ranker: RankerConfig, settings: AbstractPostTraining.Config) -> Stage:
        """Learn from the corpus' own dialogues; the checkpoint's folder."""
        ...

    def train(
        self,
        name: str,
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        with_intents: bool,
        start: Stage | None,
        pseudo_labels: Stage | None = None,
        augmentation: Augmentation | None = None,
        number: int = 0,
    ) -> Stage:
        """Train on the labelled pools (and pseudo labels, or made-up texts); the checkpoint's folder."""
        ...

    def generate(self, wanted: Wanted, num_answers: int, generator: AbstractGenerator.Config) -> Stage:
        """Make up texts for the labelled pools, after fine-tuning the models that the generator needs."""
        ...

    def train_members(
        self,
        names: Sequence[str],
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        start: Stage | None,
    ) -> list[Stage]:
        """Train as many independent members on the labelled pools, the first as `train` would."""
        ...

    def score(
        self, name: str, model: Stage, *, split: Split, part: Part, estimator: AbstractEstimator.Config,
        with_intents: bool, number: int = 0, sample: int | None = None,
    ) -> Shards:  # fmt: skip
        """Score a part of a split with a model, or `sample` pools of it drawn at random."""
        ...

    def stage(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None]) -> Stage:
        """Any other stage."""
        ...

    def figure(self, model: Stage) -> float:
        """The model's best validation figure while it was trained; greater is better."""
        ...
