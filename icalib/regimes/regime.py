"""Regimes: how labelled and unlabelled pools become one trained ranker, and how it scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from icalib.calibration.calibrator import AbstractCalibrator
from icalib.core.component import Component, ComponentConfig
from icalib.core.job import Artifact, LocalJob, ShardedJob
from icalib.core.stage_cache import Stage, StageName
from icalib.data.generated import Wanted
from icalib.data.schema import Split
from icalib.data.selection import Part, Selection
from icalib.encoders.transformer import AbstractEncoder
from icalib.generation.generator import AbstractGenerator
from icalib.losses.binary import AbstractLoss
from icalib.models.config import RankerConfig
from icalib.regimes.gain import GainRule
from icalib.training.contrast import AbstractContrast
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class MethodParts:
    """What a method hands to its regime; `start` is the stage whose weights training starts from, if any."""

    ranker: RankerConfig
    loss: AbstractLoss.Config
    estimator: AbstractEstimator.Config
    start: Stage | None


@dataclass(frozen=True)
class Augmentation:
    """Texts that were generated for the labelled pools, and what they add to the loss."""

    texts: Stage
    contrast: AbstractContrast.Config


@dataclass(frozen=True)
class AnswerTraining:
    """A training on the labelled pools, and on pseudo labels or generated texts beside them.

    Args:
        ranker, loss, settings: what is trained, and how.
        start: stage whose weights to start from; None starts from the backbone.
        with_intents: learn the intent view and the intents of labelled pools too.
        pseudo_labels: stage of a round's pseudo labels.
        augmentation: generated texts.
    """

    ranker: RankerConfig
    loss: AbstractLoss.Config
    settings: TrainingSettings
    start: Stage | None
    with_intents: bool = False
    pseudo_labels: Stage | None = None
    augmentation: Augmentation | None = None


@dataclass(frozen=True)
class Scoring:
    """Which pools to score, and how; `sample` of them drawn at random, or all."""

    split: Split
    part: Part
    estimator: AbstractEstimator.Config
    with_intents: bool
    sample: int | None = None


class Stages(Protocol):
    """What a regime may ask for; every stage may come from the cache."""

    @property
    def data(self) -> Artifact:
        """The pool folder."""
        ...

    @property
    def selection(self) -> Selection:
        """The run's pools."""
        ...

    @property
    def encoder(self) -> AbstractEncoder.Config:
        """The method's encoder."""
        ...

    def train(self, name: StageName, training: AnswerTraining) -> Stage:
        """Train a ranker; the stage's checkpoint/ holds the best weights."""
        ...

    def train_members(self, names: Sequence[StageName], training: AnswerTraining) -> list[Stage]:
        """Train as many independent members, the first as `train` would, the others with seeds of their own."""
        ...

    def generate(self, wanted: Wanted, num_answers: int, generator: AbstractGenerator.Config) -> Stage:
        """Generate texts for the labelled pools, after fine-tuning the models that the generator needs."""
        ...

    def score(self, name: StageName, model: Artifact, scoring: Scoring) -> Stage:
        """Score pools with a checkpoint; `Shards(stage.path)` reads the scores."""
        ...

    def map(self, name: StageName, job: ShardedJob) -> Stage:
        """Any other stage that is cut into shards."""
        ...

    def compute(self, name: StageName, job: LocalJob) -> Stage:
        """Any other stage that takes little."""
        ...

    def validation_metric(self, model: Stage) -> float:
        """The model's best value on validation while it was trained; greater is better."""
        ...


@dataclass(frozen=True)
class Member:
    """A checkpoint whose predictions count, and the estimator that they come from."""

    model: Artifact
    estimator: AbstractEstimator.Config


@dataclass(frozen=True)
class Trained:
    """A regime's outcome.

    `members` are averaged with equal weights (most regimes have one, untrained rankers none); they come from round
    `chosen_round` of `num_rounds` (round 0 is the teacher).
    """

    members: tuple[Member, ...]
    chosen_round: int = 0
    num_rounds: int = 0


class AbstractRegime(Component):
    """Makes a ranker by asking for stages, and scores pools with it."""

    class Config(ComponentConfig):
        """Base of regimes' settings."""

        trains: ClassVar[bool] = True
        """Whether there is anything to train, plan and load."""

        predicts_scores: ClassVar[bool] = False
        """Whether the logits are scores on a scale of their own, which calibration maps to probabilities."""

        learns_whole_pools: ClassVar[bool] = False
        """Whether losses over whole pools can go with it."""

        compares_logits: ClassVar[bool] = False
        """Whether it compares logits of pairs, which a head with an objective of its own never shows."""

        @property
        def own_calibrator(self) -> AbstractCalibrator.Config | None:
            """The calibrator that it needs, whatever the method's is."""
            return None

        @property
        def reads_twice(self) -> bool:
            """Whether a model's deterministic reading and the estimator's are both members."""
            return False

        def needs_intents(self) -> bool:
            """Whether the data must have intent labels."""
            return False

        def view_rule(self) -> GainRule | None:
            """How a view is chosen at test; None where the plain view is the only one."""
            return None

        def train_negatives(self) -> int | None:
            """Wrong candidates for each right one in training; None where all of a pool are taken."""
            raise NotImplementedError

        def num_epochs(self) -> int:
            """Maximum number of epochs of a whole run: all its trainings on answers together."""
            raise NotImplementedError

        def check(self) -> None:
            """Refuse what can't work before anything is computed."""

    config: Any
    """The settings, of the concrete class."""

    def run(self, stages: Stages, parts: MethodParts) -> Trained:
        """Train, and say which model to evaluate."""
        raise NotImplementedError

    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        """Scores of a split's pools by each member."""
        with_intents = self.config.view_rule() is not None
        return [
            stages.score(scores_name(split, index), member.model, Scoring(split, "all", member.estimator, with_intents))
            for index, member in enumerate(members)
        ]


def checkpoint(stage: Stage) -> Artifact:
    """The checkpoint that a training leaves."""
    return stage.artifact("checkpoint")


def scores_name(split: Split, index: int) -> StageName:
    """The stage of a member's scores."""
    return StageName(f"scores-{index}" if index else "scores", split)
