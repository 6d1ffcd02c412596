"""The histogram of the confidence gain: its bins are fixed and span all possible gains, most of them empty."""

from __future__ import annotations

import numpy as np

from icalib.core.run_tables import RoundSummary

_TAIL = 0.005


def bulk(summary: RoundSummary) -> slice:
    """The bins to show: all but those that hold the lowest and the highest 0.5 % of the pairs."""
    counts = np.array(summary.gain_histogram_counts)
    share_up_to = np.cumsum(counts) / counts.sum()
    first, last = np.searchsorted(share_up_to, _TAIL, side="right"), np.searchsorted(share_up_to, 1 - _TAIL)
    return slice(int(first), int(last) + 1)
