"""How far an exported cross-encoder agrees with its ranker on the run's validation pools, from their texts on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from icalib.calibration.fitted import AffineMap
from icalib.core.errors import ExportError, IcalibError
from icalib.data.pools import as_pools, iter_pools, read_pool_set
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import Batch
from icalib.exports.texts import PairTexts
from icalib.models.ranker import Ranker

_MAX_POOLS = 50
_TOLERANCE = 1e-4  # of logits, over texts of any length


class Agreement(NamedTuple):
    """Agreement of an exported cross-encoder with its ranker on the same pairs."""

    num_pools: int
    num_pairs: int
    num_same_tokens: int
    """Pairs whose texts give the tokens that icalib reads; the others are cut by the token limits inside a word."""
    num_same_best: int
    """Pools with the same best candidate."""
    largest_difference: float
    """Of the calibrated logits of pairs with the same tokens."""


def agreement(
    model: Any, tokenizer: Any, texts: PairTexts, ranker: Ranker, calibration: AffineMap, pools: list[Pool]
) -> Agreement:
    """Compare logits and best candidates on some pools.

    Raises:
        ExportError: the logits of equal tokens differ.
    """
    tokenize, layout = Tokenizer(ranker.config.encoder.backbone), ranker.layout
    num_pairs = num_same_tokens = num_same_best = 0
    largest = 0.0
    for pool in pools:
        context = [np.asarray(ids, np.int32) for ids in tokenize([turn.text for turn in pool.context])]
        cut = layout.limits.max_candidate_tokens
        candidates = [np.asarray(ids[:cut], np.int32) for ids in tokenize(list(pool.candidates))]
        inputs = layout.inputs(context, None, candidates)
        pairs = texts.pairs(tokenizer, [turn.text for turn in pool.context], pool.candidates)
        encoded = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            expected_C = calibration.slope * ranker.answer_logits(Batch.of(inputs, layout.padding)) + calibration.offset
            found_C = model(**encoded).logits[:, 0]
        lengths_C = encoded["attention_mask"].sum(1).tolist()
        same = [
            row[:length].tolist() == ids.tolist()
            for row, length, (ids, _) in zip(encoded["input_ids"], lengths_C, inputs, strict=True)
        ]
        num_pairs += len(same)
        num_same_tokens += sum(same)
        num_same_best += int(found_C.argmax() == expected_C.argmax())
        if any(same):
            largest = max(largest, float((found_C - expected_C).abs()[torch.tensor(same)].max()))
    tolerance = _TOLERANCE * max(1, abs(calibration.slope))
    if not largest <= tolerance:
        raise ExportError(
            f"the exported cross-encoder's logits differ from the ranker's by {largest:.1e} on pairs with the same "
            f"tokens; at most {tolerance:g} was expected. Nothing was written. Export with --format onnx."
        )
    return Agreement(len(pools), num_pairs, num_same_tokens, num_same_best, largest)


def validation_pools(data: Path, digest: str) -> list[Pool]:
    """Return some validation pools of a run; none if its pool folder is missing or has changed."""
    try:
        if read_pool_set(data).digest != digest:
            return []
        batches = iter_pools(data, "validation")
        return list(islice((pool for batch in batches for pool in as_pools(batch)), _MAX_POOLS))
    except IcalibError:
        return []
