"""What transformers' encoders differ in, found in their configurations, classes and modules."""

from __future__ import annotations

from inspect import signature
from typing import Any

from icalib.core.errors import SettingError

_DROPOUT = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
)
"""What configurations call the dropout of an encoder, that of hidden states first."""
_UNUSABLE = {
    **dict.fromkeys(("convbert", "fnet", "nystromformer"), "reads padding"),
    **dict.fromkeys(("funnel", "ibert", "perceiver"), "has an interface of its own"),
}
"""Families that are refused, and why. Some mix positions without the mask, by convolutions or Fourier transforms: what
else is in a batch would change a pair's score.
"""


def check_encoder(name: str, config: Any) -> None:
    """Raise a SettingError unless the transformers config of the backbone `name` is that of an encoder."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    problem = _UNUSABLE.get(config.model_type, "")
    if config.is_encoder_decoder or type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        problem = "is no encoder with masked words"
    if problem:
        raise SettingError(
            f"the backbone `{name}` is of the family `{config.model_type}`, which {problem}. "
            "Give one like BERT, RoBERTa, MPNet, ELECTRA, DeBERTa-v2, DistilBERT, ALBERT, ModernBERT or EuroBERT."
        )


def model_options(config: Any, attention: str) -> dict[str, Any]:
    """Return the options that make an encoder without a pooler; with `attention`, unless it only has its own."""
    from transformers import MODEL_MAPPING

    model_class: Any = MODEL_MAPPING[type(config)]
    chosen = attention if getattr(model_class, "_supports_attention_backend", False) else "eager"
    pooler = {"add_pooling_layer": False} if "add_pooling_layer" in signature(model_class).parameters else {}
    return {"attn_implementation": chosen, **pooler}


def set_dropout(config: Any, p: float) -> None:
    """Set all dropout of an encoder to be built."""
    for name in _DROPOUT:
        if hasattr(config, name):
            setattr(config, name, p)


def dropout_of(config: Any) -> float:
    """Return the dropout of hidden states, or another where there is none."""
    return float(next(getattr(config, name) for name in _DROPOUT if hasattr(config, name)))


def has_dropout(config: Any) -> bool:
    """Return whether an encoder has any dropout; some are published with none."""
    return any(getattr(config, name, 0.0) for name in _DROPOUT)


def set_num_layers(config: Any, num_layers: int) -> None:
    """Keep the first layers of an encoder to be built."""
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:num_layers]


def max_length(backbone: Any) -> int:
    """Return the number of tokens that an encoder can read."""
    positions = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    # With a position for padding (RoBERTa, MPNet) those of tokens begin after it.
    return backbone.config.max_position_embeddings - (0 if padding is None else padding + 1)


def has_segments(backbone: Any) -> bool:
    """Return whether an encoder tells the candidate's tokens from the context's by `token_type_ids`."""
    is_read = "token_type_ids" in signature(backbone.forward).parameters
    return is_read and getattr(backbone.config, "type_vocab_size", 0) > 1


def takes_any_mask(backbone: Any) -> bool:
    """Return whether a mask [B, 1, 1, L] is used as it is by every layer: it must be of a kind that the attention
    reads, and leave nothing to add to it, such as windows.
    """
    config = backbone.config
    return config._attn_implementation != "eager" and getattr(config, "sliding_window", None) is None
