"""What a finished run can promise about its answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from icalib.core.errors import DataError
from icalib.core.run_folder import RunFolder
from icalib.data.schema import Split
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import TopCandidate, top_candidate
from icalib.metrics.risk_control import RiskControl, control_risk, halves

MAX_ERRORS = (0.05, 0.1, 0.2)
"""The α of the promises that reports list."""
CONFIDENCE = 0.9

_HALVES_SEED = 0


def pools_for_sets(folder: RunFolder) -> tuple[PoolScores, Split]:
    """Return the pools that promises and answer sets are fitted on, and their split.

    The best epoch and round, the calibrator and the threshold are those that suit the validation pools, which makes
    them easier than later pools; the test pools have chosen nothing. Without labelled test pools, those of
    validation are returned.
    """
    if folder.has_predictions("test"):
        predictions = folder.predictions("test")
        if (predictions["label"].to_numpy() == 1).any():
            return PoolScores.from_predictions(predictions), "test"
    return PoolScores.from_predictions(folder.predictions("validation")), "validation"


def controls(folder: RunFolder) -> list[RiskControl]:
    """Return what the run can promise for each of MAX_ERRORS."""
    tested, others = tested_and_others(folder)
    return [control_risk(tested, others, max_error, CONFIDENCE) for max_error in MAX_ERRORS]


def demanded(found: RiskControl, folder: RunFolder) -> RiskControl:
    """Return a promise of a run that has a threshold.

    Raises:
        DataError: no threshold can promise it; the message says how many pools would be needed.
    """
    if found.threshold is None:
        raise DataError(
            f"{folder.path}: {found.refusal}",
            "Allow more errors or less confidence (--max-error, --confidence), label more test pools, or use "
            "--coverage, which gives an estimate instead of a promise.",
        )
    return found


def held_elsewhere(found: Sequence[RiskControl], scores: PoolScores) -> list[tuple[float, float]]:
    """Return the fractions of other labelled pools that each threshold answers, and of wrong ones among these.

    Both are NaN without a threshold, the second one also where nothing is answered.
    """
    top = top_candidate(scores)
    rows: list[tuple[float, float]] = []
    for one in found:
        answered = top.prob >= (np.inf if one.threshold is None else one.threshold)
        wrong = float(1 - top.hit[answered].mean()) if answered.any() else float("nan")
        rows.append((float("nan") if one.threshold is None else float(answered.mean()), wrong))
    return rows


def tested_and_others(folder: RunFolder) -> tuple[TopCandidate, TopCandidate]:
    """Return the pools that a threshold is tested on, and those that propose it, for `control_risk`.

    Thresholds come from validation and are tested on the test pools. Where one of the two is missing, one half of
    the other proposes thresholds for the other half.
    """
    pools, split = pools_for_sets(folder)
    if split == "test" and folder.has_predictions("validation"):
        return top_candidate(pools), top_candidate(PoolScores.from_predictions(folder.predictions("validation")))
    return halves(top_candidate(pools), seed=_HALVES_SEED)
