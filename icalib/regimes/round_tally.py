"""Statistics of a round of pseudo-labelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from icalib.core.run_tables import RoundSummary
from icalib.regimes.pseudo_labels import PseudoLabelRule, PseudoLabels
from icalib.scoring.gain import ChosenScores, Floats

# Most gains are within ±0.03 nats, and none beyond ±ln 2: bins are nearly even up to 0.01 and then grow exponentially.
GAIN_EDGES = 0.01 * np.sinh(np.linspace(-1, 1, 81) * np.arcsinh(70))


class ShardTally(BaseModel):
    """What a round's summary needs of one shard; numbers of pairs or pools where nothing else is said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pools: int
    selected: int
    """Pools."""
    pairs: int
    """Of selected pools."""
    with_intents: int
    """Selected pairs that are read with intents."""
    by_rule: dict[str, int]
    """Selected pools."""
    pools_with_intents: int | None
    """None if only the plain view was scored."""
    information: tuple[float, ...]
    """Moments of the halves of g."""
    gain: tuple[float, ...]
    """Moments of the halves of Δ."""
    gains: tuple[int, ...]
    """By GAIN_EDGES."""
    confusion: dict[str, int] = {}
    """Of selected pairs with a gold label; the following are of such pools."""
    gold_pools: int = 0
    top: float = 0.0
    """Whose best candidate is right."""
    gold_selected: int = 0
    right: int = 0
    """Selected ones with a right positive."""

    @classmethod
    def of(cls, chosen: ChosenScores, labels: PseudoLabels) -> ShardTally:
        """Count a shard's pools."""
        kept_rows, first = np.unique(chosen.row[labels.keep], return_index=True)
        reasons = labels.reason[labels.keep][first]
        has_views = not np.isnan(chosen.gain).all()
        return cls(
            pools=len(np.unique(chosen.row)),
            selected=len(kept_rows),
            pairs=int(labels.keep.sum()),
            with_intents=int(chosen.reads_intents[labels.keep].sum()),
            by_rule={rule: int((reasons == rule).sum()) for rule in ("confident", "calibrated")},
            pools_with_intents=len(np.unique(chosen.row[chosen.has_intents])) if has_views else None,
            information=_moments(chosen.information_halves),
            gain=_moments(chosen.gain_halves[chosen.has_intents]),
            gains=tuple(np.histogram(chosen.gain[~np.isnan(chosen.gain)], GAIN_EDGES)[0].tolist()),
            **_of_gold(chosen, labels),
        )


def _of_gold(chosen: ChosenScores, labels: PseudoLabels) -> dict[str, Any]:
    known = chosen.gold >= 0
    if not known.any():
        return {}
    best, kept = _top_accuracy(chosen), labels.keep & known
    label, gold = labels.label[kept], chosen.gold[kept]
    right = (label == 1) & (gold == 1)
    return {
        "confusion": {
            "true_positive": int(right.sum()),
            "false_positive": int(((label == 1) & (gold == 0)).sum()),
            "true_negative": int(((label == 0) & (gold == 0)).sum()),
            "false_negative": int(((label == 0) & (gold == 1)).sum()),
        },
        "gold_pools": len(best),
        "top": float(best.sum()),
        "gold_selected": len(np.unique(chosen.row[kept])),
        "right": len(np.unique(chosen.row[kept][right])),  # a pool may have several right ones
    }


def round_summary(tallies: Sequence[ShardTally], rule: PseudoLabelRule, number: int) -> RoundSummary:
    """Return the summary of a round from the tallies of all its shards."""

    def total(name: str) -> float:
        return sum(getattr(tally, name) for tally in tallies)

    def by_name(name: str, names: Sequence[str]) -> dict[str, int]:
        return {key: sum(getattr(tally, name).get(key, 0) for tally in tallies) for key in names}

    pools, pairs, gold_pools = int(total("pools")), int(total("pairs")), total("gold_pools")
    confusion = by_name("confusion", next((tuple(tally.confusion) for tally in tallies if tally.confusion), ()))
    gold_pairs, gold_selected = sum(confusion.values()), total("gold_selected")
    right_pairs = confusion.get("true_positive", 0) + confusion.get("true_negative", 0)
    with_intents = [tally.pools_with_intents for tally in tallies if tally.pools_with_intents is not None]
    counts = np.sum([tally.gains for tally in tallies] or [[0] * (len(GAIN_EDGES) - 1)], 0)
    return RoundSummary(
        round=number,
        num_pools_scored=pools,
        num_pools_selected=int(total("selected")),
        num_pairs_selected=pairs,
        num_pools_by_rule=by_name("by_rule", ("confident", "calibrated")),
        share_with_intents=total("with_intents") / pairs if pairs else 0.0,
        pool_accuracy=total("right") / gold_selected if gold_selected else None,
        pair_accuracy=right_pairs / gold_pairs if gold_pairs else None,
        base_accuracy=total("top") / gold_pools if gold_pools else None,
        confusion=confusion,
        gain_histogram_edges=GAIN_EDGES.tolist(),
        gain_histogram_counts=counts.tolist(),
        num_pools_with_intents=sum(with_intents) if with_intents else None,
        information_reliability=_reliability([tally.information for tally in tallies]),
        gain_reliability=_reliability([tally.gain for tally in tallies]),
        thresholds=rule.thresholds,
    )


def _moments(halves_N2: Floats) -> tuple[float, ...]:
    """Return number, sums, sums of squares and sum of products of pairs of halves; NaN is left out."""
    one, two = halves_N2[~np.isnan(halves_N2).any(1)].T
    return tuple(map(float, (len(one), one.sum(), two.sum(), one @ one, two @ two, one @ two)))


def _reliability(moments: Iterable[tuple[float, ...]]) -> float | None:
    """Return the reliability of a statistic of all passes, from the correlation of its two halves; None: undefined.

    By the Spearman-Brown formula it is 2r / (1 + r) for a correlation r: 1 without noise, 0 for noise alone.
    """
    number, one, two, ones, twos, products = reduce(np.add, moments, np.zeros(6))
    variances = (number * ones - one**2) * (number * twos - two**2)
    if number < 3 or variances <= 0:
        return None
    r = (number * products - one * two) / np.sqrt(variances)
    return float(2 * r / (1 + r)) if r > -1 else None


def _top_accuracy(chosen: ChosenScores) -> Floats:
    """Return, for each pool with a gold label, the fraction of its best (tied) candidates that are right."""
    known = chosen.gold >= 0
    _, pool = np.unique(chosen.row[known], return_inverse=True)
    prob, gold = chosen.prob[known], chosen.gold[known]
    best = np.full(pool.max() + 1, -np.inf)
    np.maximum.at(best, pool, prob)
    at_best = prob == best[pool]
    return np.bincount(pool, weights=at_best & (gold == 1)) / np.bincount(pool, weights=at_best)
