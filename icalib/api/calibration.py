"""`icalib.calibrate` and `icalib.apply`: calibrated probabilities from any ranker's scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from icalib.api.results import printed
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, location, pull, push

if TYPE_CHECKING:
    from icalib.external.apply import Applied
    from icalib.external.calibrator import Calibrator


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
    from icalib.api.options import choice
    from icalib.core.component import validated
    from icalib.core.temporary import is_unused
    from icalib.external.calibrator import CALIBRATOR_FILE
    from icalib.external.fit import calibrate as fit
    from icalib.external.scores import Columns, read_labelled

    folder, path = local_path(out), local_path(scores)
    scale = choice("scale", scale, ("auto", "probability", "logit"))
    names = validated(Columns, dict(columns or {}))
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
    """Write a score file of any size with calibrated probabilities.

        icalib.apply("calibrators/mine", "new.parquet", "calibrated.parquet")

    `calibrator` is a folder that `calibrate` wrote; `scores` and `columns` are as for it, but labels aren't read; `out`
    is a file of the same format. A DataError says that the scores can't be read, or are not on the calibrator's scale.
    """
    from icalib.core.component import validated
    from icalib.external.apply import apply as write
    from icalib.external.calibrator import Calibrator
    from icalib.external.scores import Columns

    folder, source, path = map(local_path, (calibrator, scores, out))
    names = validated(Columns, dict(columns or {}))
    pull(folder)
    pull(source)
    applied = write(Calibrator.load(folder), source, path, names)
    push(path)
    return applied
