"""Configuration of a ranker."""

from __future__ import annotations

from typing import Literal

from pydantic import SerializeAsAny

from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import Link

SimilarityOf = Literal["none", "together", "separate", "both"]


class RankerConfig(Settings):
    """Configuration of a ranker: its encoder, head and intents."""

    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    head: SerializeAsAny[AbstractHead.Config] = LinearHead.Config()
    similarity_start: SimilarityOf = "together"
    """Add a·s + b to the head's logit, with trained a and b, where s is the cosine of the mean states of context and
    candidate. With few labels, training then starts from the knowledge of the sentence encoder. `together`: the states
    are those of the jointly encoded pair. `separate`: they come from a bi-encoder of its own, which encodes the two
    separately and isn't trained with the rest (see a method's `bi_encoder_training`). `both`: the two cosines with a
    slope each; the bi-encoder ranks well from the start, and training teaches the joint one to compare.
    `none`: the papers' plain head on [CLS]. b and the separate cosine's slope are first fitted to labelled pools, and
    the head starts at 0, so that training begins with the bi-encoder's ranking."""
    intents: tuple[str, ...] = ()
    """The intent labels, in the order of the outputs of the intent head, or of the classifier in an encoder without a
    backbone; empty for a ranker without intents."""
    link: Link = "sigmoid"
    """Maps logits to probabilities; determined by the loss."""

    @property
    def has_bi_encoder(self) -> bool:
        """Whether the checkpoint contains a bi-encoder of its own."""
        return self.similarity_start in ("separate", "both")
