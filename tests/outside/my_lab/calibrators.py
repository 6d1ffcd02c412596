"""Calibrators of our own."""

from __future__ import annotations

from typing import final

from scipy.optimize import brentq
from scipy.special import expit

from icalib.calibration.calibrator import AbstractCalibrator, Given
from icalib.calibration.fitted import AffineMap
from icalib.core.combination import PAIR_PROBS, Capabilities
from icalib.metrics.pairs import FloatArray, IntArray

_LARGEST_OFFSET = 50.0


@final
class MeanMatching(AbstractCalibrator):
    """σ(f + b) with the b at which the mean probability is the fraction of right pairs."""

    class Config(AbstractCalibrator.Config):
        """Mean matching has no settings."""

        def requires(self) -> Capabilities:
            """One offset can't match pools whose logits a softmax leaves at any level."""
            return {PAIR_PROBS}

    def __init__(self, config: Config) -> None:
        self.config = config

    def _fit(self, logit_N: FloatArray, label_N: IntArray, given: Given) -> AffineMap:
        def excess(offset: float) -> float:
            return float(expit(logit_N + offset).mean() - label_N.mean())

        middle = -float(logit_N.mean())
        return AffineMap(slope=1.0, offset=brentq(excess, middle - _LARGEST_OFFSET, middle + _LARGEST_OFFSET))
