"""PG-DRR: a Gaussian-process head with Pólya-Gamma variables, trained and queried by Gibbs chains (Ye et al. 2023)."""

from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.losses.head_objective import HeadObjective
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import Posterior

presets = {"paper-pg": papers.PG | papers.POLYA_GAMMA}


def method() -> Method:
    """One wrong candidate for each right one, the balance of batches and support set; heads learn at 3e-3.

    Among more wrong candidates such probabilities are too high, which the offset of a sum of parts and the calibrator
    correct; the paper's are those of `calibration` null.
    """
    return Method(
        head=PolyaGammaHead.Config(),
        loss=HeadObjective.Config(),
        uncertainty=Posterior.Config(),
        regime=Supervised.Config(training=TrainingSettings(train_negatives=1, head_learning_rate=3e-3)),
    )
