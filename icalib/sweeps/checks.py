"""What is checked before a sweep trains anything: that its metrics say something about the validation pools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from icalib.calibration.none_of_these import MIN_POOLS
from icalib.core.errors import SettingError
from icalib.data.pools import read_column, read_rows
from icalib.data.schema import UNKNOWN_LABEL, candidate_labels
from icalib.metrics.catalogue import find_metric
from icalib.metrics.pairs import PoolScores
from icalib.pipeline.config import RunConfig


def check_metrics(metrics: Iterable[str], base: RunConfig) -> None:
    """Refuse metrics that don't apply to the validation pools of a sweep, e.g. AUROC_none where no pool is without."""
    conditional = {name: applies for name in metrics if (applies := find_metric(name).applies) is not None}
    pools = _before_scoring(base) if conditional else None
    for name, applies in conditional.items():
        if pools is not None and not applies(pools):
            raise SettingError(not_applicable(name, base))


def not_applicable(metric: str, config: RunConfig) -> str:
    """Return the error of a metric that validation has no value of."""
    return (
        f"the space tunes {metric} ({find_metric(metric).description}), which does not apply to the validation pools "
        f"of {config.data}. Name another metric in METRICS, or prepare pools that it is about."
    )


def _before_scoring(config: RunConfig) -> PoolScores | None:
    """Return the validation pools with known labels, all pairs with equal scores; None if there are none.

    A metric says whether it applies by labels and sizes, and by whether p_none was fitted.
    """
    rows = config.selection.rows("validation", "all", read_column(config.data, "validation", "label_order"))
    table = read_rows(config.data, "validation", rows, ["label", "also_right", "candidates"])
    labels = [
        candidate_labels(row["label"], row["also_right"], len(row["candidates"])).tolist()
        for row in table.to_pylist()
        if row["label"] != UNKNOWN_LABEL
    ]
    if not labels:
        return None
    pools = PoolScores.from_lists([[0.0] * len(one) for one in labels], labels)
    num_answerable = int(pools.answerable.sum())
    has_p_none = min(num_answerable, pools.num_pools - num_answerable) >= MIN_POOLS
    return replace(pools, p_none=np.full(pools.num_pools, 0.5)) if has_p_none else pools
