"""Settings of a method: parts, encoder × head × loss × uncertainty × calibration × regime."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import SerializeAsAny, model_validator

from icalib.calibration.calibrator import AbstractCalibrator, Platt, PoolSoftmax, PriorShift
from icalib.core.combination import Combinable, check_combination
from icalib.core.errors import SettingError
from icalib.losses.focal import FocalLoss
from icalib.metrics.classification import Decision
from icalib.metrics.pairs import IntArray
from icalib.parts.settings import CrossEncoder
from icalib.regimes.regime import AbstractRegime
from icalib.regimes.supervised import Supervised
from icalib.stages.composition import Composition
from icalib.training.settings import TrainingSettings


class Method(Composition):
    """A composition of components, the regime that trains it, and its calibration; see `icalib.methods`."""

    regime: SerializeAsAny[AbstractRegime.Config] = Supervised.Config()
    """Training regime, such as supervised training, an ensemble or self-training."""
    calibration: SerializeAsAny[AbstractCalibrator.Config] | None = PoolSoftmax.Config()
    """Post-hoc calibration fitted on validation: temperature, platt, isotonic, prior-shift, null, or pool-softmax,
    which is platt where a validation pool has several right candidates. It changes probabilities, not the
    ranking. Pseudo labels use probabilities without it; a sum of parts is fitted on validation in any case."""
    decision: Decision = "threshold"
    """Candidates that count as predicted right for P, R and F1: those above a threshold fitted on validation, or each
    pool's best one (argmax, which ICAST's table uses for JM and GRN)."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.regime.trains and not (self.cross or self._has_other_parts):
            raise ValueError("found no part. Set `similarity`, `cross`, or `intent` with a regime that has intents")
        check_combination(self._combined())
        if isinstance(self.calibration, PriorShift.Config):
            self.calibration.for_loss(self.focal_gamma)
        return self

    def _combined(self) -> dict[str, Combinable | None]:
        """Return what works together, by setting; without training there are no parts."""
        cross = CrossEncoder() if self.cross else None
        parts = {"similarity": self.similarity, "intent": self.intent, "cross": cross}
        return {
            "pretraining": self.pretraining,
            "domain_pretraining": self.domain_pretraining,
            **(parts if self.regime.trains else {}),
            "encoder": self.encoder,
            "head": self.head,
            "loss": self.loss,
            "uncertainty": self.uncertainty,
            "regime": self.regime,
            "calibration": self.calibration,
        }

    @property
    def _has_other_parts(self) -> bool:
        """Whether there is a part beside the cross-encoder."""
        return self.similarity is not None or (self.intent is not None and self.regime.needs_intents())

    @property
    def calibrator(self) -> AbstractCalibrator.Config | None:
        """The calibrator that is fitted: Platt scaling for none without training, where scores are no probabilities."""
        calibrator = self.calibration
        if isinstance(calibrator, PriorShift.Config):
            fits = self.regime.trains and not self._has_other_parts
            calibrator = calibrator.for_loss(self.focal_gamma) if fits else None
        return calibrator if self.regime.trains else calibrator or Platt.Config()

    def why_unused(self, path: str) -> str | None:
        """Return why this method doesn't read the setting at a dotted path; None if it does."""
        whole, _, name = path.partition(".")
        if whole == "intent" and name and not self.regime.needs_intents():
            return "it has no intents"
        if whole in ("head", "loss", "uncertainty") and not self.regime.trains:
            return "it is not trained"
        if not self.cross and (whole == "head" or self._is_of_cross_training(whole, name)):
            return "it has no cross-encoder (`cross` is false)"
        return None

    def _is_of_cross_training(self, whole: str, name: str) -> bool:
        training, _, setting = name.partition(".")
        of_regime = whole == "regime" and isinstance(getattr(self.regime, training, None), TrainingSettings)
        return of_regime and setting not in ("", "selection_metric")  # the latter chooses a round, too

    def check(self) -> None:
        """Raise a SettingError, before a run begins, if a setting would have no effect, or a model isn't there."""
        if isinstance(self.calibration, PriorShift.Config) and self.regime.trains and self._has_other_parts:
            raise SettingError(
                "a prior shift is for the cross-encoder alone, as the offset of a sum of parts is fitted to the prior "
                "of validation. Set `similarity` and `intent` to null, or take another `calibration`."
            )
        self.regime.check()
        if self.uncertainty.needs == "dropout":
            self.encoder.check_dropout()

    @property
    def focal_gamma(self) -> float:
        """γ of the focal loss in training, 0 for another loss."""
        return self.loss.gamma if isinstance(self.loss, FocalLoss.Config) else 0.0

    def train_prior(
        self, num_candidates: int | IntArray, unanswerable: float = 0.0, mean_right: float = 1.0
    ) -> float | None:
        """Return the fraction of right pairs among those that determine the probabilities; pseudo labels don't count.

        `num_candidates` are those of each validation pool, as training pools are assumed to have, too.
        It is None without training, and for a sum of parts, which is fitted to validation's. These are the training
        pairs, or the support set. With a softmax it is the fraction in the scored pools, because the probabilities do
        not depend on the number of candidates in training.
        """
        if not self.regime.trains or self._has_other_parts:
            return None
        if self.loss.link == "softmax":
            # a pool's probabilities sum to 1 however many are right, or if none is
            return 1 / float(np.mean(num_candidates))
        support = self.head.pairs_for_posterior
        if support is not None:
            return support.positive_share
        negatives = self.regime.train_negatives()
        per_right = np.max(num_candidates) if negatives is None else negatives
        without = 1 + np.minimum(per_right, np.subtract(num_candidates, 1))
        right = np.minimum(mean_right, num_candidates)
        more = right + np.minimum(per_right * right, np.subtract(num_candidates, right)) - without
        return float((1 - unanswerable) * np.mean(right) / np.mean(without + (1 - unanswerable) * more))
