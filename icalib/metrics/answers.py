"""The metrics of answers by which models are chosen on validation."""

from __future__ import annotations

from icalib.metrics.calibration import ece, nll
from icalib.metrics.catalogue import metric_tag
from icalib.metrics.classification import classification_at, classification_by_argmax, fit_threshold
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import average_precision, mean_defined, recall_at_k

MEASURED = ("F1", "R@1", "MAP", "ECE", "NLL")
"""Names of these metrics."""


def answer_metrics(scores: PoolScores, *, by_argmax: bool = False, loss: float | None = None) -> dict[str, float]:
    """Compute F1, R@1, MAP, ECE and NLL, by tag; R@1 and MAP are of the pools with a right candidate.

    Args:
        scores: scores of pools of known labels.
        by_argmax: whether each pool's best candidate alone counts as predicted right, instead of those above a
            threshold that is fitted to the same pools.
        loss: NLL, if it is known more exactly than from probabilities.
    """
    prob, label = scores.prob, scores.label
    decided = (
        classification_by_argmax(scores) if by_argmax else classification_at(prob, label, fit_threshold(prob, label))
    )
    metrics = {
        "F1": float(decided.f1),
        "R@1": mean_defined(recall_at_k(scores, 1)),
        "MAP": mean_defined(average_precision(scores)),
        "ECE": ece(prob, label),
        "NLL": nll(prob, label) if loss is None else loss,
    }
    return {metric_tag(name): metrics[name] for name in MEASURED}
