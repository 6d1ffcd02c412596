"""Configuration of a cross-encoder."""

from __future__ import annotations

from pydantic import SerializeAsAny

from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import Link


class RankerConfig(Settings):
    """Configuration of a cross-encoder: its encoder, head and intents."""

    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    head: SerializeAsAny[AbstractHead.Config] = LinearHead.Config()
    starts_at_zero: bool = False
    """Start the head at 0, where it corrects the ranker's other parts."""
    intents: tuple[str, ...] = ()
    """The intent labels, in the order of the outputs of the intent head, or of the classifier in an encoder without a
    backbone; empty for a ranker without intents."""
    link: Link = "sigmoid"
    """Maps logits to probabilities; determined by the loss."""
