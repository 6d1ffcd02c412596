"""The bi-encoder as a model that can be trained, which contrastive post-training does."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from icalib.data.encoding import Budget, Layout
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.bi_encoder import unit_means
from icalib.encoders.transformer import Batch, TransformerEncoder
from icalib.models.checkpoint import load_ranker_config, read_weights, save_ranker
from icalib.models.config import RankerConfig
from icalib.models.model import Model

PREFIX = "dual_encoder."
"""Starts the names of its weights in a checkpoint."""


class DualEncoder(Model):
    """Encodes contexts and responses separately; all layers of the backbone are used.

    Its weights start both the encoder and the bi-encoder of a ranker: see `start_weights`.

    Args:
        backbone: name of the backbone.
        budget: tokens of context and response that are read.
        pretrained: load the backbone's weights; False if only the layout is used.
    """

    def __init__(self, backbone: str, budget: Budget, *, pretrained: bool = True) -> None:
        super().__init__()
        self._encoder_config = TransformerEncoder.Config(backbone=backbone, budget=budget)
        self.encoder: TransformerEncoder = self._encoder_config.build(num_intents=0, pretrained=pretrained)

    def forward(self, contexts: Batch, responses: Batch) -> tuple[Tensor, Tensor]:
        """Return the vectors of contexts and responses, of length 1; [B, D] each, float32."""
        return unit_means(self.encoder, contexts), unit_means(self.encoder, responses)

    @property
    def layout(self) -> Layout:
        """The layout of contexts and responses."""
        encoder = self._encoder_config
        return Tokenizer(encoder.backbone).layout(encoder.budget, self.encoder.max_length, self.encoder.vocabulary)

    @classmethod
    def load(cls, folder: Path) -> DualEncoder:
        """Load a checkpoint that `save` wrote.

        Raises:
            RunFolderError: the files are missing or damaged.
        """
        config, weights = load_ranker_config(folder).encoder, read_weights(folder)
        loaded = cls(config.backbone, config.budget, pretrained=False)
        loaded.encoder.load_state_dict({name.removeprefix(PREFIX): tensor for name, tensor in weights.items()})
        return loaded

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write a checkpoint for `start_weights`."""
        weights = {f"{PREFIX}{name.removeprefix('encoder.')}": tensor for name, tensor in state.items()}
        save_ranker(folder, RankerConfig(encoder=self._encoder_config), weights)
