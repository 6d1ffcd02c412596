"""ICAST with GPF-BERT's head: gain, pseudo labels and probabilities from one forward pass a view instead of T."""

from icalib.heads.random_features import RandomFeatureHead
from icalib.losses.focal import FocalLoss
from icalib.methods.method import Method
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.self_training import SelfTraining
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior


def method() -> Method:
    """Thresholds are quantiles of each round's distribution, since the posterior's scale is not MC dropout's."""
    return Method(
        head=RandomFeatureHead.Config(),
        loss=FocalLoss.Config(),
        uncertainty=Posterior.Config(),
        regime=SelfTraining.Config(
            rule=PseudoLabelRule.quantiles(),
            teacher=TrainingSettings(head_learning_rate=1e-3),
            student=TrainingSettings(epochs=5, patience=5, learning_rate=2e-5, head_learning_rate=1e-3),
        ),
    )
