"""What scores are: probabilities, or numbers on an arbitrary scale."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import expit, logit

from icalib.metrics.calibration import PROB_CLIP
from icalib.metrics.pairs import FloatArray

Scale = Literal["probability", "logit"]
"""`probability`: numbers from 0 to 1, as services return them after a sigmoid. `logit`: any other numbers."""


def detected_scale(score: FloatArray) -> Scale:
    """Return `probability` where all scores are from 0 to 1."""
    return "probability" if bool(((score >= 0) & (score <= 1)).all()) else "logit"


def as_logit(score: FloatArray, scale: Scale) -> FloatArray:
    """Return scores as calibrators take them, [N]; probabilities of 0 and 1 become those of ±16, as in float32."""
    if scale == "logit":
        return score
    return logit(np.clip(score, PROB_CLIP, 1 - PROB_CLIP))


def as_prob(score: FloatArray, scale: Scale) -> FloatArray:
    """Return what scores say as probabilities before calibration, [N]."""
    return score if scale == "probability" else expit(score)
