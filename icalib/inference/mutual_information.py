"""Entropy and mutual information of Bernoulli predictions, in nats."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def binary_entropy(prob: Tensor) -> Tensor:
    """Return H(p) = −p ln p − (1 − p) ln(1 − p), with 0 ln 0 = 0; any shape.

    Example:
        >>> [round(entropy, 3) for entropy in binary_entropy(torch.tensor([0.5, 0.9])).tolist()]
        [0.693, 0.325]
    """
    return -torch.xlogy(prob, prob) - torch.xlogy(1 - prob, 1 - prob)


@dataclass(frozen=True)
class Moments:
    """Moments of S samples of each pair's logit; every tensor has shape [B] and is float64.

    Variances are over samples with 1/S. `mutual_information` is g = H(mean p) − mean H(p) of the two-class
    distribution (ICAST Eq. 10, read as its code reads it), between 0 and ln 2.
    """

    prob_mean: Tensor
    prob_var: Tensor
    logit_mean: Tensor
    logit_var: Tensor
    mutual_information: Tensor
    num_passes: int
    half_information: tuple[Tensor, Tensor] | None = None
    """g of the even and of the odd passes, which tells how much of it is noise; None with fewer than four passes, and
    where the samples aren't passes."""


class RunningMoments:
    """Moments of samples that are added one at a time, so that memory doesn't grow with their number.

    Example:
        >>> moments = RunningMoments()
        >>> for logits in ([-2.0, 3.0], [2.0, 3.0]):
        ...     moments.add(torch.tensor(logits))
        >>> moments.result().mutual_information.round(decimals=3).tolist()
        [0.328, 0.0]
    """

    def __init__(self) -> None:
        self._count = 0
        self._sums: list[Tensor] = []
        self._first: Tensor | None = None
        self._halves: tuple[list[Tensor], list[Tensor]] = ([], [])  # sums of prob and entropy

    def add(self, logits_B: Tensor) -> None:
        """Add one sample of each pair's logit."""
        logits = logits_B.double()
        if self._first is None:
            self._first = logits
        shifted = logits - self._first  # variances of nearly equal samples keep their digits
        prob = torch.sigmoid(logits)
        entropy = binary_entropy(prob)
        terms = [prob, (prob - torch.sigmoid(self._first)) ** 2, shifted, shifted**2, entropy]
        self._sums = [s + t for s, t in zip(self._sums, terms, strict=True)] if self._count else terms
        half = self._halves[self._count % 2]
        half[:] = [s + t for s, t in zip(half, (prob, entropy), strict=True)] if half else [prob, entropy]
        self._count += 1

    def result(self) -> Moments:
        """Return the moments of all samples added so far."""
        if self._first is None:
            raise ValueError("no samples were added")
        prob, prob_square, shift, shift_square, entropy = (s / self._count for s in self._sums)
        prob_shift = prob - torch.sigmoid(self._first)
        information = _information(prob, entropy)
        return Moments(
            prob_mean=prob,
            prob_var=(prob_square - prob_shift**2).clamp(min=0.0),
            logit_mean=self._first + shift,
            logit_var=(shift_square - shift**2).clamp(min=0.0),
            mutual_information=information if self._count > 1 else torch.zeros_like(information),
            num_passes=self._count,
            half_information=self._half_information() if self._count >= 4 else None,
        )

    def _half_information(self) -> tuple[Tensor, Tensor]:
        even, odd = self._halves
        counts = (self._count + 1) // 2, self._count // 2
        return _information(*(s / counts[0] for s in even)), _information(*(s / counts[1] for s in odd))


def _information(prob: Tensor, entropy: Tensor) -> Tensor:
    return (binary_entropy(prob) - entropy).clamp(min=0.0)  # rounding can leave −1e-17
