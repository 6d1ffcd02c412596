"""A folder with the whole ranker as an ONNX graph, posterior and calibration included, and its tokenizer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from icalib.data.encoding import Encoded
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import Batch
from icalib.exports.agreement import TOLERANCE, Comparison, Scorer, Scores, ranker_scorer
from icalib.exports.stock import read_stock, write_tokenizer
from icalib.exports.subject import Subject
from icalib.exports.texts import PairTexts
from icalib.heads.head import LogitPosterior
from icalib.heads.random_features import RandomFeatureHead
from icalib.inference.moments import Moments
from icalib.metrics.pairs import FloatArray
from icalib.models.ranker import Ranker
from icalib.scoring.cross import BatchModel
from icalib.scoring.untrained import token_pool

OPSET = 20
MODEL = "model.onnx"


def write_onnx(subject: Subject[Ranker], folder: Path, tokenizer: Any, texts: PairTexts | None) -> Comparison:
    """Write the graph, with dynamic numbers of pairs and tokens, and the stock tokenizer.

    `texts` is None where that doesn't give the tokens of training.
    """
    from transformers import AutoTokenizer

    ranker = subject.model
    graph = RankerGraph(subject).eval()
    layout = ranker.layout
    some = np.full(2, layout.separator, np.int32)
    example = _inputs([layout.pair(some, some[:length]) for length in (2, 1)], layout.padding)
    graph(*example)  # what it caches (nodes of a quadrature) must not be made of traced tensors
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    for name in ("torch.onnx", "onnxscript"):  # whose notes are for those who write graphs
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            example,
            str(folder / MODEL),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_shapes=(dynamic,) * len(INPUTS),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    write_tokenizer(folder, tokenizer)
    found = _written_scorer(ranker, folder, read_stock(AutoTokenizer, folder), texts)
    steepest = max(1, subject.of_part.slope, subject.affine.slope * subject.of_part.slope)
    return Comparison(ranker_scorer(subject), found, tolerance=TOLERANCE * steepest)


def _inputs(pairs: Sequence[Encoded], padding: int) -> tuple[Tensor, ...]:
    batch = Batch.of(pairs, padding)
    mask_BL = torch.arange(batch.ids_BL.shape[1]) < batch.lengths_B[:, None]
    return batch.ids_BL, mask_BL.long(), batch.segments_BL


def _written_scorer(ranker: Ranker, folder: Path, tokenizer: Any, texts: PairTexts | None) -> Scorer:
    """Score with onnxruntime, from texts where a stock tokenizer gives the tokens of training."""
    import onnxruntime

    tokenize, layout, budget = Tokenizer(ranker.config.encoder.backbone), ranker.layout, ranker.config.encoder.budget
    session = onnxruntime.InferenceSession(str(folder / MODEL), providers=["CPUExecutionProvider"])

    def score(pool: Pool) -> Scores:
        if texts is not None:
            pairs = texts.encoded(tokenizer, pool)
        else:
            tokens = token_pool(pool, tokenize, budget)
            pairs = layout.inputs(tokens.context, None, tokens.candidates)
        given = {name: tensor.numpy() for name, tensor in zip(INPUTS, _inputs(pairs, layout.padding), strict=True)}
        outputs = cast("list[FloatArray]", session.run(list(OUTPUTS), given))
        return Scores([ids.tolist() for ids, _ in pairs], np.stack(outputs, 1))

    return score


INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("logits", "probabilities", "variances")
_EPSILON = float(np.finfo(np.float64).epsneg)


class RankerGraph(nn.Module):
    """Logits, calibrated probabilities and variances of pairs, by a copy of a transformer with one pass.

    The head is linear or has random features.
    """

    def __init__(self, subject: Subject[Ranker]) -> None:
        super().__init__()
        self.ranker: Any = deepcopy(subject.model)
        self.ranker.encoder.backbone.set_attn_implementation("eager")
        self._has_posterior = subject.estimator.needs == "posterior"
        if self._has_posterior:
            self.ranker.answer_head = _InverseFactor(self.ranker.answer_head)
        self._subject, self._estimator = subject, subject.estimator.build()

    @override
    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Compute logits that rank, calibrated probabilities and variances [B] from ids, mask and segments [B, L]."""
        batch = Batch(input_ids, token_type_ids * attention_mask, attention_mask.sum(1))
        if self._has_posterior:
            components = self._estimator.components(BatchModel(self.ranker, batch, seed=0))
            moments: Moments = self._estimator.moments(self._subject.weighted(components))
            logit_B, var_B = torch.logit(moments.prob_mean, eps=_EPSILON), moments.logit_var
        else:  # not by the estimator, which looks whether there are variances: a graph can't depend on values
            logit_B = self._subject.of_part.slope * self.ranker.answer_logits(batch).double()
            logit_B = logit_B + self._subject.of_part.offset
            var_B = torch.zeros_like(logit_B)
        prob_B = torch.sigmoid(self._subject.affine.slope * logit_B + self._subject.affine.offset)
        return logit_B.float(), prob_B.float(), var_B.float()


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
        phi_BL, logit_B = self.head.features_and_logits(features_BD, mean_B)
        var_B = (phi_BL @ self.inverse_LL.T).square().sum(1)  # ‖C⁻¹φ‖²
        return LogitPosterior(logit_B[None], var_B[None])
