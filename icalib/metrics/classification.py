"""Precision, recall and F1 of the class "right" over pairs, and the threshold with the largest F1."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from icalib.core.errors import DataError
from icalib.metrics.pairs import FloatArray, IntArray, ratio

Decision = Literal["threshold", "argmax"]
"""Which candidates count as right: all above a threshold, or the best one of each pool."""


class Classification(NamedTuple):
    """Precision, recall and F1; 0 where there is nothing to divide by. Fields may be arrays."""

    precision: FloatArray
    recall: FloatArray
    f1: FloatArray


def classification(
    true_positives: FloatArray, predicted_positives: FloatArray, positives: FloatArray
) -> Classification:
    """Return P, R and F1 = 2 TP / (predicted + actual positives) from counts, elementwise."""
    return Classification(
        precision=ratio(true_positives, predicted_positives, 0.0),
        recall=ratio(true_positives, positives, 0.0),
        f1=ratio(2 * true_positives, predicted_positives + positives, 0.0),
    )


def label_counts(predicted_NK: npt.NDArray[np.bool_], gold_NK: npt.NDArray[np.bool_]) -> FloatArray:
    """Return true positives, predicted and gold ones of K labels that may occur together; [3, K]."""
    return np.stack([(predicted_NK & gold_NK).sum(0), predicted_NK.sum(0), gold_NK.sum(0)]).astype(np.float64)


def micro_macro_f1(counts_3K: FloatArray) -> tuple[float, float]:
    """Return F1 of all decisions together, and the mean over the labels that occur."""
    occurs_K = counts_3K[2] > 0
    return (float(classification(*counts_3K.sum(1)).f1), float(classification(*counts_3K[:, occurs_K]).f1.mean()))


def fit_threshold(prob: FloatArray, label: IntArray) -> float:
    """Return the threshold in [0, 1) with the largest F1 of `prob > threshold`; prob, label: [N].

    Of the midpoints between neighbouring values (0 and 1 count), and of equally good ones the nearest to 0.5. A
    DataError says that there are no pairs, or that a probability is NaN or outside [0, 1].
    """
    if prob.size == 0 or not np.all((prob >= 0) & (prob <= 1)):
        raise DataError(
            f"the decision threshold can't be fitted: {prob.size} pairs, "
            f"{int(np.sum(~((prob >= 0) & (prob <= 1))))} of them without a probability from 0 to 1",
            "Fit it on validation pools that are scored and labelled.",
            field="prob",
        )
    values = np.unique(np.concatenate([[0.0], prob, [1.0]]))
    below, above = values[:-1], values[1:]
    order = np.argsort(prob)
    right_up_to = np.concatenate([[0], np.cumsum(label[order])])
    num_rejected = np.searchsorted(prob[order], below, side="right")
    f1 = classification(
        (right_up_to[-1] - right_up_to[num_rejected]).astype(np.float64),
        (prob.size - num_rejected).astype(np.float64),
        np.full(below.shape, right_up_to[-1], np.float64),
    ).f1
    middle = (below + above) / 2
    threshold = np.where(middle < above, middle, below)  # the middle of adjacent floats may round up
    best = threshold[f1 == f1.max()]
    return float(best[np.argmin(np.abs(best - 0.5))])
