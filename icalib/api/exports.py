"""`icalib.export` and `icalib.pair_texts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from icalib.api.options import choice
from icalib.core.storage import local_path, pull

CalibrationChoice = Literal["run", "platt", "temperature"]
"""`run`: the run's own calibration, if it has one; otherwise what is fitted to the run's validation predictions."""
CALIBRATIONS: tuple[CalibrationChoice, ...] = ("run", "platt", "temperature")
ExportFormat = Literal["cross-encoder", "onnx"]
FORMATS: tuple[ExportFormat, ...] = ("cross-encoder", "onnx")


def export(
    run: str | Path,
    out: str | Path,
    *,
    format: ExportFormat = "cross-encoder",
    calibration: CalibrationChoice = "run",
    license: str = "unknown",
) -> Path:
    """Write a finished run's ranker as a folder that other software loads, with a model card; or nothing if it fails.

        icalib.export("runs/default/bert-mine-0.1-s1", "my-reranker")

    Args:
        run: run folder: a path or e.g. s3://bucket/runs/….
        out: folder to write; it must not exist, or be empty.
        format: `cross-encoder`: stock `sentence_transformers.CrossEncoder(out)` loads it.
        calibration: `run`: what the run has fitted, or none. `platt`, `temperature`: fitted here to the run's
            validation predictions.
        license: licence for the card.

    Raises:
        SettingError: the format can't express the run's ranker (the message names the alternative), or `out` is not
            empty.
        ExportError: the exported model computes something else than the ranker.
    """
    from icalib.exports.refusals import check_cross_encoder, check_trained
    from icalib.exports.subject import Subject
    from icalib.exports.write import export_cross_encoder
    from icalib.models.checkpoint import load_ranker_config
    from icalib.pipeline.inference import FinishedRun

    choice("format", format, FORMATS)
    chosen = choice("calibration", calibration, CALIBRATIONS)
    finished, folder = FinishedRun.open(local_path(run)), local_path(out)
    check_trained(finished)
    config = load_ranker_config(finished.members[0][0])
    check_cross_encoder(finished, config, chosen)
    export_cross_encoder(Subject.of_run(finished, chosen), folder, license=license)
    return folder


def pair_texts(
    folder: str | Path, context: Sequence[str | Mapping[str, str]], candidates: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (context, candidate) as pairs of texts for an exported cross-encoder, cut to the limits of training.

        CrossEncoder("my-reranker").predict(icalib.pair_texts("my-reranker", ["My printer hums."], ["Restart it."]))

    Args:
        folder: exported folder.
        context: the last utterances of a dialogue, oldest first: texts, or objects with `text`.
        candidates: one or more.

    Raises:
        RunFolderError: the folder is not an export.
        DataError: an utterance or candidate is empty, or isn't a text.
    """
    from icalib.encoders.backbone import load_tokenizer
    from icalib.exports.texts import PairTexts

    path = local_path(folder)
    pull(path)
    return PairTexts.read(path).pairs(load_tokenizer(str(path)), context, candidates)
