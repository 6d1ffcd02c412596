"""A ranker as one graph of tensor operations: from token ids to the calibrated probability.

The ranker, its estimator and its calibration compute what they do in `icalib predict`; only what a graph can't contain
is replaced: the bi-encoder, which cuts texts out of a pair's ids, and the triangular system of a posterior.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.calibration.fitted import AffineMap, FittedMap, IsotonicMap
from icalib.data.encoding import Layout
from icalib.encoders.bi_encoder import unit_means
from icalib.encoders.transformer import Batch, TransformerEncoder
from icalib.heads.head import LogitPosterior
from icalib.heads.random_features import RandomFeatureHead
from icalib.inference.mutual_information import Moments
from icalib.models.ranker import Ranker
from icalib.scoring.scorer import BatchModel
from icalib.uncertainty.estimator import AbstractEstimator

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("logits", "probabilities", "variances")
_EPSILON = float(np.finfo(np.float64).epsneg)


class RankerGraph(nn.Module):
    """Logits, calibrated probabilities and variances of pairs.

    Args:
        ranker: a transformer with a linear or random-feature head; it is copied.
        estimator: one pass, with or without the head's posterior.
        calibration: affine or isotonic.
    """

    def __init__(self, ranker: Ranker, estimator: AbstractEstimator.Config, calibration: FittedMap) -> None:
        super().__init__()
        self.ranker: Any = deepcopy(ranker)
        self.ranker.encoder.backbone.set_attn_implementation("eager")
        if ranker.bi_encoder is not None:
            self.ranker.bi_encoder = _PairSimilarity(self.ranker.bi_encoder.encoder, ranker.layout)
        self._has_posterior = estimator.needs == "posterior"
        if self._has_posterior:
            self.ranker.answer_head = _InverseFactor(self.ranker.answer_head)
        self._estimator = estimator.build()
        self._calibration = calibration

    @override
    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs [B] from ids, mask and segments [B, L]: 0 for the context, 1 for the candidate.

        Returns:
            The logits that candidates are ranked by, the calibrated probabilities, and the variances of the logits (0
            without a posterior).
        """
        batch = Batch(input_ids, token_type_ids * attention_mask, attention_mask.sum(1))
        moments: Moments = self._estimator.estimate(BatchModel(self.ranker, batch, seed=0))
        logit_B = torch.logit(moments.prob_mean, eps=_EPSILON) if self._has_posterior else moments.logit_mean
        return logit_B.float(), _probabilities(self._calibration, logit_B).float(), moments.logit_var.float()


class _InverseFactor(nn.Module):
    """The posterior of a random-feature head, with the inverse of its Cholesky factor."""

    inverse_LL: Tensor

    def __init__(self, head: RandomFeatureHead) -> None:
        super().__init__()
        self.head = head
        factor_LL = head.posterior_state()["factor"].double()
        identity_LL = torch.eye(len(factor_LL), dtype=torch.float64)
        self.register_buffer("inverse_LL", torch.linalg.solve_triangular(factor_LL, identity_LL, upper=False).float())

    def posterior(self, features_BD: Tensor, mean_B: Tensor) -> LogitPosterior:
        """Return the posterior [1, B]."""
        phi_BL, logit_B = self.head.features_and_logits(features_BD, mean_B)
        var_B = (phi_BL @ self.inverse_LL.T).square().sum(1)  # ‖C⁻¹φ‖²
        return LogitPosterior(logit_B[None], var_B[None])


class _PairSimilarity(nn.Module):
    """The bi-encoder's cosine, from the ids of a pair: context and candidate are moved to the start of a row each."""

    def __init__(self, encoder: TransformerEncoder, layout: Layout) -> None:
        super().__init__()
        self.encoder = encoder
        encoder.backbone.set_attn_implementation("eager")
        self._cls, self._separator = layout.cls, layout.separator

    @override
    def forward(self, batch: Batch) -> Tensor:
        """Compute the cosines [B]."""
        ids_BL, segments_BL, lengths_B = batch.ids_BL, batch.segments_BL, batch.lengths_B
        column_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        is_word_BL = (ids_BL != self._separator) & (ids_BL < self.encoder.vocabulary)
        is_word_BL &= (column_L > 0) & (column_L < lengths_B[:, None])
        context_BD = self._mean(ids_BL, is_word_BL & (segments_BL == 0))
        candidate_BD = self._mean(ids_BL, is_word_BL & (segments_BL == 1))
        return (context_BD * candidate_BD).sum(1)

    def _mean(self, ids_BL: Tensor, kept_BL: Tensor) -> Tensor:
        """Return the unit mean states of [CLS], the kept ids and a separator."""
        length_B = kept_BL.sum(1)
        # the ids that aren't kept are written to the last column, which is cut off
        index_BL = torch.where(kept_BL, kept_BL.long().cumsum(1), ids_BL.shape[1] + 1)
        row_BL = torch.zeros_like(torch.cat([ids_BL, ids_BL[:, :2]], 1)).scatter(1, index_BL, ids_BL)[:, :-1]
        column_L = torch.arange(row_BL.shape[1], device=ids_BL.device)
        row_BL = torch.where(column_L == length_B[:, None] + 1, self._separator, row_BL)
        row_BL = torch.where(column_L == 0, self._cls, row_BL)
        return unit_means(self.encoder, Batch(row_BL, torch.zeros_like(row_BL), length_B + 2))


def _probabilities(map_: FittedMap, logit_B: Tensor) -> Tensor:
    """Return the calibrated probabilities [B], of a piecewise linear map as a sum of ramps."""
    if isinstance(map_, IsotonicMap):
        knots_K, probs_K = (torch.tensor(values, dtype=torch.float64) for values in (map_.logits, map_.probs))
        widths = knots_K[1:] - knots_K[:-1]
        above_B = torch.relu(logit_B.double()[:, None] - knots_K[:-1])
        return probs_K[0] + (torch.minimum(above_B, widths) / widths * (probs_K[1:] - probs_K[:-1])).sum(1)
    assert isinstance(map_, AffineMap)
    return torch.sigmoid(map_.slope * logit_B + map_.offset)
