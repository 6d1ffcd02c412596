"""The cross-encoder: context and candidate in one sequence through a backbone."""

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
from icalib.encoders.architecture import (
    check_encoder,
    has_dropout,
    has_segments,
    max_length,
    model_options,
    set_dropout,
    set_num_layers,
    takes_any_mask,
)
from icalib.encoders.attention import ATTENTION, register_attention
from icalib.encoders.backbone import EMBEDDED, backbone_digest, build_untrained, load_config, load_pretrained
from icalib.encoders.dropout import replace_dropout
from icalib.encoders.spectral_norm import SpectralLinear, SpectralNorm, bound_layers
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

    def repeated(self, times: int) -> Batch:
        """Return the batch several times over, as one; [times · B]."""
        if times == 1:
            return self
        tensors = (self.ids_BL.repeat(times, 1), self.segments_BL.repeat(times, 1), self.lengths_B.repeat(times))
        inputs = None if self.inputs is None else list(self.inputs) * times
        return Batch(*tensors, inputs, None if self.offset_B is None else self.offset_B.repeat(times))

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
            """Whether it contains a pre-trained transformer, which can learn from dialogues and predict intents."""
            return BACKBONE in self.provides()

        def for_domain_pretraining(self) -> AbstractEncoder.Config:
            """Return the settings of the encoder to pre-train, which all methods share."""
            return self

        def check_dropout(self) -> None:
            """Raise a SettingError if the dropout that is provided is 0, as in some backbones."""

    width: int
    state_width: int
    """Width of `states_BLD`, from which intents and masked tokens are predicted."""
    vocabulary: int
    max_length: int


class BackboneEncoder(AbstractEncoder):
    """An encoder on a pre-trained transformer, with `num_intents` tokens added for the intents.

    It first computes the token states of a pair. The backbone's weights have the same names in all such encoders, so
    that they share one pre-trained backbone; they are not loaded (`pretrained`) where a checkpoint's follow.
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
        def for_domain_pretraining(self) -> TransformerEncoder.Config:
            """Return the plain cross-encoder on the same backbone, without bounds."""
            shared: dict[str, Any] = {name: getattr(self, name) for name in BackboneEncoder.Config.model_fields}
            shared["spectral_norm"] = None
            return TransformerEncoder.Config(**shared)

        def load_backbone_config(self) -> Any:
            """Return the transformers config of the backbone with `num_layers` layers; SettingError if it has fewer."""
            loaded = load_config(self.backbone)
            check_encoder(self.backbone, loaded)
            num_layers = self.num_layers or loaded.num_hidden_layers
            if num_layers > loaded.num_hidden_layers:
                raise SettingError(
                    f"encoder.num_layers is {num_layers}, but `{self.backbone}` has "
                    f"{loaded.num_hidden_layers} layers. Give that many or fewer."
                )
            set_num_layers(loaded, num_layers)
            return loaded

        @override
        def check_dropout(self) -> None:
            if not (has_dropout(self.load_backbone_config()) if self.dropout is None else self.dropout):
                raise SettingError(
                    f"mc-dropout needs dropout, and that of `{self.backbone}` is 0: all its passes would be the same. "
                    "Set `encoder.dropout`, e.g. to 0.1, or `uncertainty` to deterministic."
                )

    def __init__(self, config: Config, *, num_intents: int, pretrained: bool = True) -> None:
        super().__init__()
        backbone_config = config.load_backbone_config()
        if config.dropout is not None:
            set_dropout(backbone_config, config.dropout)
        register_attention()
        options = model_options(backbone_config, ATTENTION if config.cheap_dropout else "sdpa")
        options["dtype"] = torch.float32
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
        self.max_length: int = max_length(backbone)
        self.has_segments: bool = has_segments(backbone)
        self._takes_any_mask = takes_any_mask(backbone)
        if num_intents:
            backbone.resize_token_embeddings(self.vocabulary + num_intents, mean_resizing=False)
        if config.spectral_norm is not None:
            bound_layers(backbone, config.spectral_norm)
        self.backbone = backbone

    def recompute_layers(self) -> None:
        """Compute the layers again in the backward pass, instead of keeping what is in them; SettingError if it can't.

        Passes without gradients are unchanged.
        """
        name = type(self.backbone).__name__
        if not self.backbone.supports_gradient_checkpointing:
            raise SettingError(
                f"gradient_checkpointing is true, but transformers can't do it in {name}. Set it to false, and raise "
                "gradient_accumulation to save memory."
            )
        if any(isinstance(module, SpectralLinear) for module in self.backbone.modules()):
            raise SettingError(
                f"gradient_checkpointing is true, but {name} has bounds (encoder.spectral_norm) that a second pass "
                "would change. Set one of the two to its default."
            )
        self.backbone.config.use_cache = False  # or EuroBERT warns that it won't
        self.backbone.activation_checkpointing_enable()
        self.backbone.disable_input_require_grads()  # which only frozen embeddings need

    def token_states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the last hidden states [B, L, D] and the mask of tokens that aren't padding [B, L]."""
        mask_BL = torch.arange(batch.ids_BL.shape[1], device=batch.ids_BL.device) < batch.lengths_B[:, None]
        segments = {"token_type_ids": batch.segments_BL} if self.has_segments else {}
        # transformers leaves a mask [B, L] out if it masks nothing, and would wait for a GPU to know that.
        as_it_is = self._takes_any_mask and mask_BL.device.type != "cpu"
        attention_mask = mask_BL[:, None, None, :] if as_it_is else mask_BL.long()
        output = self.backbone(input_ids=batch.ids_BL, attention_mask=attention_mask, **segments)
        return output.last_hidden_state, mask_BL


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
