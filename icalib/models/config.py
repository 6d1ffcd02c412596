"""What a ranker is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, SerializeAsAny

from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import Link

SimilarityOf = Annotated[
    Literal["none", "together", "both"],
    BeforeValidator(lambda value: {True: "together", False: "none"}.get(value, value)),  # it was a switch once
]


class RankerConfig(Settings):
    """What a ranker is made of."""

    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    head: SerializeAsAny[AbstractHead.Config] = LinearHead.Config()
    similarity_start: SimilarityOf = "together"
    """Add a·s + b to the head's logit, with a and b learnt: s is the cosine of the mean states of context and
    candidate. It lets few labels start from what a sentence encoder already knows. `together`: states of the pair as
    the model reads it. `both`: plus the cosine that the untrained backbone has when it reads the two apart, as a
    bi-encoder; a copy of it, which never learns, lies in the checkpoint. `none` is the papers' plain head on [CLS]."""
    intents: tuple[str, ...] = ()
    """The intent labels, in the order of the outputs of the intent head, or of the classifier that an encoder without
    a backbone holds; empty for a ranker without intents."""
    link: Link = "sigmoid"
    """How logits become probabilities; the loss decides."""
