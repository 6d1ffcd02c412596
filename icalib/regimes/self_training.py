"""Self-training in rounds: score unlabelled pools, pseudo-label them, train a student, and make it the next teacher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field
from typing_extensions import override

from icalib.core.events import Emit
from icalib.core.files import read_json, whole_file, write_json
from icalib.core.job import Artifact, LocalJob
from icalib.core.parquet import read_parquet
from icalib.core.run_tables import RoundSummary
from icalib.core.stage_cache import Stage, StageName
from icalib.data.encoding import TokenPool, TokenStore
from icalib.data.selection import Selection
from icalib.metrics.catalogue import find_metric
from icalib.metrics.summary import answer_metrics
from icalib.regimes.pseudo_labels import PseudoLabelRule, assign, choose_pools, pseudo_label_table
from icalib.regimes.regime import (
    AbstractRegime,
    AnswerTraining,
    Member,
    Outcome,
    Scoring,
    Stages,
    Student,
    Trained,
    scores_name,
)
from icalib.regimes.round_tally import RoundTally
from icalib.regimes.thresholds import resolve_rule
from icalib.scoring.gain import GainRule, IntentChoice, Shard, pool_scores, resolve_gain_rule
from icalib.scoring.scores import Shards, intent_shard
from icalib.training.examples import gold_labels
from icalib.training.settings import TrainingSettings


@final
class SelfTraining(AbstractRegime):
    """ICAST's Algorithm 1; TSST if intents are disabled."""

    class Config(AbstractRegime.Config):
        """Settings of self-training."""

        with_intents: bool = True
        """Train on and predict intents, and choose the view by the gain; False is TSST."""
        rule: PseudoLabelRule = PseudoLabelRule()
        """Gain and pseudo-label thresholds."""
        num_rounds: int = Field(default=4, ge=1)
        """Number of rounds of pseudo-labelling; the authors used 4 with 1 % and 5 % labels, and 8 with 10 %."""
        pools_per_round: int | None = Field(default=None, ge=1)
        """Number of unlabelled pools to score per round, drawn again each round; None scores all, as in the paper."""
        teacher: TrainingSettings = TrainingSettings()
        """Optimiser and schedule of the teacher (round 0). Its epoch is chosen with the published λ, so that all
        thresholds share it."""
        student: TrainingSettings = TrainingSettings(epochs=5, patience=5, learning_rate=2e-5)
        """Optimiser and schedule of each round's student, which starts from the model that labelled the pools."""
        control: bool = False
        """Train students on labelled pools, repeated until there are as many, instead of on pseudo-labelled ones: what
        further training gives by itself. Not with the intent part, whose fit has an optimum."""
        keep: Literal["best", "last"] = "best"
        """Which round's model is the result: the best on validation (by `student.selection_metric` of what it predicts
        there), or the last. The teacher is not considered."""

        def view_rule(self) -> GainRule | None:
            """Return the gain rule of the rounds, or None without intents."""
            return self.rule if self.with_intents else None

        @override
        def trainings(self) -> Sequence[TrainingSettings]:
            return [self.teacher, self.student]

        @override
        def num_epochs(self) -> int:
            return self.teacher.epochs + self.num_rounds * self.student.epochs

    def run(self, stages: Stages) -> Outcome:
        """Train the teacher and run rounds.

        A round that selects no pool trains nothing. It is the last one if the next would select from the same scores.
        """
        config = self.config
        model = self._teacher(stages)
        models = {0: model}
        for number in range(1, config.num_rounds + 1):
            pseudo = self.pseudo_label(stages, model, number)
            if not _selected(pseudo.path):
                if config.pools_per_round is None and stages.estimator.needs == "nothing":
                    break
                continue
            if config.control:
                pseudo = self._repeated(stages, pseudo, number)
            scores = _in_round(number, "scores")
            student = Student(model, pseudo, scores, self._unlabelled(stages), is_control=config.control)
            training = AnswerTraining(config.student, config.rule.of_views() if config.with_intents else None, student)
            model = models[number] = stages.train(_in_round(number, "student"), training)
        chosen = self._choose(stages, models)
        return Outcome((Member(models[chosen], stages.estimator),), chosen, max(models))

    def _teacher(self, stages: Stages) -> Trained:
        rule = GainRule(intents=self.config.rule.intents) if self.config.with_intents else None
        return stages.train(StageName("teacher"), AnswerTraining(self.config.teacher, rule))

    def pseudo_label(self, stages: Stages, model: Trained, number: int) -> Stage:
        """Score and pseudo-label the pools of one round."""
        scores = self._score(stages, model, number)
        rule, validation = self.config.rule, None
        if rule.scale == "precision":
            validation = self._validation_scores(stages, model).artifact()
        job = PseudoLabelJob(scores=scores.artifact(), rule=rule, round=number, validation=validation)
        return stages.run(_in_round(number, "pseudo-labels"), job)

    def _repeated(self, stages: Stages, pseudo: Stage, number: int) -> Stage:
        job = RepeatJob(
            pseudo_labels=pseudo.artifact(),
            tokens=stages.tokens("train"),
            selection=stages.selection,
            with_intents=self.config.with_intents,
        )
        return stages.run(_in_round(number, "control"), job)

    def first_scores(self, stages: Stages, *, with_validation: bool) -> tuple[Shards, Shards | None]:
        """Return the teacher's scores of the unlabelled pools, from which round 1 selects, and those of validation."""
        teacher = self._teacher(stages)
        unlabelled = Shards(self._score(stages, teacher, 1).path)
        if not with_validation:
            return unlabelled, None
        return unlabelled, Shards(self._validation_scores(stages, teacher).path)

    def _score(self, stages: Stages, model: Trained, number: int) -> Stage:
        return stages.score(_in_round(number, "scores"), model, self._unlabelled(stages))

    def _unlabelled(self, stages: Stages) -> Scoring:
        return Scoring("train", "unlabelled", stages.estimator, self._intents, self.config.pools_per_round)

    @property
    def _intents(self) -> IntentChoice | None:
        return self.config.rule.intents if self.config.with_intents else None

    def _validation_scores(self, stages: Stages, model: Trained) -> Stage:
        """Score validation by the job of the final evaluation, which finds these scores if it is of this model."""
        name = scores_name("validation", 0)
        name = replace(name, group=f"{model.name}/{name.group}")
        return stages.score(name, model, Scoring("validation", "all", stages.estimator, self._intents))

    def _choose(self, stages: Stages, models: Mapping[int, Trained]) -> int:
        """Return the round whose model is the result; of equally good ones the last."""
        students = sorted(models)[1:]
        if len(students) < 2 or self.config.keep == "last":
            return max(models)
        return max(students, key=lambda number: (self._validation_value(stages, models[number]), number))

    def _validation_value(self, stages: Stages, model: Trained) -> float:
        """Return the students' selection metric of what a model predicts on validation; larger is better."""
        shards = Shards(self._validation_scores(stages, model).path)
        if not any(True for _ in shards):  # with --dry, stages that aren't cached are empty
            return 0.0
        rule = resolve_gain_rule(self.config.view_rule() or GainRule(), shards)
        metric = find_metric(self.config.student.selection_metric)
        return metric.sign * answer_metrics(pool_scores(shards, rule))[metric.tag]


def _in_round(number: int, label: str) -> StageName:
    return StageName(label, f"round-{number}", number)


class PseudoLabelJob(LocalJob):
    """Selects and labels the pools of one round's scores."""

    scores: Artifact
    """Folder of scored shards."""
    rule: PseudoLabelRule
    round: int
    validation: Artifact | None = None
    """Folder of the scored shards of validation, for thresholds that are precisions."""

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        validation = Shards(self.validation.path) if self.validation else None
        write_pseudo_labels(folder, Shards(self.scores.path), self.rule, self.round, validation)


class RepeatJob(LocalJob):
    """Writes labelled pools, with their gold labels, as often as pools were pseudo-labelled."""

    pseudo_labels: Artifact
    """Folder of a round's pseudo-labels, whose number counts."""
    tokens: Artifact
    selection: Selection
    with_intents: bool

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        store = TokenStore(self.tokens.path)
        rows = self.selection.rows("train", "labelled", store.column("label_order"))
        number = read_json(self.pseudo_labels.path / "summary.json")["num_pools_selected"]
        for index, start in enumerate(range(0, number, len(rows))):
            pools = list(store.pools(rows[: number - start]))
            with whole_file(folder / f"pseudo-{index:06d}.parquet") as temporary:
                pq.write_table(pa.concat_tables([self._table(pool) for pool in pools]), temporary)
            if self.with_intents:
                with whole_file(folder / f"intents-{index:06d}.parquet") as temporary:
                    pq.write_table(intent_shard(pools, [pool.intents for pool in pools]), temporary)

    def _table(self, pool: TokenPool) -> pa.Table:
        gold = gold_labels(pool, with_intents=self.with_intents)
        view = np.where(gold.intent_view, "intent", "plain")
        values = [[pool.pool_id] * len(view), gold.candidates, gold.labels, view]
        return pa.table(dict(zip(("pool_id", "candidate", "label", "view"), values, strict=True)))


def write_pseudo_labels(
    folder: Path, shards: Shards, rule: PseudoLabelRule, number: int, validation: Shards | None = None
) -> None:
    """Write pseudo labels, and the intents that they were scored with, shard by shard; then the summary."""
    rule = resolve_rule(rule, shards, validation)
    counts = RoundTally(rule)
    for index, (scores, intents) in enumerate(shards):
        chosen = choose_pools(scores, intents, rule)
        labels = assign(chosen, rule)
        counts.add(chosen, labels)
        with whole_file(folder / f"pseudo-{index:06d}.parquet") as temporary:
            pq.write_table(pseudo_label_table(chosen, labels), temporary)
        if intents is not None:
            with whole_file(folder / f"intents-{index:06d}.parquet") as temporary:
                pq.write_table(intents, temporary)
    write_json(folder / "summary.json", _with_validation(counts.summary(number), rule, validation).model_dump())


def preview(
    shards: Iterable[Shard], rule: PseudoLabelRule, number: int, validation: Iterable[Shard] | None = None
) -> RoundSummary:
    """Summarise what a rule would select from some scores, without writing anything."""
    rule = resolve_rule(rule, shards, validation)
    return _with_validation(_tally(shards, rule).summary(number), rule, validation)


def _with_validation(summary: RoundSummary, rule: PseudoLabelRule, validation: Iterable[Shard] | None) -> RoundSummary:
    if validation is None:
        return summary
    found = _tally(validation, rule).summary(summary.round)
    return summary.model_copy(
        update={"validation_pools_selected": found.num_pools_selected, "validation_accuracy": found.pool_accuracy}
    )


def _tally(shards: Iterable[Shard], rule: PseudoLabelRule) -> RoundTally:
    counts = RoundTally(rule)
    for shard in shards:
        chosen = choose_pools(*shard, rule)
        counts.add(chosen, assign(chosen, rule))
    return counts


def _selected(folder: Path) -> bool:
    return any(read_parquet(path, ["pool_id"]).num_rows for path in sorted(folder.glob("pseudo-*.parquet")))
