"""Base of regimes, which train a ranker on labelled and unlabelled pools and score pools with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from typing_extensions import override

from icalib.core.combination import BACKBONE, EPOCHS, PAIR_PROBS, POOL_TEXTS, TRAINING, UNCERTAINTY, Capabilities
from icalib.core.component import Component, ComponentConfig
from icalib.core.job import Artifact, Job
from icalib.core.stage_cache import Stage, StageName
from icalib.data.generated import TextKind
from icalib.data.schema import Split
from icalib.data.selection import Selection, Subset
from icalib.encoders.transformer import AbstractEncoder
from icalib.generation.generator import AbstractGenerator
from icalib.parts.job import PartName
from icalib.parts.sum import SumOfParts
from icalib.scoring.gain import GainRule, IntentChoice
from icalib.training.contrast import AbstractContrast
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class Augmentation:
    """Texts that were generated for the labelled pools, and their loss term."""

    texts: Stage
    contrast: AbstractContrast.Config


@dataclass(frozen=True)
class Scoring:
    """Request to score pools of a part of a split: `sample` random pools, or all.

    `intents` says which predicted ones the intent view has; None: only the plain view is scored.
    """

    split: Split
    part: Subset
    estimator: AbstractEstimator.Config
    intents: IntentChoice | None = None
    sample: int | None = None


@dataclass(frozen=True)
class Trained:
    """The trained parts of a ranker, and the fitted weights of their sum.

    Args:
        name: of the training, in the run.
        parts: checkpoints.
        fit: parts.json; None: one part with w = 1 and b = 0.
        trainings: the stages that trained the parts, for reports.
        first: the model of round 0, whose parts have seen no pseudo labels; None: this one.
        out_of_fold: the earlier parts' columns of the labelled pools, by parts that were trained without them.
    """

    name: StageName
    parts: Mapping[PartName, Artifact]
    fit: Artifact | None = None
    trainings: tuple[Stage, ...] = ()
    first: Trained | None = None
    out_of_fold: Mapping[PartName, tuple[Artifact, ...]] = field(default_factory=dict)

    @property
    def sum(self) -> SumOfParts:
        """The fitted sum."""
        return SumOfParts.alone(next(iter(self.parts))) if self.fit is None else SumOfParts.load(self.fit.path)


@dataclass(frozen=True)
class Student:
    """What a student learns from, beside the labelled pools.

    Args:
        teacher: its parts start the student's.
        pseudo_labels: stage with the labels of unlabelled pools.
        name, scoring: name and request of the scores that they were made from.
        is_control: the labels are the gold labels of labelled pools, which are repeated.
    """

    teacher: Trained
    pseudo_labels: Stage
    name: StageName
    scoring: Scoring
    is_control: bool = False


@dataclass(frozen=True)
class AnswerTraining:
    """Request to train on the labelled pools, and optionally on pseudo labels or generated texts.

    `rule` chooses the view that predicts, and with it intents are trained, too; None: there is the plain view alone.
    """

    settings: TrainingSettings
    rule: GainRule | None = None
    student: Student | None = None
    augmentation: Augmentation | None = None


class Stages(Protocol):
    """Computes stages for a regime, or reads them from the cache."""

    @property
    def data(self) -> Artifact:
        """The pool folder."""
        ...

    @property
    def selection(self) -> Selection:
        """The pools that the run uses."""
        ...

    @property
    def encoder(self) -> AbstractEncoder.Config:
        """The method's encoder."""
        ...

    @property
    def estimator(self) -> AbstractEstimator.Config:
        """The method's estimator."""
        ...

    @property
    def start(self) -> Stage | None:
        """The stage with the initial weights: post-training or pretraining; None: the backbone's."""
        ...

    def tokens(self, split: Split) -> Artifact:
        """Tokenise a split's pools."""
        ...

    def train(self, name: StageName, training: AnswerTraining) -> Trained:
        """Train a ranker's parts and fit their sum."""
        ...

    def train_members(self, names: Sequence[StageName], training: AnswerTraining) -> list[Trained]:
        """Train one independent member per name: the first with the seed of `train`, the others with their own."""
        ...

    def generate(self, wanted: TextKind, num_answers: int, generator: AbstractGenerator.Config) -> Stage:
        """Generate texts for the labelled pools, after fine-tuning the models that the generator needs."""
        ...

    def score(self, name: StageName, model: Trained, scoring: Scoring) -> Stage:
        """Score pools; `Shards(stage.path)` reads the scores."""
        ...

    def run(self, name: StageName, job: Job) -> Stage:
        """Compute a job, or find its stage in the cache."""
        ...


@dataclass(frozen=True)
class Member:
    """A model and an estimator, whose predictions are averaged with those of other members."""

    model: Trained
    estimator: AbstractEstimator.Config


@dataclass(frozen=True)
class Outcome:
    """Result of a regime.

    The predictions of `members` are averaged with equal weights; most regimes have one member, untrained rankers none.
    The members are from round `chosen_round` of `num_rounds`, where round 0 is the teacher.
    """

    members: tuple[Member, ...]
    chosen_round: int = 0
    num_rounds: int = 0


class AbstractRegime(Component):
    """Trains a ranker by requesting stages, and scores pools with it."""

    class Config(ComponentConfig):
        """Base of regimes' settings."""

        trains: ClassVar[bool] = True
        """Whether the regime trains models, which can be loaded. Others have logits on an arbitrary scale."""

        @override
        def provides(self) -> Capabilities:
            if not self.trains:
                return frozenset()
            has_epochs = all(training.epochs for training in self.trainings())
            return {TRAINING, POOL_TEXTS, EPOCHS} if has_epochs else {TRAINING, POOL_TEXTS}

        @override
        def requires(self) -> Capabilities:
            return {BACKBONE, PAIR_PROBS, UNCERTAINTY} if self.needs_intents() else frozenset()

        @property
        def can_be_loaded(self) -> bool:
            """Whether a finished run has models that score any pool by itself."""
            return self.trains

        def needs_intents(self) -> bool:
            """Return whether the data must have intent labels."""
            return self.view_rule() is not None

        def view_rule(self) -> GainRule | None:
            """Return the rule that chooses a view at test; None if only the plain view is used."""
            return None

        def train_negatives(self) -> int | None:
            """Return the number of wrong candidates per right one in the last training; None if all are used."""
            trainings = self.trainings()
            return trainings[-1].train_negatives if trainings else None

        def trainings(self) -> Sequence[TrainingSettings]:
            """Return the settings of each kind of training on answers, in order; the second has pseudo labels."""
            raise NotImplementedError

        def num_epochs(self) -> int:
            """Return the maximum number of epochs of a run, summed over all its trainings on answers."""
            return sum(training.epochs for training in self.trainings())

        def check(self) -> None:
            """Raise a SettingError for settings that can't work, before anything is computed."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def run(self, stages: Stages) -> Outcome:
        """Train, and return the members to evaluate."""
        raise NotImplementedError

    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        """Score a split's pools with each member."""
        rule = self.config.view_rule()
        intents = None if rule is None else rule.intents
        return [
            stages.score(scores_name(split, index), member.model, Scoring(split, "all", member.estimator, intents))
            for index, member in enumerate(members)
        ]


def checkpoint(stage: Stage) -> Artifact:
    """Return the checkpoint in a training stage."""
    return stage.artifact("checkpoint")


def scores_name(split: Split, index: int) -> StageName:
    """Return the name of the stage with a member's scores."""
    return StageName("scores", split, index=index)
