"""A method: encoder × head × loss × uncertainty × regime, as settings; and methods that need no training."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from icalib.calibration.calibrator import AbstractCalibrator
from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.losses.own import HeadObjective
from icalib.regimes.post_training import PostTraining
from icalib.regimes.regime import AbstractRegime
from icalib.regimes.supervised import Supervised
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic


class ScoringSettings(Settings):
    """How pools are scored."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """As in training."""
    max_tokens_per_batch: int = Field(default=8192, ge=512)
    """Padded tokens a forward pass; on a CPU at most 2048, which is faster there."""
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
    """Supervised training, an ensemble, or self-training."""
    calibration: SerializeAsAny[AbstractCalibrator.Config] | None = None
    """Post-hoc calibration fitted on validation: temperature, platt, isotonic, prior-shift, focal-inverse, or null.
    It changes probabilities, never the ranking; pseudo labels see the probabilities before it."""
    post_training: PostTraining | None = PostTraining()
    """Post-training on the corpus' own dialogues, shared by all methods; null leaves it out."""
    scoring: ScoringSettings = ScoringSettings()
    """How pools are scored."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.regime.view_rule() is not None and self.uncertainty.needs == "nothing":
            raise ValueError(
                "the intent confidence gain needs an uncertainty estimate: with `uncertainty` deterministic every gain "
                "is 0. Take mc-dropout or posterior, or a regime without intents (bert, tsst)"
            )
        if self.uncertainty.needs == "posterior" and not self.head.has_posterior:
            raise ValueError(
                f"`uncertainty` asks for a posterior of the logits, and {self.head.owner.__name__} has none. Take "
                "random-feature-head or polya-gamma-head, or mc-dropout for the uncertainty"
            )
        if self.head.own_objective != isinstance(self.loss, HeadObjective.Config):
            wanted = "head-objective" if self.head.own_objective else "a loss of pairs, e.g. binary-cross-entropy"
            raise ValueError(f"{self.head.owner.__name__} goes with {wanted}; found {self.loss.owner.__name__}")
        return self

    def train_prior(self, num_candidates: int) -> float:
        """Share of right pairs among those that shape the probabilities: the training pairs, or the support set."""
        support = self.head.pairs_for_posterior
        if support is not None:
            return support.positive_share
        negatives = self.regime.train_negatives()
        return 1 / (1 + min(negatives or num_candidates, num_candidates - 1))


class Untrained(Settings):
    """A method without training; its probabilities are Platt-scaled on validation."""

    scorer: Literal["bm25", "bi-encoder"]
    """bm25: Okapi BM25 of the candidate given the context, statistics from the candidates of the scored pools.
    bi-encoder: cosine of the mean token states of context and candidate, encoded apart."""
    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    """The bi-encoder's backbone."""
    scoring: ScoringSettings = ScoringSettings()
    """How pools are scored."""
