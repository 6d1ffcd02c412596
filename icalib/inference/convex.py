"""Convex fits with a ridge: logistic regression for many labels at once, and listwise regression over pools.

Products of matrices are torch's, whose number of threads the executors set: numpy's would round by the machine's cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float32]


def fit_labels(features_ND: Floats, labels_NK: Floats, ridge: float) -> Floats:
    """Fit K logistic regressions with ridge/2 · ‖w‖² at once: weights [D + 1, K], the last row without a ridge."""
    x_ND, y_NK = torch.from_numpy(with_bias(features_ND)), torch.from_numpy(labels_NK)
    weight_DK = torch.zeros(x_ND.shape[1], y_NK.shape[1], requires_grad=True)

    def loss() -> Tensor:
        nll = torch.nn.functional.binary_cross_entropy_with_logits(x_ND @ weight_DK, y_NK, reduction="sum")
        return nll + ridge / 2 * (weight_DK[:-1] ** 2).sum()

    _minimise(weight_DK, loss)
    return weight_DK.detach().numpy()


def with_bias(features_ND: Floats) -> Floats:
    """Return features with a column of ones."""
    return np.concatenate([features_ND, np.ones((len(features_ND), 1), np.float32)], 1)


def product(left: Floats, right: Floats) -> Floats:
    """Return the product of two matrices, or of a matrix and a vector."""
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


@dataclass(frozen=True)
class Choices:
    """Q questions that each compare a right candidate with its pool's wrong ones.

    `pairs_QC` are rows of the features, the right one first; −1 fills up.
    """

    pairs_QC: npt.NDArray[np.int64]

    @classmethod
    def of(cls, pool_N: npt.NDArray[np.int64], label_N: npt.NDArray[np.int64]) -> Choices:
        """Return the questions of pairs, given each pair's pool; pools without right or wrong pairs ask nothing."""
        questions: list[list[int]] = []
        order = np.argsort(pool_N, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(pool_N[order])) + 1):
            wrong = rows[label_N[rows] == 0].tolist()
            questions += [[int(right), *wrong] for right in rows[label_N[rows] == 1] if wrong]
        width = max(map(len, questions), default=1)
        return cls(np.array([q + [-1] * (width - len(q)) for q in questions], np.int64).reshape(-1, width))

    def nll(self, logit_N: Tensor) -> Tensor:
        """Return the summed negative log-likelihood of the right ones in a softmax over each question."""
        return -self._log_probs(logit_N)[:, 0].sum()

    def _log_probs(self, logit_N: Tensor) -> Tensor:
        pairs_QC = torch.from_numpy(self.pairs_QC)
        logits_QC = logit_N[pairs_QC.clamp(min=0)].masked_fill(pairs_QC < 0, -torch.inf)
        return torch.log_softmax(logits_QC, 1)

    def information(self, features_ND: Floats, logit_N: Tensor) -> Tensor:
        """Return Σ_q X_qᵀ(diag p − p pᵀ)X_q, the Hessian of the loss; [D, D], float64."""
        prob_QC = torch.nan_to_num(self._log_probs(logit_N.double()).exp())
        found_DD = torch.zeros((features_ND.shape[1],) * 2, dtype=torch.float64)
        for start in range(0, len(self.pairs_QC), 512):
            pairs_qC, prob_qC = self.pairs_QC[start : start + 512], prob_QC[start : start + 512]
            x_qCD = torch.from_numpy(features_ND[np.maximum(pairs_qC, 0)]).double()
            weighted_qCD = x_qCD * prob_qC[..., None]
            mean_qD = weighted_qCD.sum(1)
            found_DD += x_qCD.flatten(0, 1).T @ weighted_qCD.flatten(0, 1) - mean_qD.T @ mean_qD
        return found_DD


def fit_choices(features_ND: Floats, offset_N: Floats, choices: Choices, ridge: float) -> Floats:
    """Fit the weights [D] of logits offset + X w to choices, with ridge/2 · ‖w‖²."""
    x_ND, offset = torch.from_numpy(features_ND), torch.from_numpy(offset_N)
    weight_D = torch.zeros(x_ND.shape[1], requires_grad=True)
    if len(choices.pairs_QC):
        _minimise(weight_D, lambda: choices.nll(offset + x_ND @ weight_D) + ridge / 2 * (weight_D**2).sum())
    return weight_D.detach().numpy()


def _minimise(weight: Tensor, loss: Callable[[], Tensor]) -> None:
    optimiser = torch.optim.LBFGS([weight], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)
