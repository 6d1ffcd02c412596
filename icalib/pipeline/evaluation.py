"""From members' scores to predictions and metrics: fitting on validation, and applying the fit to any pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import Field

from icalib.calibration.fitted import AffineMap, AnyMap, pair_logit
from icalib.calibration.none_of_these import MIN_POOLS, NoneOfThese, fit_none_of_these, with_singles
from icalib.core.component import Settings, validated_file
from icalib.core.files import read_json, write_json
from icalib.core.run_tables import INTENT_SCHEMA, PREDICTION_SCHEMA
from icalib.methods.method import Method
from icalib.metrics.classification import Decision, fit_threshold
from icalib.metrics.pairs import P_NONE, IntArray, PoolScores
from icalib.metrics.summary import summarise
from icalib.scoring.column import pool_sizes
from icalib.scoring.gain import ChosenScores, GainRule, Shard, choose_views, resolve_gain_rule

_P_NONE = pa.field(P_NONE, pa.float64())


class Fitted(Settings):
    """View rule, calibration and decision threshold that were fitted on validation."""

    rule: GainRule
    """Rule that chooses the view, with an absolute λ."""
    calibration: AnyMap | None
    """Map from logits of mean probabilities to calibrated probabilities."""
    decision_threshold: float
    """Pairs above this probability are predicted right if `decision` is threshold."""
    decision: Decision = "threshold"
    """Whether P, R and F1 use the threshold, or each pool's best candidate."""
    predicts_scores: bool = False
    """Whether logits are scores on an arbitrary scale, which `calibration` maps to probabilities."""
    none_of_these: NoneOfThese | None = Field(default=None, exclude_if=lambda fitted: fitted is None)
    """Map from a pool's logits to the probability that none is right; None without such validation pools."""

    @property
    def prediction_schema(self) -> pa.Schema:
        """Schema of prediction tables: PREDICTION_SCHEMA, and p_none if it was fitted."""
        return PREDICTION_SCHEMA if self.none_of_these is None else PREDICTION_SCHEMA.append(_P_NONE)

    @property
    def of_pairs(self) -> Fitted:
        """The values for pairs whose pool isn't known."""
        return self if self.calibration is None else self.model_copy(update={"calibration": self.calibration.of_pairs})

    @property
    def uncalibrated(self) -> Fitted:
        """The values without a calibrator; scores that are no probabilities keep one, for pairs."""
        return self.of_pairs if self.predicts_scores else self.model_copy(update={"calibration": None})

    def summarise(self, predictions: pa.Table, *, seed: int, also: Sequence[str] = ()) -> pa.Table:
        """Compute all metrics of predictions; see `metrics.summary.summarise`."""
        return summarise(predictions, threshold=self.decision_threshold, decision=self.decision, seed=seed, also=also)

    def save(self, path: Path) -> None:
        """Write a JSON file."""
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Fitted:
        """Read a JSON file, or raise a RunFolderError."""
        return validated_file(path, cls, read_json(path))


def fit(validation: Sequence[Shard], method: Method, train_prior: Callable[[IntArray], float | None]) -> Fitted:
    """Fit λ (if it is a quantile), the calibrator, the decision threshold and p_none on validation scores.

    `train_prior` gives the fraction of right pairs in training from the pools' numbers of candidates.
    """
    raw = Fitted(
        rule=resolve_gain_rule(method.regime.view_rule() or GainRule(), validation),
        calibration=None,
        decision_threshold=0.5,
        decision=method.decision,
        predicts_scores=not method.regime.trains,
    )
    scores = PoolScores.from_predictions(prediction_table(validation, raw))
    found = raw
    if method.calibrator is not None:
        logit = scores.logit if raw.predicts_scores else pair_logit(scores.prob, scores.logit)
        sizes_P = scores.sizes()
        prior = train_prior(sizes_P)
        fitted = method.calibrator.build().fit(logit, scores.label, train_prior=prior, sizes_P=sizes_P)
        found = raw.model_copy(update={"calibration": fitted})
    num_unanswerable = int((~scores.answerable).sum())
    if min(num_unanswerable, scores.num_pools - num_unanswerable) >= MIN_POOLS:
        ranking = PoolScores.from_predictions(prediction_table(validation, found)).logit
        none_of_these = fit_none_of_these(ranking, scores.offsets, scores.answerable)
        found = found.model_copy(update={"none_of_these": none_of_these})
    elif num_unanswerable:
        found = found.of_pairs  # a softmax over the pool would ignore that none may be right
    prob = PoolScores.from_predictions(prediction_table(validation, found)).prob
    return found.model_copy(update={"decision_threshold": fit_threshold(prob, scores.label)})


def prediction_table(scores: Iterable[Shard], fitted: Fitted) -> pa.Table:
    """Return the predictions (`Fitted.prediction_schema`) of the scored shards of a split."""
    return pa.concat_tables([_predictions(choose_views(*shard, fitted.rule), fitted) for shard in scores])


def _predictions(chosen: ChosenScores, fitted: Fitted) -> pa.Table:
    """Return predictions; calibration changes probabilities, never the ranking."""
    logit = chosen.logit if fitted.predicts_scores else pair_logit(chosen.prob, chosen.logit)
    ranking = chosen.ranking
    if fitted.predicts_scores and isinstance(of_pairs := fitted.of_pairs.calibration, AffineMap):
        # the scale of scores isn't comparable with the logits of other methods
        ranking = of_pairs.slope * logit + of_pairs.offset
    sizes, p_none = pool_sizes(chosen.row), None
    if fitted.none_of_these is not None:
        p_none = fitted.none_of_these.p_none(ranking, np.cumsum(np.append(0, sizes)))
        map_ = fitted.of_pairs.calibration
        p_none = with_singles(p_none, chosen.prob if map_ is None else map_.apply(logit), sizes)
    prob = chosen.prob if fitted.calibration is None else fitted.calibration.apply(logit, sizes, p_none)
    columns = {
        "pool_id": chosen.pool_id,
        "candidate": chosen.candidate,
        "label": chosen.gold,
        "view": chosen.view,
        "logit": ranking,
        "prob": prob,
        "logit_var": chosen.logit_var,
        "prob_var": chosen.prob_var,
        "mutual_information": chosen.information,
        "gain": chosen.gain,
        "num_passes": chosen.num_passes,
    }
    if p_none is not None:
        columns[P_NONE] = np.repeat(p_none, sizes)
    return pa.table(columns, schema=fitted.prediction_schema)


def intent_table(scores: Sequence[Shard], names: tuple[str, ...]) -> pa.Table | None:
    """Return the predicted intents of a split (INTENT_SCHEMA); None if there are none."""
    rows = [
        {"pool_id": row["pool_id"], "utterance": index, "intents": [names[intent] for intent in ids]}
        for _, predicted in scores
        if predicted is not None
        for row in predicted.to_pylist()
        for index, ids in enumerate(row["intents"])
    ]
    return pa.Table.from_pylist(rows, schema=INTENT_SCHEMA) if rows else None
