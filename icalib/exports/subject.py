"""What is exported: a model of a finished run with its calibration, and what was measured of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import pyarrow as pa

from icalib.calibration.calibrator import AbstractCalibrator, Platt, PoolSoftmax, Temperature
from icalib.calibration.fitted import AffineMap, FittedMap, PoolSoftmaxMap
from icalib.core.component import short_name
from icalib.data.schema import Split
from icalib.encoders.transformer import AbstractEncoder
from icalib.exports.choices import CalibrationChoice
from icalib.heads.head import LogitPosterior
from icalib.metrics.pairs import PoolScores
from icalib.models.bi_encoder import BiEncoder, open_bi_encoder
from icalib.models.ranker import Ranker, load_ranker
from icalib.parts.job import PartName
from icalib.parts.sum import PARTS_FILE, SumOfParts
from icalib.pipeline.finished import FinishedRun
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic

M = TypeVar("M", Ranker, BiEncoder)

MEASURED: tuple[Split, ...] = ("validation", "test")
IDENTITY = AffineMap(slope=1.0, offset=0.0)
_CALIBRATORS: Mapping[str, type[AbstractCalibrator]] = {"platt": Platt, "temperature": Temperature}


@dataclass(frozen=True, kw_only=True)
class Subject(Generic[M]):
    """A model to export: a ranker or a bi-encoder of a finished run, in evaluation mode, on the CPU."""

    run: FinishedRun
    model: M
    estimator: AbstractEstimator.Config = field(default_factory=Deterministic.Config)
    of_part: AffineMap = IDENTITY
    """What the run's sum of parts makes of the logits of a ranker, the only part with a weight: w f + b."""
    calibration: FittedMap
    """Maps the logit of a ranker's mean probability, or a bi-encoder's cosine, to a probability."""
    calibrator: str  # name of what fitted the map, for people
    scores: Mapping[Split, PoolScores]
    """Of the run's validation and test pools with known labels, with calibrated probabilities."""
    teacher: Mapping[Split, PoolScores] | None = None
    """The run's own scores, if the model was distilled from it."""

    @property
    def affine(self) -> AffineMap:
        """The calibration, where the format only expresses affine maps."""
        assert isinstance(self.calibration, AffineMap)
        return self.calibration

    def weighted(self, components: LogitPosterior) -> LogitPosterior:
        """Return the distribution of the run's logit from that of a ranker's: means by w, variances by w²."""
        w, b = self.of_part.slope, self.of_part.offset
        return LogitPosterior(w * components.mean_SB + b, w * w * components.var_SB)

    @property
    def encoder(self) -> AbstractEncoder.Config:
        """The settings of the model's encoder."""
        return self.model.config.encoder if isinstance(self.model, Ranker) else self.model.config


def ranker_of(run: FinishedRun, choice: CalibrationChoice) -> Subject[Ranker]:
    """Return the first model of a run."""
    choice = _for_pairs(run, choice)
    folder, estimator = run.members[0]
    model = load_ranker(folder / "cross").eval()  # with the weights of training: scoring rounds them
    of_part = _of_part(folder, "cross")
    return Subject(run=run, model=model, estimator=estimator, of_part=of_part, **_calibrated(run, choice))


def bi_encoder_of(run: FinishedRun, choice: CalibrationChoice) -> Subject[BiEncoder]:
    """Return the bi-encoder of a run that ranks by nothing else."""
    choice = _for_pairs(run, choice)
    folder = next((path for path, _ in run.members), None)
    method = run.config.settings
    model = open_bi_encoder(method.encoder, folder / "similarity" if folder else None).eval()
    subject = Subject(run=run, model=model, **_calibrated(run, choice))
    if method.regime.trains and folder is not None:
        of_cosine = _of_part(folder, "similarity")
    elif choice != "run" and isinstance(own := run.fitted.of_pairs.calibration, AffineMap):
        of_cosine = own  # an untrained run's logit is that of its calibrated probability
    else:
        return subject
    return replace(subject, calibration=composed(subject.affine, of_cosine))


def _of_part(folder: Path, name: PartName) -> AffineMap:
    """Return what a member's sum makes of the logits of its only part with a weight."""
    fitted = SumOfParts.load(folder / PARTS_FILE)
    return AffineMap(slope=fitted.weight(name), offset=fitted.offset)


def composed(outer: AffineMap, inner: AffineMap) -> AffineMap:
    """Return the map that is `outer` after `inner`."""
    return AffineMap(slope=outer.slope * inner.slope, offset=outer.slope * inner.offset + outer.offset)


def _for_pairs(run: FinishedRun, choice: CalibrationChoice) -> CalibrationChoice:
    """Return a choice that gives probabilities to pairs: Platt scaling instead of a softmax over the pool."""
    has_softmax = isinstance(run.fitted.calibration, PoolSoftmaxMap)
    return "platt" if choice == "run" and has_softmax else choice


def own_calibrator(run: FinishedRun) -> str:
    """Return the name of the calibrator that a run has fitted for pairs."""
    calibrator = run.config.settings.calibrator
    if isinstance(calibrator, PoolSoftmax.Config):
        return "platt"
    return "none" if calibrator is None else short_name(calibrator.owner)


def fitted(
    scores: Mapping[Split, PoolScores], calibrator: Literal["platt", "temperature"]
) -> tuple[FittedMap, dict[Split, PoolScores]]:
    """Return a map that is fitted to validation scores, and the scores with the probabilities that it gives."""
    validation = scores["validation"]
    found = _CALIBRATORS[calibrator].Config().build().fit(validation.logit, validation.label)
    return found, {split: replace(one, prob=found.apply(one.logit)) for split, one in scores.items()}


def scores_of(run: FinishedRun) -> dict[Split, PoolScores]:
    """Return a run's scores of its validation and test pools with known labels."""
    return known_scores({split: run.folder.predictions(split) for split in MEASURED})


def known_scores(predictions: Mapping[Split, pa.Table]) -> dict[Split, PoolScores]:
    """Return the scores of the splits that have pools with known labels."""
    return {
        split: PoolScores.from_predictions(table)
        for split, table in predictions.items()
        if (table["label"].to_numpy() == 1).any()
    }


def _calibrated(run: FinishedRun, choice: CalibrationChoice) -> dict[str, Any]:
    """Return the fields of a subject about its calibration."""
    if choice == "run":
        calibration, scores = run.fitted.calibration or IDENTITY, scores_of(run)
        return {"calibration": calibration, "calibrator": own_calibrator(run), "scores": scores}
    calibration, scores = fitted(scores_of(run), choice)
    return {"calibration": calibration, "calibrator": choice, "scores": scores}
