"""Settings of a method: parts, encoder × head × loss × uncertainty × calibration × regime."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from icalib.calibration.calibrator import AbstractCalibrator, Platt, PriorShift
from icalib.core.component import Settings
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.losses.focal import FocalLoss
from icalib.losses.head_objective import HeadObjective
from icalib.metrics.classification import Decision
from icalib.parts.intent import Intent
from icalib.parts.similarity import Similarity
from icalib.regimes.regime import AbstractRegime
from icalib.regimes.supervised import Supervised
from icalib.training.post_training.contrastive import Contrastive
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.pretraining import Pretraining
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic


class ScoringSettings(Settings):
    """Settings of scoring."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of forward passes, as in training."""
    max_tokens_per_batch: int = Field(default=8192, ge=512)
    """Maximum number of padded tokens per forward pass; at most 2048 are used on a CPU, which is faster there."""
    pools_per_shard: int = Field(default=32, ge=1)
    """Number of pools per task and file; results depend on it, because it determines the batches."""


class Method(Settings):
    """A composition of components; see `icalib.methods`."""

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
    regime: SerializeAsAny[AbstractRegime.Config] = Supervised.Config()
    """Training regime, such as supervised training, an ensemble or self-training."""
    calibration: SerializeAsAny[AbstractCalibrator.Config] | None = None
    """Post-hoc calibration fitted on validation: temperature, platt, isotonic, prior-shift, pool-softmax, or null.
    It changes probabilities, never the ranking. Pseudo labels use probabilities without it; the weights of a sum of
    parts are fitted on validation in any case."""
    decision: Decision = "threshold"
    """Candidates that count as predicted right for P, R and F1: those above a threshold fitted on validation, or each
    pool's best one (argmax, which ICAST's table uses for JM and GRN)."""
    post_training: SerializeAsAny[AbstractPostTraining.Config] | None = Contrastive.Config()
    """Post-training on the dialogues of the corpus: contrastive (most methods), utterance-relevance (BERT_FP) or
    utterance-order (GRN); null disables it."""
    pretraining: Pretraining | None = None
    """Models that initialise an encoder without a backbone (IART); null for all others."""
    scoring: ScoringSettings = ScoringSettings()
    """Settings of scoring."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._check_start()
        self._check_parts()
        self._check_uncertainty()
        if self.head.own_objective != isinstance(self.loss, HeadObjective.Config):
            wanted = "head-objective" if self.head.own_objective else "a loss of pairs, e.g. binary-cross-entropy"
            raise ValueError(
                f"found {self.loss.owner.__name__} with {self.head.owner.__name__}, which expects {wanted}. "
                "Change `loss` or `head`"
            )
        if self.head.own_objective and self.regime.compares_logits:
            raise ValueError(
                f"{self.regime.owner.__name__} compares logits of pairs in training, and {self.head.owner.__name__} "
                "has its own objective, which provides none. Use linear-head or random-feature-head"
            )
        self._check_calibration()
        if self.loss.link == "softmax":
            self._check_whole_pools()
        elif self.encoder.whole_pools:
            raise ValueError(
                f"{self.encoder.owner.__name__} reads whole pools, and {self.loss.owner.__name__} is a loss of single "
                "pairs. Use pool-cross-entropy, or another encoder"
            )
        return self

    def _check_parts(self) -> None:
        """Refuse sums that can't be trained."""
        others = [name for name in ("similarity", "intent") if getattr(self, name) is not None]
        if not self.regime.trains:
            return
        if self.cross and not all(training.epochs for training in self.regime.trainings()):
            raise ValueError("found `epochs` 0, with which a cross-encoder learns nothing. Set `cross` to false")
        if not self.cross and self.similarity is None and not (self.intent is not None and self.regime.needs_intents()):
            raise ValueError("found no part. Set `similarity`, `cross`, or `intent` with a regime that has intents")
        if not self.cross and (self.uncertainty.needs == "posterior" or self.loss.link == "softmax"):
            raise ValueError(
                f"found `cross` false with {self.head.owner.__name__} and {self.loss.owner.__name__}, which are those "
                "of the cross-encoder. Set it to true"
            )
        reason = None
        if not self.encoder.has_backbone:
            reason = f"{self.encoder.owner.__name__} has no pre-trained backbone, which they need"
        elif self.loss.link == "softmax":
            reason = f"{self.loss.owner.__name__} gives probabilities to whole pools"
        elif self.regime.compares_logits:
            reason = f"{self.regime.owner.__name__} trains on generated texts, for which they have no values"
        if others and reason:
            raise ValueError(f"found the parts {' and '.join(others)}, but {reason}. Set them to null")

    def _check_uncertainty(self) -> None:
        if self.uncertainty.needs == "nothing" and self.regime.view_rule() is not None:
            raise ValueError(
                "the intent confidence gain needs an uncertainty estimate: with `uncertainty` deterministic every gain "
                "is 0. Use mc-dropout or posterior, or a regime without intents (bert, tsst)"
            )
        if self.uncertainty.needs == "nothing" and self.regime.reads_twice:
            raise ValueError(
                f"{self.regime.owner.__name__} as configured evaluates one model twice, deterministically and by "
                "`uncertainty`, which is also deterministic. Use mc-dropout or posterior, or members=independent"
            )
        if self.uncertainty.needs == "posterior" and not self.head.has_posterior:
            raise ValueError(
                f"`uncertainty` needs a posterior of the logits, and {self.head.owner.__name__} has none. Use "
                "random-feature-head or polya-gamma-head, or mc-dropout for the uncertainty"
            )
        if self.uncertainty.needs == "dropout" and not self.encoder.has_dropout:
            raise ValueError(
                f"{self.encoder.owner.__name__} has no dropout, so all passes of mc-dropout would be the same. Use "
                "`uncertainty` deterministic, or posterior on random-feature-head or polya-gamma-head"
            )

    def _check_calibration(self) -> None:
        calibration, gamma = self.calibration, self.focal_gamma
        if isinstance(calibration, PriorShift.Config) and (gamma is None or calibration.gamma not in (None, gamma)):
            assumed = "the loss's γ" if calibration.gamma is None else f"γ = {calibration.gamma:g}"
            raise ValueError(
                f"prior-shift inverts a focal loss of {assumed}, and this model is trained with "
                + (f"γ = {self.loss.gamma}" if isinstance(self.loss, FocalLoss.Config) else self.loss.owner.__name__)
                + ". Set `calibration.gamma` to the loss's γ (flsd-53 has no inverse), or use platt or temperature"
            )

    def _check_start(self) -> None:
        encoder = self.encoder.owner.__name__
        if self.encoder.has_backbone and self.pretraining is not None:
            raise ValueError(
                f"`pretraining` trains word vectors and an intent classifier for iart, and {encoder} has a pre-trained "
                "backbone instead. Set it to null, or `encoder` to iart"
            )
        if not self.encoder.has_backbone and (self.post_training is not None or self.regime.needs_intents()):
            raise ValueError(
                f"{encoder} has no pre-trained backbone, which post-training and the prediction of intents need. Set "
                "`post_training` to null and use a regime without intents, or use another encoder"
            )
        if not self.regime.trains and not isinstance(self.post_training, Contrastive.Config | None):
            raise ValueError(
                f"without training, a method ranks by a bi-encoder, which {self.post_training.owner.__name__} doesn't "
                "give. Set `post_training` to contrastive, or to null"
            )

    def _check_whole_pools(self) -> None:
        loss = self.loss.owner.__name__
        if not self.regime.learns_whole_pools or self.regime.needs_intents():
            raise ValueError(
                f"{loss} needs whole pools, and {self.regime.owner.__name__} with its "
                "settings also trains on intents or on labels of single pairs. Use supervised or ensemble without "
                "intents, or a loss of pairs, e.g. binary-cross-entropy"
            )
        if self.uncertainty.needs != "nothing" or self.head.has_posterior:
            raise ValueError(
                f"found {self.uncertainty.owner.__name__} on {self.head.owner.__name__}; {loss} has probabilities from "
                "a softmax over a pool, for which no uncertainty estimate is implemented. Use `uncertainty` "
                "deterministic on linear-head, or a loss of pairs, e.g. binary-cross-entropy"
            )

    @property
    def calibrator(self) -> AbstractCalibrator.Config | None:
        """The calibrator that is fitted: Platt scaling without training, where scores are no probabilities."""
        calibrator = self.calibration if self.regime.trains else Platt.Config()
        if isinstance(calibrator, PriorShift.Config):
            return calibrator.model_copy(update={"gamma": self.focal_gamma})
        return calibrator

    @property
    def focal_gamma(self) -> float | None:
        """γ of the focal loss in training, 0 for another loss; None for flsd-53, which has no inverse."""
        if not isinstance(self.loss, FocalLoss.Config):
            return 0.0
        return None if self.loss.gamma == "flsd-53" else self.loss.gamma

    def train_prior(self, num_candidates: int, unanswerable: float = 0.0, mean_right: float = 1.0) -> float | None:
        """Return the fraction of right pairs among those that determine the probabilities; None without training.

        These are the training pairs, or the support set. With a softmax it is the fraction in the scored pools, because
        the probabilities do not depend on the number of candidates in training.
        """
        if not self.regime.trains:
            return None
        if self.loss.link == "softmax":
            return (1 - unanswerable) / num_candidates  # a pool's probabilities sum to 1 however many are right
        support = self.head.pairs_for_posterior
        if support is not None:
            return support.positive_share
        negatives = self.regime.train_negatives()
        per_right = negatives or num_candidates
        without = 1 + min(per_right, num_candidates - 1)
        more = mean_right + min(per_right * mean_right, num_candidates - mean_right) - without
        return (1 - unanswerable) * mean_right / (without + (1 - unanswerable) * more)
