"""What answers need of a run's labelled pools; a server asks for the same fits again and again."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from icalib.calibration.by_count import fit_for_count
from icalib.calibration.fitted import AffineMap
from icalib.core.run_folder import RunFolder
from icalib.core.seeding import child_seed
from icalib.data.schema import Split
from icalib.metrics.adaptive_sets import AdaptiveThreshold, adaptive_sets, fit_adaptive, fit_slope
from icalib.metrics.conformal import ConformalThreshold, answer_sets, fit_conformal
from icalib.metrics.exchangeability import ShiftTest, compare_statistics, pool_statistics
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.metrics.ranking import TopCandidate, top_candidate
from icalib.metrics.risk_control import RiskControl, control_risk
from icalib.metrics.selective import SelectiveRisk, selective_risk
from icalib.pipeline.guarantees import demanded, pools_for_sets, tested_and_others

_KEPT = 128  # clients choose coverages and numbers of candidates, so that there is no end of different ones


class LabelledFits:
    """The labelled pools of a finished run, and what is fitted to them; a fit is computed when it is first needed.

    Args:
        folder: the run.
        seed: determines the random draws for pools of unusual sizes.
    """

    def __init__(self, folder: RunFolder, seed: int) -> None:
        self._folder, self._seed = folder, seed
        remembered = lru_cache(_KEPT)
        self.selective = remembered(self._selective)
        self._controlled = remembered(self._control)
        self._map_for = remembered(self._fit_map)
        self._conformal = remembered(self._fit_conformal)
        self._adaptive = remembered(self._fit_adaptive)

    @cached_property
    def validation(self) -> PoolScores:
        """Scores of the validation pools."""
        return PoolScores.from_predictions(self._folder.predictions("validation"))

    @property
    def tested(self) -> PoolScores:
        """Scores of the pools that promises and answer sets are fitted on."""
        return self._pools_for_sets[0]

    @property
    def split(self) -> Split:
        """The split of these."""
        return self._pools_for_sets[1]

    @cached_property
    def validation_sizes(self) -> IntArray:
        """Numbers of candidates of the validation pools, ascending."""
        return np.unique(np.diff(self.validation.offsets))

    def calibrated(self, scores: PoolScores) -> PoolScores:
        """Return the scores with probabilities for their numbers of candidates where validation has none of that size.

        One candidate alone keeps its probability: that it is right if one of them is says nothing.
        """
        sizes, prob = np.diff(scores.offsets), scores.prob.copy()
        for size in map(int, np.setdiff1d(sizes[sizes > 1], self.validation_sizes)):
            chosen = (sizes == size)[scores.pool]
            prob[chosen] = self._map_for(size).apply(scores.logit[chosen])
        return replace(scores, prob=prob)

    def promise(self, max_error: float, confidence: float) -> RiskControl:
        """Return the threshold with at most this fraction of wrong answers; see `demanded` for errors."""
        return demanded(self._controlled(max_error, confidence), self._folder)

    def sets(self, scores: PoolScores, coverage: float) -> npt.NDArray[np.bool_]:
        """Return which candidates are in answer sets [N]; those of pools of unusual sizes don't depend on the size.

        Args:
            scores: the pools that need sets.
            coverage: probability with which a set contains a right candidate.

        Raises:
            SettingError, DataError: see `fit_conformal`.
        """
        in_set = answer_sets(scores, self._conformal(coverage))
        sizes = np.diff(scores.offsets)
        for size in map(int, np.setdiff1d(sizes, self._tested_sizes)):
            alike = sizes == size
            in_set[alike[scores.pool]] = adaptive_sets(
                scores.subset(alike), self._adaptive(size, coverage), seed=self._seed
            )
        return in_set

    def covered(self, scores: PoolScores) -> npt.NDArray[np.bool_]:
        """Return which pools [B] have a number of candidates that promises were tested on."""
        return np.isin(np.diff(scores.offsets), self._tested_sizes)

    def num_unusual(self, scores: PoolScores) -> int:
        """Return how many pools have another number of candidates than those of validation."""
        return int((~np.isin(np.diff(scores.offsets), self.validation_sizes)).sum())

    def compared(self, scores: PoolScores) -> ShiftTest | None:
        """Test whether the questions are like the pools that promises rest on; None if none has a usual size."""
        covered = self.covered(scores)
        if not covered.any():
            return None
        return compare_statistics(pool_statistics(scores.subset(covered)), self._statistics)

    @cached_property
    def _pools_for_sets(self) -> tuple[PoolScores, Split]:
        return pools_for_sets(self._folder)

    @cached_property
    def _pools_for_promises(self) -> tuple[TopCandidate, TopCandidate]:
        return tested_and_others(self._folder)

    @cached_property
    def _tested_sizes(self) -> IntArray:
        return np.unique(np.diff(self.tested.offsets))

    @cached_property
    def _statistics(self) -> dict[str, FloatArray]:
        return pool_statistics(self.tested)

    @cached_property
    def _slope(self) -> float:
        return fit_slope(self.validation)

    def _selective(self, coverage: float) -> SelectiveRisk:
        """Return the threshold that answers this fraction of the validation pools, and its risk."""
        top = top_candidate(self.validation)
        return selective_risk(top.prob, 1 - top.hit, coverage)

    def _control(self, max_error: float, confidence: float) -> RiskControl:
        return control_risk(*self._pools_for_promises, max_error, confidence)

    def _fit_map(self, num_candidates: int) -> AffineMap:
        return fit_for_count(self.validation, num_candidates)

    def _fit_conformal(self, coverage: float) -> ConformalThreshold:
        return fit_conformal(self.tested, coverage)

    def _fit_adaptive(self, num_candidates: int, coverage: float) -> AdaptiveThreshold:
        draws = child_seed(self._seed, "sets", num_candidates)
        return fit_adaptive(self.tested, num_candidates, coverage, slope=self._slope, seed=draws)
