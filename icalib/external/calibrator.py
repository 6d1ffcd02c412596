"""A fitted calibrator of another ranker's scores: plain numbers that are saved as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat

from icalib.calibration.fitted import AffineMap, IsotonicMap
from icalib.core.component import Settings, validated_file
from icalib.core.errors import DamagedFileError, RunFolderError
from icalib.core.files import content_digest, read_json, reading, write_json
from icalib.core.storage import location
from icalib.external.pool_features import PoolFeatureMap
from icalib.external.scale import Scale, as_logit
from icalib.metrics.conformal import ConformalThreshold, answer_sets
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores

CALIBRATOR_FILE = "calibrator.json"
CALIBRATOR_VERSION = 1
_CHECKSUM = "checksum"

ScoreMap = Annotated[AffineMap | IsotonicMap | PoolFeatureMap, Field(discriminator="kind")]


class Acceptance(Settings):
    """Accepting the pairs whose probability is at least a threshold, so that most of them are right."""

    precision: float = Field(gt=0, lt=1)
    """The stated precision: the fraction of accepted pairs that are right."""
    prob: float = Field(ge=0, le=1)
    """The threshold."""
    score: FiniteFloat | None
    """The lowest score that it accepts; None where that depends on the pool, or no score seen reaches it."""


class AnswerSets(Settings):
    """Sets of candidates that contain a right one with a stated probability, where there is one."""

    sharpness: Annotated[FiniteFloat, Field(gt=0)]
    """Factor of the logits in each pool's softmax."""
    threshold: ConformalThreshold

    def scores(self, pools: PoolScores, logit: FloatArray) -> PoolScores:
        """Return pools with the logits that their sets are made from."""
        return replace(pools, logit=self.sharpness * logit)

    def contain(self, pools: PoolScores, logit: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which candidates are in their pools' sets, [N]."""
        return answer_sets(self.scores(pools, logit), self.threshold)


class FittedRange(Settings):
    """What the scores were like on which a calibrator was fitted."""

    lowest: FiniteFloat
    highest: FiniteFloat
    fewest_candidates: int = Field(ge=1)
    most_candidates: int = Field(ge=1)
    fraction_right: float = Field(gt=0, lt=1)


class Calibrator(Settings):
    """Maps scores of one ranker, on pools like those it was fitted on, to probabilities."""

    version: Literal[1] = CALIBRATOR_VERSION
    method: str
    """Name of the chosen calibrator."""
    scale: Scale
    map: ScoreMap
    fitted_on: FittedRange
    acceptance: Acceptance | None
    """None where no threshold reaches the stated precision."""
    sets: AnswerSets | None
    """None where there are too few pools."""

    @property
    def needs_pools(self) -> bool:
        """Whether a pair's probability depends on the other candidates."""
        return isinstance(self.map, PoolFeatureMap)

    def prob(self, score: FloatArray, offsets: IntArray) -> FloatArray:
        """Return calibrated probabilities, [N]; `offsets` [B + 1] delimit the pools."""
        return applied(self.map, self.logit(score), offsets)

    def logit(self, score: FloatArray) -> FloatArray:
        """Return scores as the map takes them, [N]."""
        return as_logit(score, self.scale)

    def save(self, folder: Path) -> None:
        """Write the calibrator into a folder, with a checksum by which damage is noticed."""
        value = self.model_dump(mode="json")
        write_json(folder / CALIBRATOR_FILE, {**value, _CHECKSUM: content_digest(value)})

    @classmethod
    def load(cls, folder: Path) -> Calibrator:
        """Read the calibrator in a folder.

        Raises:
            RunFolderError: the folder has none, one of another version, or a damaged one.
        """
        path = folder / CALIBRATOR_FILE
        if not path.is_file():
            raise RunFolderError(
                f"{location(folder)} is not a calibrator: it has no {CALIBRATOR_FILE}. Name a folder that "
                "`icalib calibrate` wrote."
            )
        value = read_json(path)
        if value["version"] != CALIBRATOR_VERSION:
            raise RunFolderError(
                f"{location(path)} has version {value['version']}, this icalib reads version {CALIBRATOR_VERSION}. "
                "Run its `icalib calibrate` command again."
            )
        written = value.pop(_CHECKSUM, None)
        calibrator = validated_file(path, cls, value)
        with reading(path):
            is_same = written in (None, content_digest(value))
        if not is_same:
            cure = f"Run its `icalib calibrate` command again; if you edited it, remove `{_CHECKSUM}`."
            raise DamagedFileError(path, "has other content than was written", cure)
        return calibrator


def applied(fitted: ScoreMap, logit: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the probabilities that a map gives logits, [N]; `offsets` [B + 1] delimit the pools."""
    if isinstance(fitted, PoolFeatureMap):
        return fitted.apply(logit, offsets)
    return fitted.apply(logit)
