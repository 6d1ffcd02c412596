"""JM: one pass over a whole pool, so that candidates attend to each other."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.data.encoding import Budget
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import BackboneEncoder, Batch, Encoded


@final
class JointEncoder(BackboneEncoder):
    """A context and all its candidates in one sequence (joint matching, Zhang et al. 2021).

    `[CLS] context [SEP] ◆ r₁ [SEP] … ◆ r_C [SEP]` with a marker token ◆ whose embedding is added to the backbone; there
    are no slots for intents (a SettingError). The paper's abstract has the joint matching; the rest is our
    interpretation.
    """

    class Config(BackboneEncoder.Config):
        """Settings of the joint encoder."""

        whole_pools: ClassVar[bool] = True

        budget: Budget = Budget(max_context_tokens=192, max_candidate_tokens=30)
        """Tokens of context and each candidate; ten candidates fit into 512 positions. Of larger pools the longest
        texts are cut first."""

    def __init__(self, config: Config, *, num_intents: int, pretrained: bool = True) -> None:
        if num_intents:
            raise SettingError(
                "a joint encoder learns no intents: its input is a whole pool. Take a regime without intents."
            )
        super().__init__(config, num_intents=1, pretrained=pretrained)  # the marker has the id of the first intent
        self._marker = self.vocabulary

    @override
    def forward(self, batch: Batch) -> Encoded:
        """Encode whole pools; features [N, D], pool by pool, are the states of the markers before the candidates."""
        states_BLD, _ = self.token_states(batch)
        host = batch.on_host()  # numbers of candidates determine shapes, and reading them from a GPU would wait for it
        markers_BL = host.ids_BL == self._marker
        features_ND = states_BLD[_indices(markers_BL, states_BLD.device)]
        return Encoded(states_BLD, features_ND)


def _indices(chosen_BL: Tensor, device: torch.device) -> tuple[Tensor, ...]:
    """Return rows and columns of the chosen elements on a device; a mask there would be waited for."""
    return tuple(to_device(index, device) for index in chosen_BL.nonzero(as_tuple=True))
