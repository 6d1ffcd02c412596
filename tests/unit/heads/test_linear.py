from __future__ import annotations

import pytest
import torch

from icalib.core.errors import SettingError
from icalib.heads.linear import LinearHead


def test_a_loss_that_is_already_reduced_is_refused() -> None:
    """Its mean would be spread over the pairs, whose weights then mean nothing."""
    head = LinearHead.Config().build(width=4)
    features, mean, labels = torch.randn(3, 4), torch.zeros(3), torch.ones(3)
    with pytest.raises(SettingError, match="returned one number for 3 pairs; expected a value for each of them"):
        head.losses(features, mean, labels, lambda logits, labels: torch.nn.functional.mse_loss(logits, labels))
