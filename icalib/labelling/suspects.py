"""Which labels of a run's training pools are probably wrong, by models that were trained without them.

Confident learning (Northcutt, Jiang & Chuang 2021, "Confident Learning: Estimating Uncertainty in Dataset Labels",
Eq. 1 and 2): a label is wrong if a model that has not seen it gives another class a probability that is at least as
high as labels of that class have on average. A candidate's number is no class, so all of them share one threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icalib.core.errors import SettingError
from icalib.core.job import Artifact
from icalib.core.parquet import read_parquet
from icalib.data.pools import as_pools, read_column, read_pool_set, read_rows
from icalib.data.schema import Pool, PoolSet
from icalib.metrics.pairs import FloatArray, IntArray, PoolScores
from icalib.parts.sum import column_files, scores_of_parts
from icalib.pipeline.evaluation import prediction_table
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.run import RunContext, stages_of
from icalib.regimes.regime import AbstractRegime
from icalib.training.domain_pretraining.contrastive import Contrastive


@dataclass(frozen=True)
class Suspect:
    """A labelled pool whose label is probably wrong; indices are those of candidates, from 0.

    Args:
        labelled: the right candidate, of several the least probable; None: none is labelled right.
        labelled_prob: probability of that label to a model that has not seen it.
        preferred, preferred_prob: the most probable one of the other candidates.
    """

    pool: Pool
    labelled: int | None
    labelled_prob: float
    preferred: int
    preferred_prob: float


@dataclass(frozen=True)
class Suspects:
    """Labels of a run's training pools that are probably wrong.

    Args:
        suspects: the likeliest, as many as were asked for, the likeliest first.
        num_suspects, num_labelled: of all labels that look wrong, and of all labels.
        pool_set, data, fraction: the pools, their folder, and the fraction of the training pools that is labelled.
    """

    suspects: tuple[Suspect, ...]
    num_suspects: int
    num_labelled: int
    pool_set: PoolSet
    data: Path
    fraction: float

    def as_json(self) -> dict[str, Any]:
        """Return the suspects and the numbers as one JSON-able object."""
        suspects = [{**asdict(one), "pool": one.pool.model_dump(mode="json")} for one in self.suspects]
        return {"num_suspects": self.num_suspects, "num_labelled": self.num_labelled, "suspects": suspects}


@dataclass(frozen=True)
class Doubts:
    """How probable the label of B pools is, and their best other candidate; all arrays are [B].

    `labelled` is −1 where no candidate is labelled right.
    """

    labelled: IntArray
    labelled_prob: FloatArray
    preferred: IntArray
    preferred_prob: FloatArray

    @classmethod
    def of(cls, scores: PoolScores) -> Doubts:
        """Compare the least probable right candidate of each pool with the most probable other one.

        The label that none is right has the probability p_none, or 1 − that of the best where p_none was not fitted.
        """
        is_right_N, starts_B = scores.label == 1, scores.offsets[:-1]
        right = [found.argmin() for found in scores.split(np.where(is_right_N, scores.prob, 2.0))]
        other = np.array([found.argmax() for found in scores.split(np.where(is_right_N, -1.0, scores.prob))])
        other_prob = np.where(is_right_N, 0.0, scores.prob)[starts_B + other]  # 0 where all candidates are right
        p_none = 1 - other_prob if scores.p_none is None else scores.p_none
        return cls(
            labelled=np.where(scores.answerable, right, -1),
            labelled_prob=np.where(scores.answerable, scores.prob[starts_B + right], p_none),
            preferred=other,
            preferred_prob=other_prob,
        )

    @property
    def margin(self) -> FloatArray:
        """How much more probable the other candidate is; the larger, the likelier the label is wrong."""
        return self.preferred_prob - self.labelled_prob

    @property
    def looks_wrong(self) -> npt.NDArray[np.bool_]:
        """Whether the other candidate is more probable than the label, and as probable as labels are on average."""
        return (self.margin > 0) & (self.preferred_prob >= self.labelled_prob.mean())


def find_suspects(run: FinishedRun, number: int, folds: int, context: RunContext) -> Suspects:
    """Return at most `number` labels that are probably wrong; errors are those of `out_of_fold_predictions`."""
    data, pool_set = run.config.data, read_pool_set(run.config.data)
    run.folder.check_trained_on(data, pool_set.digest)
    rows = run.config.selection.rows("train", "labelled", read_column(data, "train", "label_order"))
    names = read_rows(data, "train", rows, ["pool_id", "dialog_id"])
    if (num_dialogues := len(names["dialog_id"].unique())) < folds:
        raise SettingError(
            f"the labelled pools of {run.folder.path} are of {num_dialogues} dialogues; expected {folds} or more, at "
            "least one for each fold. Choose fewer folds (from 2), or label more pools."
        )
    scores = PoolScores.from_predictions(out_of_fold_predictions(run, pool_set, folds, context))
    doubts = Doubts.of(scores)
    order = np.argsort(-doubts.margin, kind="stable")
    chosen = order[doubts.looks_wrong[order]][:number].tolist()
    row_of = dict(zip(names["pool_id"].to_pylist(), rows.tolist(), strict=True))
    found = [row_of[scores.pool_ids[index]] for index in chosen]
    pools = as_pools(read_rows(data, "train", found)) if found else ()
    suspects = tuple(
        Suspect(
            pool=pool,
            labelled=int(doubts.labelled[index]) if scores.answerable[index] else None,
            labelled_prob=float(doubts.labelled_prob[index]),
            preferred=int(doubts.preferred[index]),
            preferred_prob=float(doubts.preferred_prob[index]),
        )
        for index, pool in zip(chosen, pools, strict=True)
    )
    num_suspects = int(doubts.looks_wrong.sum())
    return Suspects(suspects, num_suspects, scores.num_pools, pool_set, data, run.config.labelled)


def out_of_fold_predictions(run: FinishedRun, pool_set: PoolSet, folds: int, context: RunContext) -> pa.Table:
    """Return predictions of a run's labelled pools by models that were trained without the pools of their dialogues.

    A cross-encoder is trained on top of earlier parts' logits that are out of fold for its own pools, but come from
    models that have seen the pools left out here. Settings are those of the run's first model: the teacher of
    self-training, the first member of an ensemble. Its stages are read from the cache, and weights, view rule and
    calibration are those that the run has fitted on validation.

    Raises:
        SettingError: the run's method isn't trained, or was pre-trained on all labels.
    """
    config, method = run.config, run.config.settings
    if not method.regime.trains:
        raise SettingError(
            f"{run.folder.path} is a run of `{config.method}`, which isn't trained on labels. Give a run of a method "
            "that is, such as bert or icast."
        )
    if isinstance(method.domain_pretraining, Contrastive.Config) and method.domain_pretraining.targets == "replies":
        raise SettingError(
            f"{run.folder.path} was pre-trained on the labels of all training pools (`domain_pretraining.targets` is "
            "replies), so that no fold is unseen. Give a run with another value, such as the default."
        )
    stages = stages_of(config, pool_set, context)
    regime: AbstractRegime = method.regime.build()
    training = regime.teacher(stages)
    model = training.train()
    columns = {part: _joined(artifacts) for part, artifacts in training.out_of_fold(model, folds).items()}
    scores = scores_of_parts(columns, model.sum, stages.estimator, softmax=method.loss.link == "softmax")
    intents = None
    if training.rule is not None:  # which intents were read is not asked for where a view is chosen
        rows = scores["row"].unique()
        intents = pa.table({"row": rows, "intents": [[]] * len(rows)})
    return prediction_table([(scores, intents)], run.fitted)


def _joined(folds: Sequence[Artifact]) -> pa.Table:
    """Return the columns of all folds, in the order of the pools' rows."""
    table = pa.concat_tables([read_parquet(path) for fold in folds for path in column_files(fold.path)])
    return table.sort_by([("row", "ascending"), ("candidate", "ascending")])
