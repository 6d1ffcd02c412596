"""GPF-BERT: SNGP's head trained with focal loss (Ye et al. 2023); probabilities from one forward pass."""

from icalib.heads.random_features import RandomFeatureHead
from icalib.losses.focal import FocalLoss
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior

presets = {"paper-gpf": papers.GPF | papers.RANDOM_FEATURES | papers.FOCAL_LOSS}


def method() -> Method:
    """γ = 2; `loss.gamma=0` is `sngp`."""
    return Method(
        head=RandomFeatureHead.Config(),
        loss=FocalLoss.Config(),
        uncertainty=Posterior.Config(),
        regime=Supervised.Config(training=TrainingSettings(head_learning_rate=1e-3)),
    )
