"""Self-training in rounds: score the unlabelled pools, pseudo-label them, train the student, make it the teacher."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, final

import pyarrow.parquet as pq
from pydantic import Field

from icalib.core.files import whole_file, write_json
from icalib.core.run_folder import RoundSummary
from icalib.core.stage_cache import Stage
from icalib.regimes.gain import GainRule, Shard, choose_views
from icalib.regimes.pseudo_labels import PseudoLabelRule, RoundTally, assign, pseudo_label_table, resolve_rule
from icalib.regimes.regime import AbstractRegime, Member, Parts, Trained
from icalib.regimes.workbench import Workbench
from icalib.scoring.job import Shards
from icalib.training.settings import TrainingSettings


@final
class SelfTraining(AbstractRegime):
    """ICAST's Algorithm 1, and TSST where intents are off."""

    class Config(AbstractRegime.Config):
        """Settings of self-training."""

        with_intents: bool = True
        """Learn and predict intents, and let the gain choose the view; False is TSST."""
        rule: PseudoLabelRule = PseudoLabelRule()
        """Gain and pseudo-label thresholds."""
        num_rounds: int = Field(default=4, ge=1)
        """Rounds of pseudo-labelling; the authors ran 4 with 1 % and 5 % labels, 8 with 10 %."""
        pools_per_round: int | None = Field(default=None, ge=1)
        """Score so many unlabelled pools a round, drawn anew each time; None scores all, as published."""
        teacher: TrainingSettings = TrainingSettings()
        """Optimiser and schedule of the teacher (round 0)."""
        student: TrainingSettings = TrainingSettings(epochs=5, patience=5, learning_rate=2e-5)
        """Optimiser and schedule of each round's student, which goes on from the model that labelled the pools."""
        keep: Literal["best", "last"] = "best"
        """Which round's model is the result: the best on validation, or the last. The teacher doesn't count."""

        def needs_intents(self) -> bool:
            """Only with intents."""
            return self.with_intents

        def view_rule(self) -> GainRule | None:
            """The same gain rule as in the rounds, with intents."""
            return self.rule if self.with_intents else None

        def train_negatives(self) -> int | None:
            """As in `student`, whose models are kept."""
            return self.student.train_negatives

        def num_epochs(self) -> int:
            """Those of the teacher and of each round's student."""
            return self.teacher.epochs + self.num_rounds * self.student.epochs

    def __init__(self, config: Config) -> None:
        self.config = config

    def run(self, bench: Workbench, parts: Parts) -> Trained:
        """Teacher, then rounds; they end early when nothing is selected, since no later round would differ."""
        config = self.config
        models = [self._teacher(bench, parts)]
        for number in range(1, config.num_rounds + 1):
            pseudo = self.pseudo_label(bench, parts, models[-1], number)
            if not _selected(pseudo.path):
                break
            models.append(
                bench.train(
                    f"round-{number}/student",
                    ranker=parts.ranker,
                    loss=parts.loss,
                    training=config.student,
                    with_intents=config.with_intents,
                    start=models[-1],
                    pseudo_labels=pseudo,
                    number=number,
                )
            )
        chosen = self._choose(bench, models)
        return Trained((Member(models[chosen], parts.estimator),), chosen, len(models) - 1)

    def _teacher(self, bench: Workbench, parts: Parts) -> Stage:
        return bench.train(
            "teacher",
            ranker=parts.ranker,
            loss=parts.loss,
            training=self.config.teacher,
            with_intents=self.config.with_intents,
            start=parts.start,
        )

    def pseudo_label(self, bench: Workbench, parts: Parts, model: Stage, number: int) -> Stage:
        """One round's scores and pseudo labels."""
        shards = self._score(bench, parts, model, number)
        rule = self.config.rule
        return bench.stage(
            f"round-{number}/pseudo-labels",
            {"scores": shards.stage.digest, "rule": rule.model_dump(mode="json"), "round": number},
            lambda folder: write_pseudo_labels(folder, shards, rule, number),
        )

    def first_scores(self, bench: Workbench, parts: Parts) -> Shards:
        """The teacher's scores of the unlabelled pools: what round 1 selects from, whatever its rule."""
        return self._score(bench, parts, self._teacher(bench, parts), 1)

    def _score(self, bench: Workbench, parts: Parts, model: Stage, number: int) -> Shards:
        return bench.score(
            f"round-{number}/scores",
            model,
            split="train",
            part="unlabelled",
            estimator=parts.estimator,
            with_intents=self.config.with_intents,
            number=number,
            sample=self.config.pools_per_round,
        )

    def _choose(self, bench: Workbench, models: list[Stage]) -> int:
        """The round whose model is the result."""
        last = len(models) - 1
        if last == 0 or self.config.keep == "last":
            return last
        return max(reversed(range(1, len(models))), key=lambda number: bench.figure(models[number]))


def write_pseudo_labels(folder: Path, shards: Shards, rule: PseudoLabelRule, number: int) -> None:
    """Pseudo labels shard by shard, each beside the intents that its pools were scored with; then the summary."""
    counts = RoundTally()
    rule = resolve_rule(rule, shards)
    for place, (scores, intents) in enumerate(shards):
        chosen = choose_views(scores, intents, rule)
        labels = assign(chosen, rule)
        counts.add(chosen, labels)
        with whole_file(folder / f"pseudo-{place:06d}.parquet") as temporary:
            pq.write_table(pseudo_label_table(chosen, labels), temporary)
        if intents is not None:
            with whole_file(folder / f"intents-{place:06d}.parquet") as temporary:
                pq.write_table(intents, temporary)
    write_json(folder / "summary.json", counts.summary(number).model_dump())


def preview(shards: Iterable[Shard], rule: PseudoLabelRule, number: int) -> RoundSummary:
    """What a rule would select from some scores."""
    counts = RoundTally()
    rule = resolve_rule(rule, shards)
    for shard in shards:
        chosen = choose_views(*shard, rule)
        counts.add(chosen, assign(chosen, rule))
    return counts.summary(number)


def _selected(folder: Path) -> bool:
    return any(pq.read_metadata(path).num_rows for path in folder.glob("pseudo-*.parquet"))
