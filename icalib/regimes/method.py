"""A method: encoder × head × loss × uncertainty × regime, as settings; and methods that need no training."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.linear import AbstractHead, LinearHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.regimes.post_training import PostTraining
from icalib.regimes.regime import AbstractRegime
from icalib.regimes.supervised import Supervised
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic


class ScoringSettings(Settings):
    """How pools are scored."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """As in training."""
    max_tokens_per_batch: int = Field(default=8192, ge=512)
    """Padded tokens a forward pass."""
    pools_per_shard: int = Field(default=32, ge=1)
    """Pools that one task scores and one file holds; results depend on it, since it shapes the batches."""


class Method(Settings):
    """A trained method."""

    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    """Turns a pair into features."""
    head: SerializeAsAny[AbstractHead.Config] = LinearHead.Config()
    """Turns features into a logit."""
    similarity_start: bool = True
    """Start from the similarity of context and candidate (see RankerConfig); False is the papers' plain head."""
    loss: SerializeAsAny[AbstractLoss.Config] = BinaryCrossEntropy.Config()
    """What training minimises."""
    uncertainty: SerializeAsAny[AbstractEstimator.Config] = Deterministic.Config()
    """Where probabilities and their uncertainty come from."""
    regime: SerializeAsAny[AbstractRegime.Config] = Supervised.Config()
    """Supervised training or self-training."""
    post_training: PostTraining | None = PostTraining()
    """Post-training on the corpus' own dialogues, shared by all methods; null leaves it out."""
    scoring: ScoringSettings = ScoringSettings()
    """How pools are scored."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.regime.view_rule() is not None and isinstance(self.uncertainty, Deterministic.Config):
            raise ValueError(
                "the intent confidence gain needs an uncertainty estimate: with `uncertainty` deterministic every gain "
                "is 0. Take MCDropout, or a regime without intents (bert, tsst)"
            )
        return self


class Untrained(Settings):
    """A method without training; its probabilities are Platt-scaled on validation."""

    scorer: Literal["bm25", "bi-encoder"]
    """bm25: Okapi BM25 of the candidate given the context, statistics from the candidates of the scored pools.
    bi-encoder: cosine of the mean token states of context and candidate, encoded apart."""
    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    """The bi-encoder's backbone."""
    scoring: ScoringSettings = ScoringSettings()
    """How pools are scored."""
