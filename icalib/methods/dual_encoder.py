"""The bi-encoder after contrastive post-training on dialogues and logs, without labels: a strong and fast baseline."""

from icalib.methods.method import Method
from icalib.regimes.untrained import Untrained
from icalib.training.post_training.contrastive import Contrastive


def method() -> Method:
    """Context and candidate are encoded separately."""
    return Method(
        regime=Untrained.Config(scorer="bi-encoder"), post_training=Contrastive.Config(), similarity=None, intent=None
    )
