"""How far an exported model agrees with the run's, from texts on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from icalib.calibration.fitted import pair_logit
from icalib.core.errors import ExportError, IcalibError
from icalib.data.pools import as_pools, iter_pools, read_pool_set
from icalib.data.questions import unlabelled_pool
from icalib.data.schema import Pool, Utterance
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import Batch
from icalib.exports.subject import Subject
from icalib.exports.texts import PROBES
from icalib.metrics.pairs import FloatArray
from icalib.models.ranker import Ranker
from icalib.pipeline.finished import FinishedRun
from icalib.scoring.cross import BatchModel
from icalib.scoring.untrained import token_pool

TOLERANCE = 1e-4
"""The largest difference of an output, relative to large ones; a steep calibration enlarges it."""
_MAX_POOLS = 50


class Scores(NamedTuple):
    """What a model makes of the C candidates of a pool."""

    ids: list[list[int]]  # the tokens that it reads of each pair
    outputs_CK: FloatArray  # its outputs, the first of which ranks


Scorer = Callable[[Pool], Scores]


class Agreement(NamedTuple):
    """Agreement of an exported model with the run's on the same pairs."""

    num_pools: int
    num_pairs: int
    num_same_tokens: int
    """Pairs whose texts give the tokens that icalib reads; the others are cut by the token limits inside a word."""
    num_same_best: int  # pools with the same best candidate
    largest_difference: float  # of the outputs of pairs with the same tokens, relative to large ones


class Comparison(NamedTuple):
    """A run's model and the exported one, which is read back from its folder."""

    expected: Scorer
    found: Scorer
    tolerance: float = TOLERANCE

    def agreement(self, pools: Sequence[Pool]) -> Agreement:
        """Compare outputs and best candidates; an ExportError if outputs for the same tokens differ by too much."""
        num_pairs = num_same_tokens = num_same_best = 0
        differences: list[float] = []
        for pool in pools:
            expected, found = self.expected(pool), self.found(pool)
            same_C = np.array([ids == others for ids, others in zip(expected.ids, found.ids, strict=True)])
            size_CK = np.maximum(np.abs(expected.outputs_CK), 1.0)
            difference_CK = np.abs(found.outputs_CK - expected.outputs_CK) / size_CK
            differences.append(float(difference_CK[same_C].max(initial=0.0)))
            num_pairs += len(same_C)
            num_same_tokens += int(same_C.sum())
            num_same_best += int(found.outputs_CK[:, 0].argmax() == expected.outputs_CK[:, 0].argmax())
        largest = float(np.max(differences))
        if not largest <= self.tolerance:  # NaN, too
            raise ExportError(
                f"the exported model's outputs differ from those of the run's by {largest:.1e} on pairs with the same "
                f"tokens; at most {self.tolerance:g} was expected. Nothing was written. Try another --format, and "
                "report this with the run's config.yaml."
            )
        return Agreement(len(pools), num_pairs, num_same_tokens, num_same_best, largest)


def ranker_scorer(subject: Subject[Ranker]) -> Scorer:
    """Score by icalib's own estimator, sum of parts and calibration, in the precision of the weights: the logits that
    rank, calibrated probabilities, variances.
    """
    ranker, layout = subject.model, subject.model.layout
    tokenize, estimator = Tokenizer(subject.encoder.backbone), subject.estimator.build()

    def score(pool: Pool) -> Scores:
        tokens = token_pool(pool, tokenize, subject.encoder.budget)
        pairs = layout.inputs(tokens.context, None, tokens.candidates)
        with torch.inference_mode():
            components = estimator.components(BatchModel(ranker, Batch.of(pairs, layout.padding), seed=0))
            moments = estimator.moments(subject.weighted(components))
        logit_C, var_C = moments.logit_mean.numpy(), moments.logit_var.numpy()
        ranked_C = pair_logit(moments.prob_mean.numpy(), logit_C)
        outputs = (np.where(var_C > 0, ranked_C, logit_C), subject.calibration.apply(ranked_C), var_C)
        return Scores([ids.tolist() for ids, _ in pairs], np.stack(outputs, 1))

    return score


def pools_to_compare(run: FinishedRun) -> list[Pool]:
    """Return a few pools of our own, and validation pools of the run unless its pool folder is missing or changed."""
    turns, candidates = run.folder.context_turns, [text for texts in PROBES for text in texts]
    contexts = [[Utterance(speaker="user", text=text) for text in texts[-turns:]] for texts in PROBES]
    own = [unlabelled_pool(f"probe-{number}", context, candidates) for number, context in enumerate(contexts)]
    return [*own, *_validation_pools(run.config.data, run.folder.data_digest)]


def _validation_pools(data: Path, digest: str) -> list[Pool]:
    try:
        if read_pool_set(data).digest != digest:
            return []
        pools = (pool for batch in iter_pools(data, "validation") for pool in as_pools(batch))
        return list(islice(pools, _MAX_POOLS))
    except IcalibError:
        return []
