"""What is exported: a ranker or bi-encoder with its calibration map, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import torch

from icalib.calibration.calibrator import AbstractCalibrator, Platt, Temperature
from icalib.calibration.fitted import AffineMap, FittedMap
from icalib.core.component import short_name
from icalib.data.schema import Split
from icalib.exports.choices import CalibrationChoice
from icalib.metrics.calibration import brier, ece, nll
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import average_precision, mean_defined, recall_at_k
from icalib.models.ranker import Ranker, load_ranker
from icalib.pipeline.inference import FinishedRun
from icalib.scoring.loaded import LoadedBiEncoder
from icalib.uncertainty.estimator import AbstractEstimator

_FITTED: Mapping[str, type[AbstractCalibrator]] = {"platt": Platt, "temperature": Temperature}
_MEASURED: tuple[Split, ...] = ("validation", "test")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a card says of an exported ranker.

    Args:
        run: the finished run that it is from.
        calibration: maps logits to calibrated probabilities; None for none.
        calibrator: name of the calibrator that the map is from, for people.
        scores: scores of the run's validation and test pools with known labels, with calibrated probabilities.
        teacher: the run's own scores, if the ranker was distilled from it.
    """

    run: FinishedRun
    calibration: FittedMap | None
    calibrator: str
    scores: Mapping[Split, PoolScores]
    teacher: Mapping[Split, PoolScores] | None = None

    @property
    def affine(self) -> AffineMap:
        """The calibration, which must be an affine map of the logit; none is the identity."""
        if self.calibration is None:
            return AffineMap(slope=1.0, offset=0.0)
        assert isinstance(self.calibration, AffineMap)
        return self.calibration

    def calibrated(self, calibration: CalibrationChoice) -> Self:
        """Return the ranker with a calibration that is fitted to its validation scores, in place of its own."""
        if calibration == "run":
            return self
        calibrator = _FITTED[calibration].Config().build()
        validation = self.scores["validation"]
        fitted = calibrator.fit(validation.logit, validation.label)
        return replace(
            self,
            calibration=fitted,
            calibrator=calibration,
            scores={split: replace(scores, prob=fitted.apply(scores.logit)) for split, scores in self.scores.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Subject(Measured):
    """A ranker to export; its calibration maps the logits of mean probabilities.

    Args:
        ranker: in evaluation mode, on the CPU.
        estimator: how its probabilities are computed.
    """

    ranker: Ranker
    estimator: AbstractEstimator.Config

    @classmethod
    def of_run(cls, run: FinishedRun, calibration: CalibrationChoice) -> Self:
        """Return the first model of a run with its calibration, or with another one that is fitted here."""
        checkpoint, estimator = run.members[0]
        subject = cls(
            run=run,
            ranker=load_ranker(checkpoint).eval(),  # with the weights as they were trained: scoring rounds them to bf16
            estimator=estimator,
            calibration=run.fitted.calibration,
            calibrator=own_calibrator(run),
            scores=scores_of(run),
        )
        return subject.calibrated(calibration)


@dataclass(frozen=True, kw_only=True)
class BiEncoderSubject(Measured):
    """A bi-encoder to export; its calibration maps the logit, which is linear in the cosine.

    Args:
        bi_encoder: on the CPU.
        cosine: slope and offset of that logit.
    """

    bi_encoder: LoadedBiEncoder
    cosine: AffineMap

    @classmethod
    def of_run(cls, run: FinishedRun, calibration: CalibrationChoice) -> Self:
        """Return the bi-encoder of a run that ranks by it alone; see `check_sentence_transformer`."""
        checkpoint = next((path for path, _ in run.members), None)
        cpu = torch.device("cpu")
        if run.settings.settings.regime.trains:
            assert checkpoint is not None
            ranker = load_ranker(checkpoint)
            start = ranker.similarity_start
            assert start is not None
            bi_encoder = LoadedBiEncoder.of_start(ranker, cpu)
            cosine = AffineMap(slope=start.slope.item(), offset=start.offset.item())
        else:
            bi_encoder = LoadedBiEncoder.load(run.settings.settings.encoder, checkpoint, cpu)
            cosine = AffineMap(slope=1.0, offset=0.0)
        subject = cls(
            run=run,
            bi_encoder=bi_encoder,
            cosine=cosine,
            calibration=run.fitted.calibration,
            calibrator=own_calibrator(run),
            scores=scores_of(run),
        )
        return subject.calibrated(calibration)

    @property
    def of_cosine(self) -> AffineMap:
        """Maps the cosine to the calibrated probability."""
        outer, inner = self.affine, self.cosine
        return AffineMap(slope=outer.slope * inner.slope, offset=outer.slope * inner.offset + outer.offset)


def own_calibrator(run: FinishedRun) -> str:
    """Return the name of the calibrator that a run has fitted."""
    calibrator = run.settings.settings.calibrator
    return "none" if calibrator is None else short_name(calibrator.owner)


def scores_of(run: FinishedRun) -> dict[Split, PoolScores]:
    """Return a run's scores of its validation and test pools with known labels."""
    return known_scores({split: run.folder.predictions(split) for split in _MEASURED})


def known_scores(predictions: Mapping[Split, pa.Table]) -> dict[Split, PoolScores]:
    """Return the scores of the splits that have pools with known labels."""
    return {
        split: PoolScores.from_predictions(table)
        for split, table in predictions.items()
        if (table["label"].to_numpy() == 1).any()
    }


def measured(scores: PoolScores) -> dict[str, float]:
    """Return the metrics of a model card, by name."""
    return {
        "R@1": mean_defined(recall_at_k(scores, 1)),
        "MAP": mean_defined(average_precision(scores)),
        "ECE": ece(scores.prob, scores.label),
        "NLL": nll(scores.prob, scores.label),
        "Brier": brier(scores.prob, scores.label),
    }
