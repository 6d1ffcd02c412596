"""Untrained rankers, as baselines of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, final

from typing_extensions import override

from icalib.core.stage_cache import Stage, StageName
from icalib.data.schema import Split
from icalib.encoders.off_the_shelf import is_cross_encoder
from icalib.regimes.regime import AbstractRegime, Member, Outcome
from icalib.scoring.untrained import BiEncoderScoreJob, ExternalScoreJob, WordScoreJob, WordScorer
from icalib.stages.stages import Stages, Trained
from icalib.training.settings import TrainingSettings


class AbstractUntrained(AbstractRegime):
    """Scores with a ranker that nothing of the data trains, mapped to probabilities by Platt scaling on validation."""

    class Config(AbstractRegime.Config):
        """Base of the settings of such rankers."""

        trains: ClassVar[bool] = False

        @override
        def trainings(self) -> Sequence[TrainingSettings]:
            return []


@final
class Untrained(AbstractUntrained):
    """Scores with an untrained ranker."""

    class Config(AbstractUntrained.Config):
        """Settings of an untrained ranker."""

        scorer: WordScorer | Literal["bi-encoder"]
        """bm25: Okapi BM25 of the candidate given the context, with statistics from the candidates of the scored pools.
        bi-encoder: cosine of the mean token states of context and candidate, encoded separately, by the backbone or
        by a bi-encoder that was pre-trained without labels. candidates-only: mean
        TF-IDF cosine of the candidate with the other candidates; it never reads the context, so what it ranks better
        than chance is what the pools give away."""

        @property
        @override
        def can_be_loaded(self) -> bool:
            return self.scorer == "bi-encoder"  # the others need the statistics of many pools

    @override
    def run(self, stages: Stages) -> Outcome:
        if stages.start is None:
            return Outcome(())
        model = Trained(StageName("domain-pretraining"), {"similarity": stages.start})
        return Outcome((Member(model, stages.estimator),))

    @override
    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        scorer = self.config.scorer
        if scorer == "bi-encoder":
            model = members[0].model.parts["similarity"] if members else None
            job = BiEncoderScoreJob(
                data=stages.data, split=split, selection=stages.selection, encoder=stages.encoder, model=model
            )
        else:
            job = WordScoreJob(data=stages.data, split=split, selection=stages.selection, scorer=scorer)
        return [stages.run(StageName("scores", str(split)), job)]


@final
class External(AbstractUntrained):
    """Scores with a stock cross-encoder or bi-encoder."""

    class Config(AbstractUntrained.Config):
        """Settings of a stock reranker."""

        model: str
        """Folder or hub name of a model that sentence-transformers saved: a cross-encoder with one label, or a
        bi-encoder."""

        @override
        def check(self) -> None:
            is_cross_encoder(self.model)

    @override
    def run(self, stages: Stages) -> Outcome:
        return Outcome(())

    @override
    def score(self, stages: Stages, members: Sequence[Member], split: Split) -> list[Stage]:
        job = ExternalScoreJob(data=stages.data, split=split, selection=stages.selection, model=self.config.model)
        return [stages.run(StageName("scores", str(split)), job)]
