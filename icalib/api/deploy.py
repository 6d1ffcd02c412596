"""`icalib.calibrate`, `icalib.apply`, `icalib.export` and `icalib.pair_texts`: what takes rankers elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from icalib.api.options import Place, PlaceKeywords, choice
from icalib.api.results import printed
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, location, pull, push
from icalib.exports.choices import CALIBRATIONS, FORMATS, CalibrationChoice, ExportFormat

if TYPE_CHECKING:
    from icalib.score_files.calibrator import Calibrator
    from icalib.score_files.scores import Applied, Columns


@dataclass(frozen=True, repr=False)
class CalibratedScores:
    """A calibrator, with the metrics before and after it, and the folder that has it."""

    path: Path
    calibrator: Calibrator

    def __repr__(self) -> str:
        from icalib.reports.terminal import print_calibration

        return printed(lambda console: print_calibration(self.calibrator, console))


def calibrate(
    scores: str | Path,
    out: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    scale: Literal["auto", "probability", "logit"] = "auto",
    seed: int = 1,
) -> CalibratedScores:
    """Calibrate the scores of any ranker: fit on one half of the queries, measure on the other.

        icalib.calibrate("scores.parquet", "calibrators/mine")

    A DataError says that the scores can't be read, or that there are too few.

    Args:
        scores: Parquet, JSONL or CSV with a row for each query and candidate: query, candidate, score, label (0 or 1).
        out: folder to write: a path or e.g. s3://bucket/calibrators/mine.
        columns: the file's own names of these columns, e.g. {"query": "ticket"}.
        scale: what scores are; auto: probabilities if all are from 0 to 1.
        seed: of the two halves.
    """
    from icalib.core.files import is_unused
    from icalib.score_files.calibrator import CALIBRATOR_FILE
    from icalib.score_files.calibrator import calibrate as fit
    from icalib.score_files.scores import read_labelled

    folder, path = local_path(out), local_path(scores)
    scale = choice("scale", scale, ("auto", "probability", "logit"))
    names = _columns(columns)
    pull(folder)
    if not is_unused(folder) and not (folder / CALIBRATOR_FILE).is_file():
        raise SettingError(f"{location(folder)} holds something else than a calibrator. Choose another --out.")
    pull(path)
    calibrator = fit(read_labelled(path, names), scale, seed=seed)
    calibrator.save(folder)
    push(folder)
    return CalibratedScores(folder, calibrator)


def apply(
    calibrator: str | Path, scores: str | Path, out: str | Path, *, columns: Mapping[str, str] | None = None
) -> Applied:
    """Write a score file with calibrated probabilities.

        icalib.apply("calibrators/mine", "new.parquet", "calibrated.parquet")

    `calibrator` is a folder that `calibrate` wrote; `scores` and `columns` are as for it, but labels aren't read; `out`
    is a file of the same format. A DataError says that the scores can't be read, or are not on the calibrator's scale.
    """
    from icalib.score_files.calibrator import Calibrator
    from icalib.score_files.scores import apply as write

    folder, source, path = map(local_path, (calibrator, scores, out))
    names = _columns(columns)
    pull(folder)
    pull(source)
    applied = write(Calibrator.load(folder), source, path, names)
    push(path)
    return applied


def _columns(names: Mapping[str, str] | None) -> Columns:
    from icalib.core.component import validated
    from icalib.score_files.scores import Columns

    given: Any = names or {}
    if not isinstance(given, Mapping):
        raise SettingError(f"`columns` is {names!r}: expected names of columns, e.g. {{'query': 'ticket'}}.")
    return validated(Columns, {**given})


def export(
    run: str | Path,
    out: str | Path,
    *,
    format: ExportFormat | None = None,
    calibration: CalibrationChoice = "run",
    distil: bool = False,
    limit: int | None = None,
    license: str = "unknown",
    **place: Unpack[PlaceKeywords],
) -> Path:
    """Write a finished run's ranker as a folder that other software loads, with a model card; or nothing if it fails.

        icalib.export("runs/default/icast-mine-0.1-s1", "my-reranker", distil=True)

    A SettingError says that the format, or none of them, can't express the run's ranker, and names the alternative; an
    ExportError, that the exported model computes something else.

    Args:
        run: the run's folder.
        out: folder to write, which must not exist, or be empty.
        format: what loads it, see docs/export.md; None: the first of these that computes what the run does.
        calibration: `run`: what the run has fitted; others are fitted here to the validation predictions.
        distil: export a student, a plain cross-encoder that is trained to give the run's probabilities.
        limit: train a student on at most this many training pools, labelled ones first; None: all of the run's.
        license: licence for the card.
        place: where a student is trained.
    """
    from icalib.api.session import session
    from icalib.core.files import check_empty
    from icalib.exports.distil import distilled
    from icalib.exports.refusals import check_exportable, check_installed, exact_format
    from icalib.exports.subject import bi_encoder_of, ranker_of
    from icalib.exports.write import write_export
    from icalib.pipeline.finished import FinishedRun

    where, calibration = Place.of(place), choice("calibration", calibration, CALIBRATIONS)
    finished, folder = FinishedRun.open(local_path(run)), local_path(out)
    finished.check_has_models()
    check_empty(folder)
    if format is None:
        format = "cross-encoder" if distil else exact_format(finished, calibration)
    format = choice("format", format, FORMATS)
    if distil and format == "sentence-transformer":
        raise SettingError("a student (--distil) is a cross-encoder. Leave out --format sentence-transformer.")
    if limit is not None and (limit < 1 or not distil):
        raise SettingError(f"--limit {limit}: expected the number of pools that a student (--distil) learns from.")
    if not distil:  # a student is a plain cross-encoder
        check_exportable(finished, format, calibration)
    check_installed(format)
    if distil:
        with session(where) as active:
            subject = distilled(finished, limit, calibration, active.context)
    else:
        subject = (bi_encoder_of if format == "sentence-transformer" else ranker_of)(finished, calibration)
    write_export(subject, format, folder, license=license)
    return folder


def pair_texts(
    folder: str | Path, context: Sequence[str | Mapping[str, str]], candidates: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (context, candidate) as pairs of texts for an exported cross-encoder, cut to the limits of training.

        CrossEncoder("my-reranker").predict(icalib.pair_texts("my-reranker", ["My printer hums."], ["Restart it."]))

    `context` has the last utterances of a dialogue, oldest first: texts, or objects with `text`.
    """
    from icalib.exports.texts import PairTexts, read_tokenizer

    path = local_path(folder)
    pull(path)
    return PairTexts.read(path).pairs(read_tokenizer(path), context, candidates)
