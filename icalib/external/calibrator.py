"""A fitted calibrator of another ranker's scores: plain numbers that are saved as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, FiniteFloat
from scipy.special import logit

from icalib.calibration.fitted import AffineMap, IsotonicMap
from icalib.core.component import Settings, validated
from icalib.core.errors import DamagedFileError, DataError, RunFolderError, SettingError
from icalib.core.files import content_digest, read_json, reading, write_json
from icalib.core.storage import location
from icalib.metrics.calibration import PROB_CLIP
from icalib.metrics.pairs import FloatArray

CALIBRATOR_FILE = "calibrator.json"
_CHECKSUM = "checksum"
_CURE = f"Run its `icalib calibrate` command again; if you edited it, remove `{_CHECKSUM}`."

Scale = Literal["probability", "logit"]
"""What scores are. `probability`: from 0 to 1, as rankers return them after a sigmoid; `logit`: any other numbers."""


class Measured(Settings):
    """A metric's value with its 95 % interval over queries."""

    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat


class Calibrator(Settings):
    """Maps scores of one ranker, on pools like those it was fitted on, to probabilities."""

    version: Literal[1] = 1
    method: str
    """Name of the chosen method."""
    scale: Scale
    map: Annotated[AffineMap | IsotonicMap, Field(discriminator="kind")]
    """From logits to probabilities."""
    lowest: FiniteFloat
    """Lowest score that it was fitted on."""
    highest: FiniteFloat
    """Highest score that it was fitted on."""
    num_fitted: int = Field(ge=1)
    """Queries that it was fitted on."""
    num_measured: int = Field(ge=1)
    """Queries that the metrics were measured on, none of which it was fitted on."""
    metrics: dict[str, dict[str, Measured]]
    """By method and metric."""

    def prob(self, score: FloatArray) -> FloatArray:
        """Return calibrated probabilities, [N]; see `as_logit` for errors."""
        return self.map.apply(as_logit(score, self.scale))

    def save(self, folder: Path) -> None:
        """Write the calibrator into a folder, with a checksum by which damage is noticed."""
        value = self.model_dump(mode="json")
        write_json(folder / CALIBRATOR_FILE, {**value, _CHECKSUM: content_digest(value)})

    @classmethod
    def load(cls, folder: Path) -> Calibrator:
        """Read the calibrator in a folder; a RunFolderError if it has none, a DamagedFileError if it has changed."""
        path = folder / CALIBRATOR_FILE
        if not path.is_file():
            raise RunFolderError(
                f"{location(folder)} is not a calibrator: it has no {CALIBRATOR_FILE}. Name a folder that "
                "`icalib calibrate` wrote."
            )
        value = dict(read_json(path))
        written = value.pop(_CHECKSUM, None)
        with reading(path):
            is_same = written in (None, content_digest(value))
        if not is_same:
            raise DamagedFileError(path, "has other content than was written", _CURE)
        try:
            return validated(cls, value)
        except SettingError as error:
            raise DamagedFileError(path, f"is not a calibrator ({error})", _CURE) from error


def as_logit(score: FloatArray, scale: Scale) -> FloatArray:
    """Return scores as calibrators take them, [N]; probabilities of 0 and 1 become those of ±16, as in float32."""
    if scale == "logit":
        return score
    if (wrong := score[(score < 0) | (score > 1)]).size:
        raise DataError(
            f"found the score {wrong[0]:g} where probabilities from 0 to 1 were expected",
            "Give probabilities, or fit a calibrator with --scale logit on scores of any range.",
        )
    return logit(np.clip(score, PROB_CLIP, 1 - PROB_CLIP))
