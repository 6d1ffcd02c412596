"""SNGP: spectral-normalised features, random-feature Gaussian process, Laplace posterior (Liu et al. 2020)."""

from icalib.heads.random_features import RandomFeatureHead
from icalib.regimes.method import Method
from icalib.uncertainty.estimator import Posterior


def method() -> Method:
    """GPF-BERT without focal loss."""
    return Method(head=RandomFeatureHead.Config(), uncertainty=Posterior.Config())
