"""ICAST's Algorithm 1 (Deng et al. 2023, §4): self-training by pseudo labels; TSST is it without intents.

1      train the teacher f on D_l                                            `teacher`
2-12   for each x in D_u: intents e (Eq. 7), g (Eq. 10), g̃ (Eq. 11),         `_score`, `scoring.gain.choose_views`
       Δ = g̃ − g; read the intents iff Δ > λ
13-14  select by Eq. 5 and 12, label by Eq. 14: D_p                          `pseudo_labels.assign`
15     train the student on D_l ∪ D_p (Eq. 15)                               `PartTraining.train`
16-17  the student is the next teacher; go to 2                              `run`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from pydantic import Field
from typing_extensions import override

from icalib.core.stage_cache import Stage, StageName
from icalib.metrics.catalogue import find_metric
from icalib.metrics.summary import answer_metrics
from icalib.regimes.pseudo_labelling import PseudoLabelJob, RepeatJob, selects_any
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.regime import AbstractRegime, Member, Outcome
from icalib.scoring.gain import ALWAYS_INTENTS, NEVER_INTENTS, GainRule, IntentChoice, pool_scores, resolve_gain_rule
from icalib.scoring.scores import Shards
from icalib.stages.parts import PartTraining, score, scores_name
from icalib.stages.stages import Scoring, Stages, Student, Trained
from icalib.training.settings import TrainingSettings

_PUBLISHED = 0.02  # λ (ICAST §5.3)


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
        """Optimiser and schedule of the teacher's cross-encoder (round 0). Its epoch is chosen with the published λ,
        whatever λ is, so that all thresholds share it, unless intents are used always or never."""
        student: TrainingSettings = TrainingSettings(epochs=5, patience=5, learning_rate=2e-5)
        """Optimiser and schedule of the students' cross-encoders; each starts from the model that labelled the pools.
        `selection_metric` chooses the round that is kept, too."""
        control: bool = False
        """Train students on labelled pools instead of on pseudo-labelled ones, repeated until pools and pairs are as
        many: what further training gives by itself. Not with the intent part, whose fit has an optimum."""

        def view_rule(self) -> GainRule | None:
            """Return the gain rule of the rounds, or None without intents."""
            return self.rule.of_views() if self.with_intents else None

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
        model = self.teacher(stages).train()  # line 1
        models = {0: model}
        for number in range(1, config.num_rounds + 1):
            scores = self._score(stages, model, number)  # lines 3 to 5
            pseudo = self._pseudo_label(stages, model, scores, number)  # lines 6 to 14
            if not selects_any(pseudo.path):
                if config.pools_per_round is None and stages.estimator.needs == "nothing":
                    break  # the same scores again
                continue
            if config.control:
                pseudo = self._repeat(stages, pseudo, number)
            student = Student(model, pseudo, scores.name, self._unlabelled(stages), is_control=config.control)
            name, rule = _in_round(number, "student"), config.view_rule()
            model = PartTraining(stages, name, config.student, rule, student).train()  # line 15
            models[number] = model  # line 16
        chosen = self._choose(stages, models)
        return Outcome((Member(models[chosen], stages.estimator),), chosen, max(models))

    @override
    def teacher(self, stages: Stages) -> PartTraining:
        rule = self.config.view_rule()
        if rule is not None:
            reads_one_view = rule.gain_threshold in (ALWAYS_INTENTS, NEVER_INTENTS)
            rule = GainRule(intents=rule.intents, gain_threshold=rule.gain_threshold if reads_one_view else _PUBLISHED)
        return PartTraining(stages, StageName("teacher"), self.config.teacher, rule)

    def _score(self, stages: Stages, model: Trained, number: int) -> Stage:
        """Predict intents, and p̄ and g of each candidate with and without them."""
        return score(stages, _in_round(number, "scores"), model, self._unlabelled(stages))

    def _unlabelled(self, stages: Stages) -> Scoring:
        return Scoring("train", "unlabelled", stages.estimator, self._intents, self.config.pools_per_round)

    @property
    def _intents(self) -> IntentChoice | None:
        return self.config.rule.intents if self.config.with_intents else None

    def _pseudo_label(self, stages: Stages, model: Trained, scores: Stage, number: int) -> Stage:
        """Choose views by the gain, select pools, and label their candidates."""
        rule, validation = self.config.rule, None
        if rule.scale == "precision":
            validation = self._validation_scores(stages, model).artifact()
        job = PseudoLabelJob(scores=scores.artifact(), rule=rule, round=number, validation=validation)
        return stages.run(_in_round(number, "pseudo-labels"), job)

    def _repeat(self, stages: Stages, pseudo: Stage, number: int) -> Stage:
        name = _in_round(number, "control")
        job = RepeatJob(
            pseudo_labels=pseudo.artifact(),
            tokens=stages.tokens("train"),
            selection=stages.selection,
            with_intents=self.config.with_intents,
            seed=stages.seed_of(name),
        )
        return stages.run(name, job)

    def first_scores(self, stages: Stages, *, with_validation: bool) -> tuple[Shards, Shards | None]:
        """Return the teacher's scores of the unlabelled pools, from which round 1 selects, and those of validation."""
        teacher = self.teacher(stages).train()
        unlabelled = Shards(self._score(stages, teacher, 1).path)
        if not with_validation:
            return unlabelled, None
        return unlabelled, Shards(self._validation_scores(stages, teacher).path)

    def _validation_scores(self, stages: Stages, model: Trained) -> Stage:
        """Score validation by the job of the final evaluation, which finds these scores if it is of this model."""
        name = replace(scores_name("validation"), group=f"{model.name}/validation")
        return score(stages, name, model, Scoring("validation", "all", stages.estimator, self._intents))

    def _choose(self, stages: Stages, models: Mapping[int, Trained]) -> int:
        """Return the round whose student predicts best on validation; of equally good ones the last."""
        students = sorted(models)[1:]
        if len(students) < 2:
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
