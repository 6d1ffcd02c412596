"""Passes with dropout in a backbone's top layers only: what lies below is computed once for all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from icalib.core.errors import SettingError

_LAYERED = ("bert", "camembert", "roberta", "xlm-roberta")
"""Model types whose layers map states and mask to states, so that they can be called one after another."""


class LowerStates(NamedTuple):
    """States [B, L, D] below a backbone's top `num_top` layers, and the mask as these layers take it."""

    states_BLD: Tensor
    attention_mask: Tensor | None
    num_top: int


def check_dropout_layers(number: int, config: Any, name: str) -> None:
    """Refuse dropout in more layers than a backbone has, and backbones that can't be run layer by layer.

    Args:
        config: transformers' config of the backbone, with the number of layers that are used.

    Raises:
        SettingError: names what to change.
    """
    if config.model_type not in _LAYERED:
        raise SettingError(
            f"uncertainty.dropout_layers is {number}, and `{name}` is a {config.model_type}; only backbones of the "
            f"types {', '.join(_LAYERED)} can be run layer by layer. Leave it out: all layers then have dropout."
        )
    if number > config.num_hidden_layers:
        raise SettingError(
            f"uncertainty.dropout_layers is {number}, but the encoder uses {config.num_hidden_layers} layers of "
            f"`{name}`. Give that many or fewer, or leave it out for dropout in all layers and the embeddings."
        )


def lower_states(backbone: nn.Module, num_top: int, attention_mask: Tensor, **embedded: Any) -> LowerStates:
    """Compute the states below the top `num_top` layers, in the mode (training or evaluation) of the backbone.

    Args:
        backbone: a transformers model of a type that `check_dropout_layers` accepts.
    """
    from transformers.masking_utils import create_bidirectional_mask

    layered: Any = backbone
    states_BLD = layered.embeddings(**embedded)
    mask = create_bidirectional_mask(config=layered.config, inputs_embeds=states_BLD, attention_mask=attention_mask)
    layers = layered.encoder.layer
    for layer in layers[: len(layers) - num_top]:
        states_BLD = layer(states_BLD, mask)
    return LowerStates(states_BLD, mask, num_top)


def upper_states(backbone: nn.Module, lower: LowerStates) -> Tensor:
    """Compute the last hidden states [B, L, D] from those below the top layers."""
    layered: Any = backbone
    layers, states_BLD = layered.encoder.layer, lower.states_BLD
    for layer in layers[len(layers) - lower.num_top :]:
        states_BLD = layer(states_BLD, lower.attention_mask)
    return states_BLD
