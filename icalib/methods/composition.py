"""Settings of a method: encoder × head × loss × uncertainty × calibration × regime."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from icalib.calibration.calibrator import AbstractCalibrator, FocalInverse, PriorShift
from icalib.core.component import Settings, short_name
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import AbstractLoss, BinaryCrossEntropy
from icalib.losses.focal import FocalLoss
from icalib.losses.head_objective import HeadObjective
from icalib.metrics.classification import Decision
from icalib.models.config import SimilarityOf
from icalib.regimes.regime import AbstractRegime
from icalib.regimes.supervised import Supervised
from icalib.training.bi_encoder import BiEncoderTraining
from icalib.training.post_training.contrastive import Contrastive
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.pretraining.settings import Pretraining
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
    similarity_start: SimilarityOf = "separate"
    """Add the similarity of context and candidate to the logit, encoded `together` by the model, `separate`ly by a
    bi-encoder, which post-training and `bi_encoder_training` train, or `both` (see RankerConfig); `none` is the papers'
    plain head."""
    bi_encoder_training: BiEncoderTraining | None = BiEncoderTraining()
    """Training of the bi-encoder of a `similarity_start` that is `separate` or `both` on the labelled (and
    pseudo-labelled) pools, before the rest; null keeps it as post-training leaves it."""
    loss: SerializeAsAny[AbstractLoss.Config] = BinaryCrossEntropy.Config()
    """Loss that training minimises."""
    uncertainty: SerializeAsAny[AbstractEstimator.Config] = Deterministic.Config()
    """Estimator of probabilities and their uncertainty."""
    regime: SerializeAsAny[AbstractRegime.Config] = Supervised.Config()
    """Training regime, such as supervised training, an ensemble or self-training."""
    calibration: SerializeAsAny[AbstractCalibrator.Config] | None = None
    """Post-hoc calibration fitted on validation: temperature, platt, isotonic, prior-shift, focal-inverse, or null.
    It changes probabilities, never the ranking. Pseudo labels use probabilities without it; a trained bi-encoder's
    slope and offset are fitted on validation in any case."""
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

    def _check_epochs(self) -> None:
        """Refuse trainings without epochs whose initial weights don't rank yet: see `TrainJob.start_ranks`."""
        trainings = self.regime.trainings()
        learns_intents = bool(trainings) and not trainings[0].epochs and self.regime.needs_intents()
        needs_steps = self.similarity_start == "none" or (self.head.has_posterior and not self.head.looks_at_pairs)
        if learns_intents or (needs_steps and not all(training.epochs for training in trainings)):
            raise ValueError(
                "found `epochs` 0, with which the initial weights are the result, and these don't rank yet: they need "
                "a `similarity_start`, and epochs to learn intents or sum up a posterior. Set `epochs` to 1 or more"
            )

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
        trainings = self.regime.trainings()
        ranks_by_bi_encoder = self.similarity_start == "separate" and bool(trainings) and not trainings[0].epochs
        if self.uncertainty.needs == "dropout" and ranks_by_bi_encoder:
            raise ValueError(
                "found `epochs` 0 with mc-dropout: the bi-encoder of the initial weights has no dropout, so all passes "
                "would be the same. Set `epochs` to 1 or more, or `uncertainty` to deterministic"
            )
        if self.uncertainty.needs == "dropout" and not self.encoder.has_dropout:
            raise ValueError(
                f"{self.encoder.owner.__name__} has no dropout, so all passes of mc-dropout would be the same. Use "
                "`uncertainty` deterministic, or posterior on random-feature-head or polya-gamma-head"
            )

    def _check_calibration(self) -> None:
        calibration, gamma = self.calibration, self.focal_gamma
        if not isinstance(calibration, FocalInverse.Config | PriorShift.Config):
            return
        if gamma is None or calibration.gamma not in (None, gamma):
            assumed = "the loss's γ" if calibration.gamma is None else f"γ = {calibration.gamma:g}"
            raise ValueError(
                f"{short_name(calibration.owner)} inverts a focal loss of {assumed}, and this model is trained with "
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
        self._check_epochs()
        if not self.regime.trains and not isinstance(self.post_training, Contrastive.Config | None):
            raise ValueError(
                f"without training, a method ranks by a bi-encoder, which {self.post_training.owner.__name__} doesn't "
                "give. Set `post_training` to contrastive, or to null"
            )
        if self.similarity_start in ("separate", "both") and (
            self.encoder.whole_pools or not self.encoder.has_backbone
        ):
            raise ValueError(
                f"`similarity_start` {self.similarity_start} encodes context and candidate separately with the "
                f"backbone, and {encoder} reads whole pools or has none. Set it to together or none"
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
        """The calibrator that is fitted: the regime's if it requires one, else the method's."""
        calibrator = self.regime.own_calibrator or self.calibration
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
