"""What a finished run can promise about its answers."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.metrics.conformal import ConformalThreshold, answer_sets, fit_conformal
from icalib.metrics.pairs import IntArray, PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.risk_control import RiskControl, control_risk

MAX_ERRORS = (0.05, 0.1, 0.2)
"""The α of the promises that reports list."""
CONFIDENCE = 0.9
_KEPT = 128  # clients of a server choose coverages, so that there is no end of different ones


class Guarantees:
    """Promises and answer sets of a finished run; each is fitted once, when it is first needed.

    They are tested and fitted on the run's test pools, which have chosen nothing. Epoch, round, calibrator and
    threshold are those that suit the validation pools, which makes these easier than later pools; they only propose
    the thresholds that are tested.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.promise = lru_cache(_KEPT)(self._control_risk)
        self.conformal = lru_cache(_KEPT)(self._fit_conformal)

    @cached_property
    def validation(self) -> PoolScores:
        """Scores of the validation pools."""
        return PoolScores.from_predictions(self._folder.predictions("validation"))

    @cached_property
    def validation_sizes(self) -> IntArray:
        """Numbers of candidates of the validation pools, ascending."""
        return np.unique(np.diff(self.validation.offsets))

    @cached_property
    def tested(self) -> PoolScores:
        """Scores of the labelled test pools; a DataError if the run has none."""
        if self._folder.has_predictions("test"):
            predictions = self._folder.predictions("test")
            if (predictions["label"].to_numpy() == 1).any():
                return PoolScores.from_predictions(predictions)
        raise DataError(
            "the run has no labelled test pools, on which promises are tested and answer sets are fitted",
            "Use a run whose pools have a labelled test split.",
            path=self._folder.path,
        )

    def covered(self, scores: PoolScores) -> npt.NDArray[np.bool_]:
        """Return which pools [B] have a number of candidates that promises were tested on."""
        return np.isin(np.diff(scores.offsets), np.diff(self.tested.offsets))

    def sets(self, scores: PoolScores, coverage: float) -> npt.NDArray[np.bool_]:
        """Return which candidates are in answer sets, [N]: all candidates of pools that are not covered."""
        return answer_sets(scores, self.conformal(coverage)) | ~self.covered(scores)[scores.pool]

    def _control_risk(self, max_error: float, confidence: float = CONFIDENCE) -> RiskControl:
        return control_risk(top_candidate(self.tested), top_candidate(self.validation), max_error, confidence)

    def _fit_conformal(self, coverage: float) -> ConformalThreshold:
        return fit_conformal(self.tested, coverage)
