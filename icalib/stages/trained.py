"""What the stages of a ranker's parts take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from icalib.core.job import Artifact
from icalib.core.stage_cache import Stage, StageName
from icalib.data.schema import Split
from icalib.data.selection import Subset
from icalib.parts.job import PartName
from icalib.parts.sum import SumOfParts
from icalib.scoring.gain import IntentChoice
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class Scoring:
    """Which pools of a split are scored, and how: `sample` random ones, or all.

    `intents` says which predicted ones the intent view has; None: only the plain view is scored.
    """

    split: Split
    of: Subset
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
        return SumOfParts.fitted(self.fit.path if self.fit else None, self.parts)


@dataclass(frozen=True)
class Student:
    """What a student learns from, beside the labelled pools.

    Args:
        teacher: its parts start the student's.
        pseudo_labels: stage with the labels of unlabelled pools.
        scores_name, scoring: of the scores that they were made from.
        is_control: the labels are the gold labels of labelled pools, which are repeated.
    """

    teacher: Trained
    pseudo_labels: Stage
    scores_name: StageName
    scoring: Scoring
    is_control: bool = False


def checkpoint(stage: Stage) -> Artifact:
    """Return the checkpoint in a training stage."""
    return stage.artifact("checkpoint")
