"""`icalib.calibrate` and `icalib.apply`: calibrated probabilities from any ranker's scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from icalib.api.results import printed
from icalib.api.session import command_line, progress_display
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, location, pull, push

if TYPE_CHECKING:
    from icalib.data.schema import Split
    from icalib.external.apply import Applied
    from icalib.external.calibrator import Calibrator
    from icalib.external.fit import Calibration
    from icalib.external.score_file import ScoreFile
    from icalib.reports.json_lines import JsonLines
    from icalib.reports.progress import TerminalProgress


class EndpointKeywords(TypedDict, total=False):
    """Which service scores which pools."""

    endpoint: str
    """URL of a /rerank service: text-embeddings-inference, vLLM, or Cohere's protocol."""
    data: str | Path
    """Labelled pool folder that the service scores."""
    split: Split
    """Which of its pools; default: test."""
    limit: int | None
    """Maximum number of its pools."""
    protocol: Literal["auto", "tei", "cohere"]
    """What the service speaks; default: detected by a first request."""
    model: str
    """Name of the model, which Cohere's protocol asks for."""
    token: str
    """Sent as a bearer token."""


class CalibrateKeywords(EndpointKeywords, total=False):
    """What `calibrate` takes besides its first arguments."""

    qrels: str | Path
    """Judgements of a TREC run, or of another score file with candidates."""
    columns: Mapping[str, str]
    """The score file's own names of columns, by what they are: pool, candidate, score, label; others are guessed."""
    precision: float
    """Precision that accepted pairs are to have; default: 0.95."""
    coverage: float
    """Probability that an answer set contains a right candidate; default: 0.9."""
    scale: Literal["auto", "probability", "logit"]
    """What scores are; default: probabilities if all are from 0 to 1."""
    seed: int
    """Seed of the two halves and of the folds; default: 1."""


@dataclass(frozen=True, repr=False)
class CalibratedScores:
    """A calibrator folder, and what it was found to be like.

    Attributes:
        path: the folder: `calibrator.json`, `report.html`, `report.json`.
        calibration: the calibrator with its metrics before and after.
    """

    path: Path
    calibration: Calibration

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator."""
        return self.calibration.calibrator

    def __repr__(self) -> str:
        from icalib.reports.calibration import print_calibration

        return printed(lambda console: print_calibration(self.calibration, console))


def calibrate(scores: str | Path | None, out: str | Path, **options: Unpack[CalibrateKeywords]) -> CalibratedScores:
    """Calibrate the scores of any ranker: fit on one half of the pools, report on the other.

        icalib.calibrate("scores.parquet", "calibrators/mine", precision=0.9)

    Args:
        scores: Parquet, JSONL, CSV or a TREC run: a row for each pair, or for each pool with lists; None: those of
            a service.
        out: folder to write: a path or e.g. s3://bucket/calibrators/mine.
        options: qrels, columns, precision, coverage, scale, seed; endpoint, data, split, limit, protocol, model, token;
            see `CalibrateKeywords`.

    Raises:
        DataError: the scores can't be read, or there are too few labelled pools.
        SettingError: an option is missing or invalid.
        ServiceError: the service can't be used.
    """
    from icalib.core.component import validated
    from icalib.core.files import write_json
    from icalib.external.fit import CalibrationSettings
    from icalib.external.fit import calibrate as fit
    from icalib.external.labelled import read_labelled
    from icalib.reports.calibration import calibration_record, write_calibration_page

    folder = local_path(out)
    given = {name: options[name] for name in CalibrationSettings.model_fields if name in options}
    settings = validated(CalibrationSettings, given)
    _check_source(scores, options)
    _check_folder(folder)
    with progress_display() as progress:
        source = local_path(scores) if scores is not None else _collected(folder, options, progress)
        file = _opened(source, options.get("columns") or {}, progress)
        qrels = local_path(options["qrels"]) if "qrels" in options else None
        if qrels is not None:
            pull(qrels)
        labelled = read_labelled(file, qrels)
        if labelled.num_unlabelled:
            progress.message(f"{labelled.num_unlabelled} pools without known labels are left out")
        calibration = fit(labelled.pools, settings)
    calibration.calibrator.save(folder)
    write_json(folder / "report.json", calibration_record(calibration))
    write_calibration_page(calibration, folder / "report.html", f"Calibration of {source.name}", command_line())
    push(folder)
    return CalibratedScores(folder, calibration)


def apply(
    calibrator: str | Path,
    scores: str | Path,
    out: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    sets: bool = True,
    any_range: bool = False,
) -> Applied:
    """Write a score file of any size with calibrated probabilities.

        icalib.apply("calibrators/mine", "new.parquet", "calibrated.parquet")

    Args:
        calibrator: folder that `calibrate` wrote.
        scores: as for `calibrate`, without labels.
        out: Parquet file for one, else a JSONL file.
        columns: as for `calibrate`.
        sets: also write which candidates are in the answer sets.
        any_range: accept scores from another range than that of the calibrator.

    Raises:
        RunFolderError: there is no calibrator.
        DataError: the scores can't be read, or don't fit the calibrator.
        SettingError: an option is invalid.
    """
    from icalib.external.apply import apply as write
    from icalib.external.calibrator import Calibrator

    folder, path = local_path(calibrator), local_path(out)
    pull(folder)
    fitted = Calibrator.load(folder)
    with progress_display() as progress:
        file = _opened(local_path(scores), columns or {}, progress)
        applied = write(fitted, file, path, sets=sets, any_range=any_range)
        for note in applied.notes:
            progress.message(note)
    push(path)
    return applied


def _opened(path: Path, columns: Mapping[str, str], progress: TerminalProgress | JsonLines) -> ScoreFile:
    from icalib.external.score_file import ScoreFile

    pull(path)
    file = ScoreFile.open(path, columns)
    progress.message(f"{location(path)}: {file.understood}")
    return file


def _check_source(scores: str | Path | None, options: CalibrateKeywords) -> None:
    has_endpoint = bool(options.get("endpoint"))
    if (scores is None) != has_endpoint:
        found = "both a score file and --endpoint" if has_endpoint else "neither a score file nor --endpoint"
        raise SettingError(f"found {found}; expected one of them. Name the scores, or the service that gives them.")
    if has_endpoint and not options.get("data"):
        raise SettingError("--data is missing: name the labelled pool folder whose pools the service scores.")
    if has_endpoint and (options.get("columns") or options.get("qrels")):
        raise SettingError("--columns and --qrels are for score files; leave them out with --endpoint.")


def _check_folder(folder: Path) -> None:
    """Refuse to write into a folder of something else."""
    from icalib.core.temporary import is_unused
    from icalib.external.calibrator import CALIBRATOR_FILE
    from icalib.external.collect import SCORES

    pull(folder)
    if is_unused(folder):
        return
    if not any((folder / name).is_file() for name in (CALIBRATOR_FILE, SCORES)):
        raise SettingError(f"{location(folder)} holds something else than a calibrator. Choose another --out.")


def _collected(folder: Path, options: CalibrateKeywords, progress: TerminalProgress | JsonLines) -> Path:
    from icalib.api.options import choice, limits
    from icalib.api.settings import check_has_pools
    from icalib.data.pools import as_pools, iter_pools, read_pool_set
    from icalib.data.schema import SPLITS, UNKNOWN_LABEL
    from icalib.external.collect import collect_scores
    from icalib.external.endpoint import PROTOCOLS, Endpoint

    data = local_path(options["data"]) if "data" in options else Path()
    split = choice("split", options.get("split", "test"), SPLITS)
    check_has_pools(data, split)
    endpoint = Endpoint(
        options.get("endpoint", ""),
        choice("protocol", options.get("protocol", "auto"), PROTOCOLS),
        options.get("model", ""),
        options.get("token", ""),
    )
    pools = [pool for batch in iter_pools(data, split) for pool in as_pools(batch) if pool.label != UNKNOWN_LABEL]
    pools = pools[: limits(options.get("limit")).get(split)]
    inputs = {"endpoint": endpoint.url, "model": endpoint.model, "data": read_pool_set(data).digest, "split": split}
    progress.stage("scoring", endpoint.url)
    return collect_scores(endpoint, pools, folder, inputs, lambda done, total: progress.advance("scoring", done, total))
