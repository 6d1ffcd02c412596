"""SNGP: spectral-normalised features, random-feature Gaussian process, Laplace posterior (Liu et al. 2020)."""

from icalib.heads.random_features import RandomFeatureHead
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior

presets = {
    "paper-gpf": papers.GPF | papers.RANDOM_FEATURES,
    "paper-pg": papers.PG | papers.SNGP_OF_PG,
    "released": {
        "head.num_features": 2048,
        "head.ridge": 2 / 2048,
        "head.effective_n": 1000.0,
        "head.laplace": "ema",
        "head.likelihood": "gaussian",
        "uncertainty.integration": "mean_field",
        "uncertainty.mean_field_factor": 0.1,
        "calibration": None,
    },
}
"""`released`: posterior variances and probabilities as the code of SNGP's authors scales them, without a calibrator.
They don't scale random features by √(2/L) and have a ridge s = 1/1000, which is `ridge` 2/L and `effective_n` 1/s here.
"""


def method() -> Method:
    """GPF-BERT without focal loss; a fresh head needs a higher learning rate than the encoder."""
    return Method(
        head=RandomFeatureHead.Config(),
        uncertainty=Posterior.Config(),
        regime=Supervised.Config(training=TrainingSettings(head_learning_rate=1e-3)),
    )
