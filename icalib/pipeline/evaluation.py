"""From members' scores to predictions and metrics: what is fitted on validation, and its use on any pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from icalib.calibration.fitted import AnyMap, prob_logit
from icalib.core.component import Settings, validated_file
from icalib.core.files import read_json, write_json
from icalib.core.run_folder import INTENT_SCHEMA, PREDICTION_SCHEMA
from icalib.core.stage_cache import Stage
from icalib.methods.composition import Method
from icalib.metrics.classification import Decision, fit_threshold
from icalib.metrics.pairs import PoolScores
from icalib.metrics.summary import summarise
from icalib.regimes.gain import ChosenScores, GainRule, choose_views, resolve_gain_rule
from icalib.scoring.job import Shards
from icalib.scoring.scorer import average_members


class Fitted(Settings):
    """What was fitted on validation; it turns scores of any pools into predictions."""

    rule: GainRule
    """Which view to believe, with λ as a number."""
    calibration: AnyMap | None
    """The map from logits of mean probabilities to calibrated ones."""
    decision_threshold: float
    """Pairs above this probability count as right, unless each pool's best one does."""
    decision: Decision = "threshold"
    """By which of the two P, R and F1 are measured."""
    predicts_scores: bool = False
    """Whether logits are scores on a scale of their own, from which the map makes probabilities."""

    def summarise(self, predictions: pa.Table, *, seed: int, also: Sequence[str] = ()) -> pa.Table:
        """All metrics of predictions; see `metrics.summary.summarise`."""
        return summarise(predictions, threshold=self.decision_threshold, decision=self.decision, seed=seed, also=also)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Fitted:
        """Read it.

        Raises:
            RunFolderError: the file holds something else.
        """
        return validated_file(path, cls, read_json(path))


class MemberScores:
    """Scores of one split by all members, shard by shard, averaged."""

    def __init__(self, members: Sequence[Stage]) -> None:
        self._members = [Shards(stage.path) for stage in members]

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """SCORE_SCHEMA and SHARD_INTENT_SCHEMA of each shard."""
        for shards in zip(*self._members, strict=True):
            yield average_members([scores for scores, _ in shards]), shards[0][1]


def fit(validation: MemberScores, method: Method, train_prior: float | None) -> Fitted:
    """Fit λ (where it is a quantile), the calibrator and the decision threshold on validation scores."""
    raw = Fitted(
        rule=resolve_gain_rule(method.regime.view_rule() or GainRule(), validation),
        calibration=None,
        decision_threshold=0.5,
        decision=method.decision,
        predicts_scores=method.regime.predicts_scores,
    )
    scores = PoolScores.from_predictions(prediction_table(validation, raw))
    prob, fitted = scores.prob, None
    if method.calibrator is not None:
        logit = scores.logit if raw.predicts_scores else prob_logit(prob)
        fitted = method.calibrator.build().fit(logit, scores.label, train_prior=train_prior)
        prob = fitted.apply(logit)
    return raw.model_copy(update={"calibration": fitted, "decision_threshold": fit_threshold(prob, scores.label)})


def prediction_table(scores: Iterable[tuple[pa.Table, pa.Table | None]], fitted: Fitted) -> pa.Table:
    """PREDICTION_SCHEMA of the shards of a split, averaged over members."""
    return pa.concat_tables([_predictions(choose_views(*shard, fitted.rule), fitted) for shard in scores])


def _predictions(chosen: ChosenScores, fitted: Fitted) -> pa.Table:
    """A pair whose logit is uncertain is ranked by its mean probability, written as a logit.

    That is what the papers rank by: candidates of a pool differ in variance, so mean logits may order them otherwise.
    Calibration changes probabilities, never the ranking.
    """
    logit = chosen.logit if fitted.predicts_scores else prob_logit(chosen.prob)
    prob = chosen.prob if fitted.calibration is None else fitted.calibration.apply(logit)
    ranking = np.where(chosen.logit_var > 0, logit, chosen.logit)
    if fitted.predicts_scores and fitted.calibration is not None:
        ranking = prob_logit(prob)  # a score's own scale means nothing beside other methods' logits
    columns = {
        "pool_id": chosen.pool_id,
        "candidate": chosen.candidate,
        "label": chosen.gold,
        "view": np.where(chosen.with_intents, "intent", "plain"),
        "logit": ranking,
        "prob": prob,
        "logit_var": chosen.logit_var,
        "prob_var": chosen.prob_var,
        "mutual_information": chosen.information,
        "gain": chosen.gain,
        "num_passes": chosen.num_passes,
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in PREDICTION_SCHEMA], schema=PREDICTION_SCHEMA)


def intent_table(scores: MemberScores, names: tuple[str, ...]) -> pa.Table | None:
    """INTENT_SCHEMA of a split; None where no intents were predicted."""
    rows = [
        {"pool_id": row["pool_id"], "utterance": index, "intents": [names[number] for number in numbers]}
        for _, predicted in scores
        if predicted is not None
        for row in predicted.to_pylist()
        for index, numbers in enumerate(row["intents"])
    ]
    return pa.Table.from_pylist(rows, schema=INTENT_SCHEMA) if rows else None
