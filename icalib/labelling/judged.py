"""A run's R@1 and MAP on many pools, from people's labels of a few and another judge's scores of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from icalib.core.errors import DataError, IcalibError, SettingError
from icalib.core.storage import location, pull
from icalib.data.pools import PoolSet, read_pool_set
from icalib.data.schema import SPLITS, Split
from icalib.labelling.annotations import annotations_by_pool, by_model, latest
from icalib.labelling.consensus import Right, majority
from icalib.labelling.importing import Target, check_answers, find_targets, read_answers
from icalib.metrics.catalogue import find_metric
from icalib.metrics.judged import Inferred, expected_values, infer
from icalib.metrics.pairs import FloatArray, PoolScores, pool_softmax, sums_to_1
from icalib.pipeline.finished import FinishedRun
from icalib.score_files.calibrator import as_logit, detected_scale, logit_ends
from icalib.score_files.scores import Columns, read_scores

METRICS = ("R@1", "MAP")
MIN_JUDGED = 30
"""With 20, 95 % intervals cover in 91 to 99 % of simulations, with 30 in 94 to 98 % (docs/results/judged.yaml)."""
_LARGE_SHIFT = 3.0  # standard errors


@dataclass(frozen=True)
class JudgedMetrics:
    """Metrics by name on the `num_pools` pools of a split, of which people judged `num_judged`."""

    data: str
    split: Split
    num_pools: int
    num_judged: int
    metrics: dict[str, Inferred]
    warnings: tuple[str, ...]


def _has_learned_from(run: FinishedRun, pools: PoolSet, split: Split, targets: Mapping[str, Target]) -> bool:
    """Return whether some pools are of a run's own training or validation data, whatever labels either folder was given
    since, and with whatever wrong candidates and splits its dialogues were prepared again.
    """
    if pools.digest == run.folder.data_digest:
        return split != "test"
    try:
        known = [find_targets(run.config.data, one, targets.keys()) for one in SPLITS if one != "test"]
    except IcalibError:  # the folder has gone
        return False
    return any(_is_same(target, targets[name]) for some in known for name, target in some.items())


def _is_same(one: Target, other: Target) -> bool:
    """Return whether two pools of one name have one question, of which they may have more or fewer utterances."""
    size = min(len(one.context), len(other.context))
    return one.context[-size:] == other.context[-size:] and not set(one.candidates).isdisjoint(other.candidates)


@dataclass(frozen=True)
class Judgements:
    """The right candidates of some pools of a split, and a judge's scores of the candidates of all.

    Left out are pools whose labels are unfinished, or whose annotators disagree.
    """

    data: Path
    split: Split
    right: Mapping[str, Right]
    num_left_out: int
    judge: Path
    scores: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, run: FinishedRun, data: Path, judged: Path, judge: Path, columns: Columns) -> Judgements:
        """Read both files; the split is that of the judged pools.

        A DataError says that a record is not valid, or not about these pools; a SettingError, that the run has learned
        from them.
        """
        pull(judged)
        pull(judge)
        pool_set, answers = read_pool_set(data), read_answers(judged)
        names = {answer.pool_id for answer in answers}
        found = {split: find_targets(data, split, names) for split in SPLITS}
        split = max(SPLITS, key=lambda one: len(found[one]))
        check_answers(answers, found[split], data, "training" if split == "train" else split)
        if models := {one.annotation.annotator for one in answers if one.annotation and by_model(one.annotation)}:
            raise DataError(
                f"has answers of a language model ({min(models)})",
                "People's labels are expected here; a model's answers are scores of a judge (`icalib label ask "
                "--scores`, then --judge).",
                path=judged,
            )
        if _has_learned_from(run, pool_set, split, found[split]):
            raise SettingError(
                f"{judged} is about {split} pools of {data}, from which the run has learned. Judge some of its test "
                "pools, or pools of other dialogues (--data)."
            )
        by_pool = annotations_by_pool([*latest([one.annotation for one in answers if one.annotation])])
        verdicts = {name: majority(by_pool[name], len(found[split][name].candidates)) for name in by_pool}
        right = {name: verdict for name, verdict in verdicts.items() if verdict is not None}
        return cls(data, split, right, len(names) - len(right), judge, read_scores(judge, columns))

    def evaluate(self, predictions: pa.Table) -> JudgedMetrics:
        """Infer the metrics from predictions of all pools of the split; their labels aren't read.

        A DataError says that the judge lacks pools, or that people judged too few.
        """
        unread = pa.array(np.zeros(predictions.num_rows, np.int64))
        scores = PoolScores.from_predictions(
            predictions.set_column(predictions.column_names.index("label"), "label", unread)
        )
        prob_N = self._judge_prob(scores)
        is_judged = np.array([name in self.right for name in scores.pool_ids])
        judged = scores.subset(is_judged)
        label = np.zeros(len(judged.logit), np.int64)
        for name, start in zip(judged.pool_ids, judged.offsets.tolist(), strict=False):
            label[[start + index for index in self.right[name]]] = 1
        judged = replace(judged, label=label)
        if (num_answerable := int(judged.answerable.sum())) < MIN_JUDGED:
            raise DataError(
                f"found {num_answerable} judged pools with a right candidate",
                f"Intervals hold from {MIN_JUDGED} on: label more, drawn at random.",
            )
        metrics: dict[str, Inferred] = {}
        for metric in map(find_metric, METRICS):
            assert metric.per_pool is not None
            expected = expected_values(metric, scores, prob_N)
            metrics[metric.name] = infer(metric.per_pool(judged), expected[is_judged], expected)
        return JudgedMetrics(
            data=location(self.data),
            split=self.split,
            num_pools=scores.num_pools,
            num_judged=judged.num_pools,
            metrics=metrics,
            warnings=tuple(self._warnings(max(one.shift for one in metrics.values()))),
        )

    def _warnings(self, shift: float) -> Iterator[str]:
        if shift > _LARGE_SHIFT:
            yield (
                f"the judge finds the judged pools unlike all pools, by {shift:.1f} standard errors: they are not a "
                "random sample, and the intervals don't hold."
            )
        if self.num_left_out:
            yield (
                f"{self.num_left_out} pools of the labels are unfinished, or their annotators disagree. If these are "
                "many, the others are not a random sample."
            )

    def _judge_prob(self, scores: PoolScores) -> FloatArray:
        """Return the judge's probability of each candidate to be the right one of its pool, [N]."""
        if missing := [name for name in scores.pool_ids if name not in self.scores]:
            raise DataError(
                f"has no scores of {len(missing)} of {scores.num_pools} pools, e.g. {missing[0]!r}",
                f"The judge scores all {self.split} pools of {self.data}; a query is a pool's id.",
                path=self.judge,
            )
        sizes, found = scores.sizes(), list[float]()
        for name, size in zip(scores.pool_ids, sizes.tolist(), strict=True):
            indices = [str(index) for index in range(size)]
            if sorted(self.scores[name]) != sorted(indices):
                raise DataError(
                    f"has the candidates {', '.join(sorted(self.scores[name]))} of pool {name!r}",
                    f"Expected their indices, 0 to {size - 1}, as in the pool folder.",
                    path=self.judge,
                )
            found += [self.scores[name][index] for index in indices]
        score = np.array(found)
        if sums_to_1(score, sizes):
            return score
        return pool_softmax(as_logit(score, detected_scale(score), logit_ends(score)), sizes)
