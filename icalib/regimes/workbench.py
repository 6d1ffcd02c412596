"""What a regime may ask for: trained models and scored pools. Ray does the work in use, one process in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from icalib.core.stage_cache import Stage
from icalib.data.generated import Wanted
from icalib.data.schema import Split
from icalib.data.selection import Part
from icalib.generation.generator import AbstractGenerator
from icalib.losses.binary import AbstractLoss
from icalib.models.config import RankerConfig
from icalib.scoring.job import Shards
from icalib.training.job import Augmentation
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator


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
