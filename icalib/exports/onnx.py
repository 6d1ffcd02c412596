"""A folder with the whole ranker as an ONNX graph, posterior and calibration included, and its tokenizer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from icalib.data.encoding import Encoded
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import Batch
from icalib.exports.agreement import Comparison, Scorer, Scores, ranker_scorer
from icalib.exports.graph import INPUTS, OUTPUTS, RankerGraph
from icalib.exports.stock import read_stock, write_tokenizer
from icalib.exports.subject import Subject
from icalib.exports.texts import PairTexts
from icalib.metrics.pairs import FloatArray
from icalib.models.ranker import Ranker
from icalib.scoring.untrained import token_pool

OPSET = 20
MODEL = "model.onnx"


def write_onnx(subject: Subject[Ranker], folder: Path, tokenizer: Any, texts: PairTexts | None) -> Comparison:
    """Write the graph, with dynamic numbers of pairs and tokens, and the tokenizer.

    Args:
        subject: see `RankerGraph`.
        folder: empty.
        tokenizer: the stock one.
        texts: how it gets pairs; None where it doesn't give the tokens of training.
    """
    from transformers import AutoTokenizer

    ranker = subject.model
    graph = RankerGraph(ranker, subject.estimator, subject.calibration).eval()
    layout = ranker.layout
    some = np.full(2, layout.separator, np.int32)
    example = _inputs([layout.pair(some, some[:length]) for length in (2, 1)], layout.padding)
    graph(*example)  # what it caches (nodes of a quadrature) must not be made of traced tensors
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet():
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
    return Comparison(ranker_scorer(subject), _written_scorer(ranker, folder, read_stock(AutoTokenizer, folder), texts))


def _inputs(pairs: Sequence[Encoded], padding: int) -> tuple[Tensor, ...]:
    """Return the inputs of the graph, [B, L] each."""
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


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Silence the exporter, whose notes are for those who write graphs."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
