"""The cross-encoder: context and candidate in one sequence through a BERT- or RoBERTa-like backbone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any, ClassVar, NamedTuple, final

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from icalib.core.combination import BACKBONE, DROPOUT, POOL_PROBS, Capabilities
from icalib.core.component import Component, ComponentConfig
from icalib.core.errors import SettingError
from icalib.core.job import ByContent
from icalib.data.encoding import Budget, pad
from icalib.data.encoding import Encoded as EncodedIds
from icalib.encoders.attention import ATTENTION, register_attention
from icalib.encoders.backbone import EMBEDDED, backbone_digest, build_untrained, load_config, load_pretrained
from icalib.encoders.dropout import replace_dropout
from icalib.encoders.spectral_norm import SpectralNorm, bound_layers
from icalib.encoders.transfer import to_device


class Batch(NamedTuple):
    """Encoder inputs: ids and segments [B, L], lengths [B].

    `inputs` are what the tensors were made of, for code that would have to wait for a GPU to read them back.
    `offset_B` is what the ranker's other parts add to each pair's logit; None: nothing.
    """

    ids_BL: Tensor
    segments_BL: Tensor
    lengths_B: Tensor
    inputs: Sequence[EncodedIds] | None = None
    offset_B: Tensor | None = None

    @classmethod
    def of(cls, inputs: Sequence[EncodedIds], padding: int = 0) -> Batch:
        """Return a padded batch in the CPU's memory."""
        ids_BL, segments_BL, lengths_B = (torch.from_numpy(array) for array in pad(inputs, padding))
        return cls(ids_BL, segments_BL, lengths_B, inputs)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        ids_BL, segments_BL, lengths_B = (to_device(tensor, device) for tensor in self[:3])
        offset_B = None if self.offset_B is None else to_device(self.offset_B, device)
        return Batch(ids_BL, segments_BL, lengths_B, self.inputs, offset_B)

    def on_host(self) -> Batch:
        """Return the batch in the CPU's memory; with `inputs`, without waiting for a GPU. Padding has the id 0."""
        if self.ids_BL.device.type == "cpu":
            return self
        if self.inputs is None:
            return Batch(self.ids_BL.cpu(), self.segments_BL.cpu(), self.lengths_B.cpu())
        return Batch.of(self.inputs)


class Encoded(NamedTuple):
    """Last hidden states of a batch, and the answer head's input: a row for each pair, or each candidate of whole
    pools.
    """

    states_BLD: Tensor
    features_BD: Tensor


class AbstractEncoder(Component, nn.Module):
    """Base of encoders, which turn a batch of pairs into token states and `width` features."""

    class Config(ComponentConfig):
        """Base of encoders' settings."""

        whole_pools: ClassVar[bool] = False
        """Whether one input contains all candidates of a pool."""

        backbone: Annotated[str, ByContent(backbone_digest)] = EMBEDDED
        """`minilm` (embedded), a folder, or a hub name such as bert-base-uncased."""
        budget: Budget = Budget()
        """Tokens of context and candidate that the encoder sees."""
        turn_separators: bool = False
        """Write a separator between the utterances of a context."""

        @override
        def provides(self) -> Capabilities:
            return {BACKBONE, DROPOUT}

        @override
        def requires(self) -> Capabilities:
            return {POOL_PROBS} if self.whole_pools else frozenset()

        @property
        def has_backbone(self) -> bool:
            """Whether it contains a pre-trained transformer, which can be post-trained and predicts intents."""
            return BACKBONE in self.provides()

        def for_post_training(self) -> AbstractEncoder.Config:
            """Return the settings of the encoder to post-train, which all methods share."""
            return self

    width: int
    state_width: int
    """Width of `states_BLD`, from which intents and masked tokens are predicted."""
    vocabulary: int
    max_length: int


class BackboneEncoder(AbstractEncoder):
    """An encoder on a pre-trained transformer, with `num_intents` tokens added for the intents.

    It first computes the token states of a pair. The backbone's weights have the same names in all such encoders, so
    that they share one post-trained backbone; they are not loaded (`pretrained`) where a checkpoint's follow.
    """

    class Config(AbstractEncoder.Config):
        """Settings of the transformer."""

        dropout: float | None = Field(default=None, ge=0, lt=1)
        """Dropout of hidden states and attention; None keeps that of the backbone (0.1 in BERT)."""
        num_layers: int | None = Field(default=None, ge=1)
        """Use only the first layers of the backbone; None uses all. Half the layers take half the time."""
        cheap_dropout: bool = True
        """On a CPU, draw dropout masks from 16 random bits for each element: the same distribution at half the cost."""
        spectral_norm: SpectralNorm | None = None
        """Bound the spectral norms of the backbone's linear layers; None for no bound."""

        @override
        def for_post_training(self) -> TransformerEncoder.Config:
            """Return the plain cross-encoder on the same backbone, without bounds."""
            shared: dict[str, Any] = {name: getattr(self, name) for name in BackboneEncoder.Config.model_fields}
            shared["spectral_norm"] = None
            return TransformerEncoder.Config(**shared)

        def load_backbone_config(self) -> Any:
            """Return the transformers config of the backbone with `num_layers` layers; SettingError if it has fewer."""
            loaded = load_config(self.backbone)
            num_layers = self.num_layers or loaded.num_hidden_layers
            if num_layers > loaded.num_hidden_layers:
                raise SettingError(
                    f"encoder.num_layers is {num_layers}, but `{self.backbone}` has "
                    f"{loaded.num_hidden_layers} layers. Give that many or fewer."
                )
            loaded.num_hidden_layers = num_layers
            return loaded

    def __init__(self, config: Config, *, num_intents: int, pretrained: bool = True) -> None:
        super().__init__()
        backbone_config = config.load_backbone_config()
        if config.dropout is not None:
            backbone_config.hidden_dropout_prob = config.dropout
            backbone_config.attention_probs_dropout_prob = config.dropout
        if config.cheap_dropout:
            register_attention()
        attention = ATTENTION if config.cheap_dropout else "sdpa"
        options: dict[str, Any] = {"attn_implementation": attention, "dtype": torch.float32, "add_pooling_layer": False}
        if pretrained:
            backbone = load_pretrained(config.backbone, config=backbone_config, **options)
        else:
            from transformers.initialization import no_init_weights

            # Drawing random weights, to be replaced, is most of what loading takes; only bounds read the initial ones.
            with no_init_weights() if config.spectral_norm is None else nullcontext():
                backbone = build_untrained(config.backbone, backbone_config, **options)
        if config.cheap_dropout:
            replace_dropout(backbone)
        self.state_width: int = backbone_config.hidden_size
        self.width: int = self.state_width
        self.vocabulary: int = backbone_config.vocab_size
        # RoBERTa counts positions from padding_idx + 1, so two of its positions are never used.
        unused = backbone_config.pad_token_id + 1 if "roberta" in backbone_config.model_type else 0
        self.max_length: int = backbone_config.max_position_embeddings - unused
        self.has_segments: bool = getattr(backbone_config, "type_vocab_size", 1) > 1
        if num_intents:
            backbone.resize_token_embeddings(self.vocabulary + num_intents, mean_resizing=False)
        if config.spectral_norm is not None:
            bound_layers(backbone, config.spectral_norm)
        self.backbone = backbone

    def token_states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the last hidden states [B, L, D] and the mask of tokens that aren't padding [B, L]."""
        mask_BL = torch.arange(batch.ids_BL.shape[1], device=batch.ids_BL.device) < batch.lengths_B[:, None]
        segments = {"token_type_ids": batch.segments_BL} if self.has_segments else {}
        output = self.backbone(input_ids=batch.ids_BL, attention_mask=_attention_mask(mask_BL), **segments)
        return output.last_hidden_state, mask_BL


def _attention_mask(mask_BL: Tensor) -> Tensor:
    """Return the mask as transformers takes it: [B, L] on a CPU, else [B, 1, 1, L].

    transformers leaves a mask [B, L] out if it masks nothing, and would wait for a GPU to know that.
    """
    return mask_BL.long() if mask_BL.device.type == "cpu" else mask_BL[:, None, None, :]


@final
class TransformerEncoder(BackboneEncoder):
    """The plain cross-encoder: features are the state of [CLS]."""

    class Config(BackboneEncoder.Config):
        """Settings of the transformer."""

    @override
    def forward(self, batch: Batch) -> Encoded:
        """Encode a batch; padding beyond `lengths_B` changes nothing."""
        states_BLD, _ = self.token_states(batch)
        return Encoded(states_BLD, states_BLD[:, 0])
