"""The loss of bi-encoders: which text of a batch belongs to which context?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icalib.data.encoding import Keys
from icalib.encoders.transfer import to_device


def in_batch_losses(vectors_BTD: Tensor, keys_BT: Keys, number_B: npt.NDArray[np.int64], temperature: float) -> Tensor:
    """Compare each context with the texts of all contexts of the batch that differ from its own target (Henderson et
    al. 2017).

    Args:
        vectors_BTD: of length 1: the context, its target, and T − 2 further texts of each example.
        keys_BT: the texts' keys, those of the targets first; [B, T − 1]. Equal texts have equal keys.
        number_B: how many of an example's T − 1 texts count, the first ones; the others only fill it up.

    Returns:
        Negative log-likelihood of each target in a softmax over the texts, [B].
    """
    contexts_BD, texts_ND = vectors_BTD[:, 0], vectors_BTD[:, 1:].flatten(0, 1)
    logits_BN = contexts_BD @ texts_ND.T / temperature
    num_texts = keys_BT.shape[1]
    is_rival_BN = keys_BT[:, :1] != keys_BT.reshape(1, -1)
    is_rival_BN &= (np.arange(num_texts) < number_B[:, None]).reshape(1, -1)
    target_B = np.arange(len(keys_BT)) * num_texts
    is_rival_BN[np.arange(len(keys_BT)), target_B] = True
    logits_BN = logits_BN.masked_fill(to_device(torch.from_numpy(~is_rival_BN), logits_BN.device), -torch.inf)
    targets_B = to_device(torch.from_numpy(target_B), logits_BN.device)
    return nn.functional.cross_entropy(logits_BN, targets_B, reduction="none")
