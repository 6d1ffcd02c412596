"""Statistics of a round of pseudo-labelling."""

from __future__ import annotations

from typing import Any

import numpy as np

from icalib.core.run_tables import RoundSummary
from icalib.regimes.pseudo_labels import PseudoLabelRule, PseudoLabels
from icalib.scoring.gain import ChosenScores, Floats

_THRESHOLDS = (
    "gain_threshold", "positive_threshold", "negative_threshold", "calibrated_positive_threshold",
    "calibrated_negative_threshold", "confidence_threshold",
)  # fmt: skip

# Most gains are within ±0.03 nats, and none beyond ±ln 2: bins are nearly even up to 0.01 and then grow exponentially.
GAIN_EDGES = 0.01 * np.sinh(np.linspace(-1, 1, 81) * np.arcsinh(70))


class RoundTally:
    """Accumulates the statistics of a round, shard by shard."""

    def __init__(self, rule: PseudoLabelRule) -> None:
        self._rule = rule
        self._pools_with_intents: int | None = None
        self._information, self._gain = _Reliability(), _Reliability()
        self._pools = self._selected = self._pairs = self._with_intents = 0
        self._rules: dict[str, int] = {"confident": 0, "calibrated": 0}
        self._confusion: dict[str, int] = {}
        self._top = self._gold_pools = self._right_pools = self._gold_selected = 0.0
        self._histogram = np.zeros(len(GAIN_EDGES) - 1)

    def add(self, chosen: ChosenScores, labels: PseudoLabels) -> None:
        """Add a shard's pools."""
        self._pools += len(np.unique(chosen.row))
        kept_rows, first = np.unique(chosen.row[labels.keep], return_index=True)
        self._selected += len(kept_rows)
        self._pairs += int(labels.keep.sum())
        self._with_intents += int(chosen.with_intents[labels.keep].sum())
        for rule in self._rules:
            self._rules[rule] += int((labels.rule[labels.keep][first] == rule).sum())
        if not np.isnan(chosen.gain).all():
            with_any = len(np.unique(chosen.row[chosen.has_intents]))
            self._pools_with_intents = (self._pools_with_intents or 0) + with_any
        self._information.add(chosen.information_halves)
        self._gain.add(chosen.gain_halves[chosen.has_intents])
        self._histogram += np.histogram(chosen.gain[~np.isnan(chosen.gain)], GAIN_EDGES)[0]
        self._add_gold(chosen, labels)

    def _add_gold(self, chosen: ChosenScores, labels: PseudoLabels) -> None:
        known = chosen.gold >= 0
        if not known.any():
            return
        best = _top_accuracy(chosen)
        self._top += float(best.sum())
        self._gold_pools += len(best)
        kept = labels.keep & known
        label, gold = labels.label[kept], chosen.gold[kept]
        for name, pairs in {
            "true_positive": (label == 1) & (gold == 1),
            "false_positive": (label == 1) & (gold == 0),
            "true_negative": (label == 0) & (gold == 0),
            "false_negative": (label == 0) & (gold == 1),
        }.items():
            self._confusion[name] = self._confusion.get(name, 0) + int(pairs.sum())
        self._gold_selected += len(np.unique(chosen.row[kept]))
        self._right_pools += float(((label == 1) & (gold == 1)).sum())

    def summary(self, number: int) -> RoundSummary:
        """Return the round's summary."""
        pairs = sum(self._confusion.values())
        right = self._confusion.get("true_positive", 0) + self._confusion.get("true_negative", 0)
        return RoundSummary(
            round=number,
            num_pools_scored=self._pools,
            num_pools_selected=self._selected,
            num_pairs_selected=self._pairs,
            num_pools_by_rule=self._rules,
            share_with_intents=self._with_intents / self._pairs if self._pairs else 0.0,
            pool_accuracy=self._right_pools / self._gold_selected if self._gold_selected else None,
            pair_accuracy=right / pairs if pairs else None,
            base_accuracy=self._top / self._gold_pools if self._gold_pools else None,
            confusion=self._confusion,
            gain_histogram_edges=GAIN_EDGES.tolist(),
            gain_histogram_counts=[int(count) for count in self._histogram],
            num_pools_with_intents=self._pools_with_intents,
            information_reliability=self._information.value,
            gain_reliability=self._gain.value,
            thresholds={name: float(getattr(self._rule, name)) for name in _THRESHOLDS},
        )


class _Reliability:
    """Reliability of a statistic of all passes, from the correlation of its two halves.

    By the Spearman-Brown formula it is 2r / (1 + r) for a correlation r: 1 without noise, 0 for noise alone.
    """

    def __init__(self) -> None:
        self._moments: Any = np.zeros(6)  # number, sums, sums of squares, sum of products

    def add(self, halves_N2: Floats) -> None:
        """Add pairs; those without halves are left out."""
        one, two = halves_N2[~np.isnan(halves_N2).any(1)].T
        self._moments += [len(one), one.sum(), two.sum(), one @ one, two @ two, one @ two]

    @property
    def value(self) -> float | None:
        """The reliability; None if it is undefined."""
        number, one, two, ones, twos, products = self._moments
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
