"""Settings of a ranker's components, whatever regime trains it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SerializeAsAny

from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.parts.intent import Intent
from icalib.parts.similarity import Similarity
from icalib.training.domain_pretraining.contrastive import Contrastive
from icalib.training.domain_pretraining.task import AbstractDomainPretraining
from icalib.training.pretraining import Pretraining
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic


class ScoringSettings(Settings):
    """Settings of scoring."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of forward passes, as in training."""
    max_tokens_per_batch: int = Field(default=65536, ge=512)
    """Maximum number of padded tokens per forward pass on a GPU; at most 1024 are used on a CPU, which is faster
    there."""
    pools_per_shard: int = Field(default=32, ge=1)
    """Number of pools per task and file; results depend on it, because it determines the batches."""


class Composition(Settings):
    """The components of a ranker; `icalib.methods.method.Method` adds how it is trained and calibrated."""

    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    """Turns a pair into features."""
    head: SerializeAsAny[AbstractHead.Config] = LinearHead.Config()
    """Turns features into a logit."""
    similarity: Similarity | None = Similarity()
    """The part that reads context and candidate apart, and how it is trained; null: none."""
    intent: Intent | None = Intent()
    """The part that reads predicted intents, in regimes with intents; null: none, and the
    cross-encoder predicts them."""
    cross: bool = True
    """The part that reads context and candidate together: `encoder`, `head` and `loss`. It corrects the others."""
    loss: SerializeAsAny[AbstractLoss.Config] = BinaryCrossEntropy.Config()
    """Loss that training minimises."""
    uncertainty: SerializeAsAny[AbstractEstimator.Config] = Deterministic.Config()
    """Estimator of probabilities and their uncertainty."""
    domain_pretraining: SerializeAsAny[AbstractDomainPretraining.Config] | None = Contrastive.Config()
    """Domain pre-training on the dialogues of the corpus: contrastive (most methods), utterance-relevance (BERT_FP) or
    utterance-order (GRN); null disables it."""
    pretraining: Pretraining | None = None
    """Models that initialise an encoder without a backbone (IART); null for all others."""
    scoring: ScoringSettings = ScoringSettings()
    """Settings of scoring."""
