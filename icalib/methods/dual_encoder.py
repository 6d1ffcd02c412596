"""The bi-encoder after contrastive domain pre-training, without labels: a strong and fast baseline."""

from icalib.methods.method import Method
from icalib.regimes.untrained import Untrained
from icalib.training.domain_pretraining.contrastive import Contrastive


def method() -> Method:
    """Context and candidate are encoded separately."""
    return Method(
        regime=Untrained.Config(scorer="bi-encoder"),
        domain_pretraining=Contrastive.Config(),
        similarity=None,
        intent=None,
    )
