"""A ranker as one graph of tensor operations: from token ids to the calibrated probability.

It computes what `icalib predict` does, without Python between the operations: the bi-encoder's texts are cut out of the
pair's ids in tensors, and the posterior's triangular system is replaced by a product with the inverse factor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.calibration.fitted import AffineMap, FittedMap, IsotonicMap
from icalib.encoders.bi_encoder import BiEncoder, unit_means
from icalib.encoders.transformer import Batch, Encoded
from icalib.exports.subject import Subject
from icalib.heads.random_features import RandomFeatureHead
from icalib.models.ranker import Ranker
from icalib.uncertainty.estimator import Posterior

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("logits", "probabilities", "variances")


class RankerGraph(nn.Module):
    """Logits, calibrated probabilities and variances of pairs.

    Args:
        subject: a transformer with a linear or random-feature head, and its calibration.
    """

    inverse_LL: Tensor

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        ranker = subject.ranker
        self.encoder = ranker.encoder
        self.head = ranker.answer_head
        self.similarity_start = ranker.similarity_start
        self._similarities = ranker.config.similarity_start
        self.bi_encoder = _PairSimilarity(ranker, ranker.bi_encoder) if ranker.bi_encoder is not None else None
        self._estimator = subject.estimator
        if isinstance(self._estimator, Posterior.Config):
            factor_LL = ranker.answer_head.posterior_state()["factor"].double()
            identity_LL = torch.eye(len(factor_LL), dtype=torch.float64)
            inverse_LL = torch.linalg.solve_triangular(factor_LL, identity_LL, upper=False)
            self.register_buffer("inverse_LL", inverse_LL.float())
        self.calibration = _calibration(subject.calibration)

    @override
    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs [B] from ids, mask and segments [B, L]: 0 for the context, 1 for the candidate.

        Returns:
            The logits that candidates are ranked by, the calibrated probabilities, and the variances of the logits (0
            without a posterior).
        """
        segments_BL = token_type_ids * attention_mask
        batch = Batch(input_ids, segments_BL, attention_mask.sum(1))
        encoded: Encoded = self.encoder(batch)
        mean_B = self._mean(encoded, input_ids, attention_mask, segments_BL)
        logit_B, var_B = self._moments(encoded.features_BD, mean_B)
        return logit_B, self.calibration(logit_B), var_B

    def _mean(self, encoded: Encoded, ids_BL: Tensor, mask_BL: Tensor, segments_BL: Tensor) -> Tensor:
        if self.similarity_start is None:
            return torch.zeros_like(encoded.similarity_B)
        parts: list[Tensor] = []
        if self.bi_encoder is not None:
            parts.append(self.bi_encoder(ids_BL, mask_BL, segments_BL))
        if self._similarities != "separate":
            parts.append(encoded.similarity_B)
        return torch.stack(parts, 1) @ self.similarity_start.slope + self.similarity_start.offset

    def _moments(self, features_BD: Tensor, mean_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the mean probabilities, and the variances of the logits."""
        if not isinstance(self._estimator, Posterior.Config):
            logit_B = self.head(features_BD, mean_B)
            return logit_B, torch.zeros_like(logit_B)
        assert isinstance(self.head, RandomFeatureHead)
        phi_BL, logit_B = self.head.features_and_logits(features_BD, mean_B)
        var_B = (phi_BL @ self.inverse_LL.T).square().sum(1)  # ‖C⁻¹φ‖²
        if self._estimator.integration == "mean_field":
            return logit_B / torch.sqrt(1 + self._estimator.mean_field_factor * var_B), var_B
        return self._quadrature(logit_B, var_B, self._estimator.num_nodes), var_B

    def _quadrature(self, logit_B: Tensor, var_B: Tensor, num_nodes: int) -> Tensor:
        """Return the logit of E σ(f), as ln E σ(f) − ln E σ(−f), which keeps the digits near 0 and 1."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
        nodes_N = torch.tensor(nodes, dtype=torch.float32)
        log_weights_N = torch.tensor(np.log(weights / math.sqrt(2 * math.pi)), dtype=torch.float32)
        f_BN = logit_B[:, None] + var_B.sqrt()[:, None] * nodes_N
        softplus_BN = torch.log1p(torch.exp(-f_BN.abs())) + torch.relu(-f_BN)  # −ln σ(f)
        return _log_sum_exp(log_weights_N - softplus_BN) - _log_sum_exp(log_weights_N - softplus_BN - f_BN)


class _PairSimilarity(nn.Module):
    """The bi-encoder's cosine, from the ids of a pair: context and candidate are moved to the start of a row each."""

    def __init__(self, ranker: Ranker, bi_encoder: BiEncoder) -> None:
        super().__init__()
        layout = ranker.layout
        self.encoder = bi_encoder.encoder
        self._cls, self._separator, self._padding = layout.cls, layout.separator, layout.padding

    @override
    def forward(self, ids_BL: Tensor, mask_BL: Tensor, segments_BL: Tensor) -> Tensor:
        word_BL = mask_BL * (ids_BL != self._separator) * (ids_BL < self.encoder.vocabulary)
        word_BL = word_BL * (torch.arange(ids_BL.shape[1], device=ids_BL.device) > 0)
        context_BD = self._mean(ids_BL, word_BL * (1 - segments_BL))
        candidate_BD = self._mean(ids_BL, word_BL * segments_BL)
        return (context_BD * candidate_BD).sum(1)

    def _mean(self, ids_BL: Tensor, kept_BL: Tensor) -> Tensor:
        """Return the unit mean states of [CLS], the kept ids and a separator."""
        kept_BL = kept_BL.long()
        length_B = kept_BL.sum(1)
        # the ids that aren't kept are written to the last column, which is cut off
        index_BL = torch.where(kept_BL == 1, kept_BL.cumsum(1), ids_BL.shape[1] + 1)
        row_BL = torch.full_like(torch.cat([ids_BL, ids_BL[:, :2]], 1), self._padding)
        row_BL = row_BL.scatter(1, index_BL, ids_BL)[:, :-1]
        column_L = torch.arange(row_BL.shape[1], device=ids_BL.device)
        row_BL = torch.where(column_L == length_B[:, None] + 1, self._separator, row_BL)
        row_BL = torch.where(column_L == 0, self._cls, row_BL)
        return unit_means(self.encoder, Batch(row_BL, torch.zeros_like(row_BL), length_B + 2))


class _Affine(nn.Module):
    """σ(a f + b)."""

    def __init__(self, slope: float, offset: float) -> None:
        super().__init__()
        self._slope, self._offset = slope, offset

    @override
    def forward(self, logit_B: Tensor) -> Tensor:
        return torch.sigmoid(self._slope * logit_B + self._offset)


class _Isotonic(nn.Module):
    """A piecewise linear map, constant outside its knots, as a sum of ramps."""

    starts_K: Tensor
    widths_K: Tensor
    slopes_K: Tensor

    def __init__(self, logits: tuple[float, ...], probs: tuple[float, ...]) -> None:
        super().__init__()
        knots, values = np.array(logits), np.array(probs)
        width = np.diff(knots)
        self._first = float(values[0])
        for name, array in (("starts_K", knots[:-1]), ("widths_K", width), ("slopes_K", np.diff(values) / width)):
            self.register_buffer(name, torch.tensor(array, dtype=torch.float64))

    @override
    def forward(self, logit_B: Tensor) -> Tensor:
        above_BK = torch.relu(logit_B.double()[:, None] - self.starts_K)
        return (self._first + (torch.minimum(above_BK, self.widths_K) * self.slopes_K).sum(1)).float()


def _calibration(fitted: FittedMap | None) -> nn.Module:
    if isinstance(fitted, IsotonicMap):
        return _Isotonic(fitted.logits, fitted.probs)
    if fitted is None:
        return _Affine(1.0, 0.0)
    assert isinstance(fitted, AffineMap)
    return _Affine(fitted.slope, fitted.offset)


def _log_sum_exp(values_BN: Tensor) -> Tensor:
    largest_B: Any = values_BN.amax(1)
    return largest_B + (values_BN - largest_B[:, None]).exp().sum(1).log()
