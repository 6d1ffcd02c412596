"""Answering questions with a finished run in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from icalib.core.seeding import child_seed
from icalib.data.questions import Question
from icalib.data.schema import Pool
from icalib.metrics.pairs import P_NONE, PoolScores
from icalib.pipeline.answering import Answering, AnswerOptions, Predicted
from icalib.pipeline.evaluation import prediction_table
from icalib.pipeline.inference import FinishedRun
from icalib.scoring.loaded import Loaded

_NO_OPTIONS = AnswerOptions()


def predict(
    run: FinishedRun,
    questions: Sequence[Question],
    options: AnswerOptions = _NO_OPTIONS,
    *,
    members: Loaded | None = None,
    answering: Answering | None = None,
) -> Predicted:
    """Answer questions.

    Args:
        run: a run of a method with a model.
        questions: one or more.
        options: what is asked for besides each question's best candidate.
        members: the run's models if they are already loaded.
        answering: what the run's earlier questions were answered by, which has read its labelled pools.

    Raises:
        SettingError: the method has no model to load, or an option is out of range.
        DataError: there are too few pools for such sets, or for such a promise.
    """
    answering = answering or Answering(run)
    answering.check(options)
    pools = [question.pool(f"{index:09d}", run.folder.context_turns) for index, question in enumerate(questions)]
    scores = score_unlabelled(run, members or run.load_members(), pools)
    return answering.answers(questions, scores, options)


def score_unlabelled(run: FinishedRun, members: Loaded, pools: Sequence[Pool]) -> PoolScores:
    """Score pools with unknown labels in this process; their ids must ascend."""
    return unlabelled_scores(unlabelled_predictions(run, members, pools), pools)


def unlabelled_predictions(run: FinishedRun, members: Loaded, pools: Sequence[Pool]) -> pa.Table:
    """Return the predictions of pools with unknown labels, scored in this process; their ids must ascend."""
    shard = run.settings.settings.scoring.pools_per_shard
    with tempfile.TemporaryDirectory() as folder:
        store = members.tokenize(pools, Path(folder) / "questions.arrow")
        tables = [
            prediction_table(
                [
                    members.score(
                        store,
                        range(start, min(start + shard, len(pools))),
                        child_seed(run.settings.seed, "questions", start),
                    )
                ],
                run.fitted,
            )
            for start in range(0, len(pools), shard)
        ]
    return pa.concat_tables(tables)


def unlabelled_scores(table: pa.Table, pools: Sequence[Pool]) -> PoolScores:
    """Return the scores of pools with unknown labels from their predictions, which are in the order of the pools."""
    offsets = np.cumsum([0, *(len(pool.candidates) for pool in pools)])
    return PoolScores(
        pool_ids=tuple(pool.pool_id for pool in pools),
        logit=table["logit"].to_numpy(),
        prob=table["prob"].to_numpy(),
        label=np.full(table.num_rows, -1, np.int64),
        offsets=offsets,
        p_none=table[P_NONE].to_numpy()[offsets[:-1]] if P_NONE in table.column_names else None,
    )
