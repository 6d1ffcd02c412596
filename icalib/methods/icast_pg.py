"""ICAST with PG-DRR's head: gain, pseudo labels and probabilities from the Gibbs posterior instead of T passes."""

from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.losses.head_objective import HeadObjective
from icalib.methods.method import Method
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.self_training import SelfTraining
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior


def method() -> Method:
    """Thresholds are quantiles of each round's distribution; balanced batches and support set as in `pg-drr`."""
    return Method(
        head=PolyaGammaHead.Config(),
        loss=HeadObjective.Config(),
        uncertainty=Posterior.Config(),
        regime=SelfTraining.Config(
            rule=PseudoLabelRule.quantiles(),
            teacher=TrainingSettings(train_negatives=1, head_learning_rate=3e-3),
            student=TrainingSettings(
                epochs=5, patience=5, learning_rate=2e-5, train_negatives=1, head_learning_rate=3e-3
            ),
        ),
    )
