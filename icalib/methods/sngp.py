"""SNGP: spectral-normalised features, random-feature Gaussian process, Laplace posterior (Liu et al. 2020)."""

from icalib.heads.random_features import RandomFeatureHead
from icalib.methods.composition import Method
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior


def method() -> Method:
    """GPF-BERT without focal loss; a fresh head needs a higher learning rate than the encoder."""
    return Method(
        head=RandomFeatureHead.Config(),
        uncertainty=Posterior.Config(),
        regime=Supervised.Config(training=TrainingSettings(head_learning_rate=1e-3)),
    )
