"""`icalib.export` and `icalib.pair_texts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from icalib.api.options import Place, PlaceKeywords, choice
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, pull
from icalib.exports.choices import CALIBRATIONS, FORMATS, CalibrationChoice, ExportFormat


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
    from icalib.pipeline.inference import FinishedRun

    calibration = choice("calibration", calibration, CALIBRATIONS)
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
        with session(Place.of(place)) as active:
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
    from icalib.encoders.backbone import load_tokenizer
    from icalib.exports.texts import PairTexts

    path = local_path(folder)
    pull(path)
    return PairTexts.read(path).pairs(load_tokenizer(str(path)), context, candidates)
