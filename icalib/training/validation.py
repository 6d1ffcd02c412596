"""Validation of rankers: plain, or of what predicts, and of intents beside answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from scipy.special import expit
from torch import Tensor

from icalib.core.errors import SettingError
from icalib.core.seeding import child_seed
from icalib.data.encoding import Encoded, TokenPool, TokenStore
from icalib.data.schema import UNKNOWN_LABEL
from icalib.data.selection import Selection
from icalib.encoders.transfer import forward_batches
from icalib.encoders.transformer import Batch
from icalib.losses.binary import Link
from icalib.metrics.calibration import nll_from_logits
from icalib.metrics.classification import label_counts, micro_macro_f1
from icalib.metrics.pairs import PoolScores, pool_softmax
from icalib.metrics.summary import answer_metrics
from icalib.models.precision import autocast
from icalib.models.ranker import PoolInputs, Ranker, make_batch
from icalib.scoring.cross import LoadedCross, score_token_pools
from icalib.scoring.gain import GainRule, Shard, pool_scores, resolve_gain_rule
from icalib.scoring.offsets import Offsets
from icalib.training.loop import diverged
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic

Floats = npt.NDArray[np.float64]
Sizes = npt.NDArray[np.int64]

MAX_POOLS = 300
"""How many validation pools `PredictiveValidation` scores: R@1 has a standard error of at most 0.03."""
_POOLS_PER_SHARD = 32
_MAX_UTTERANCES = 500  # a standard error of about 0.02
MICRO, MACRO = "class/intents_micro_F1", "class/intents_macro_F1"
"""Tags of the F1 of intents: of all decisions together, and the mean over intents."""


def validation_rows(store: TokenStore, selection: Selection) -> list[int]:
    """Return the rows of the selected validation pools of known label, with or without a right candidate."""
    rows = selection.rows("validation", "all", store.column("label_order"))
    return rows[store.column("label")[rows] != UNKNOWN_LABEL].tolist()


PoolResult = tuple[int, list[float], list[int]]
"""A validation pool: its row, and the scores and labels of its candidates."""


def pool_results(pools: Sequence[TokenPool], score_N: Floats) -> list[PoolResult]:
    """Return the result of each pool, from the scores of all pairs."""
    ends = np.cumsum([len(pool.candidates) for pool in pools])
    parts = np.split(score_N, ends[:-1]) if pools else []
    labels = [pool.is_right().astype(np.int64).tolist() for pool in pools]
    return [(pool.row, part.tolist(), right) for pool, part, right in zip(pools, parts, labels, strict=True)]


def joined_results(
    results: Sequence[Sequence[PoolResult]], probabilities: Callable[[Floats, Sizes], Floats]
) -> PoolScores:
    """Return the pools of all workers, by row; `probabilities` maps scores [N], given the sizes of the pools.

    An IcalibError says that a score is NaN: metrics of such scores may be finite.
    """
    rows, scores, labels = zip(*sorted(pool for result in results for pool in result), strict=True)
    sizes = np.array([len(one) for one in scores])
    score_N, label_N = np.concatenate(scores), np.concatenate(labels)
    if np.isnan(score_N).any():
        raise diverged("a validation pool has the score nan")
    offsets = np.append(0, np.cumsum(sizes))
    return PoolScores(tuple(map(str, rows)), score_N, probabilities(score_N, sizes), label_N, offsets)


@dataclass
class _AnswerValidation:
    store: TokenStore
    rows: Sequence[int]
    """Validation pools of known label; R@1 and MAP are of those with a right candidate."""
    settings: TrainingSettings
    device: torch.device
    offsets: Offsets | None = field(default=None, kw_only=True)
    """Logits of the ranker's other parts; None: 0."""
    prepare: Callable[[Ranker, int, int], None] | None = field(default=None, kw_only=True)
    """Computes a head's posterior before each pass, with the ranker, this worker's rank and their number."""


@dataclass
class PlainValidation(_AnswerValidation):
    """Validation metrics from one pass without dropout over the plain view, cheap enough for every epoch.

    A head's posterior is judged by the probability that the estimator predicts.
    """

    estimator: AbstractEstimator.Config = field(default=Deterministic.Config(), kw_only=True)
    """One without dropout."""
    link: Link = field(default="sigmoid", kw_only=True)
    """Maps logits to probabilities; with a softmax, F1 counts only each pool's best candidate as predicted right."""

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> list[PoolResult]:
        """Return the logits of every world-size-th pool."""
        pools = list(self.store.pools(self.rows[rank::world_size]))
        if self.prepare is not None:
            self.prepare(ranker, rank, world_size)
        offset_N = None if self.offsets is None else self.offsets.of_pools(pools, "plain")
        return pool_results(pools, self._logits(ranker, PoolInputs.of(pools, ranker.layout, None), offset_N))

    def _logits(self, ranker: Ranker, pools: PoolInputs, offset_N: Floats | None) -> Floats:
        """Compute the logit of each pair [N], in the order of `pools`."""
        compute = ranker.answer_logits
        if self.estimator.needs == "posterior":
            compute = partial(predictive_logits, ranker, self.estimator.build())
        lengths = [len(ids) for ids, _ in pools.inputs]
        batches = forward_batches(lengths, self.settings.max_tokens_per_batch, self.device)
        computed: list[Tensor] = []
        with torch.inference_mode(), autocast(self.device, self.settings.precision):
            for batch in batches:
                offset_B = None if offset_N is None else offset_N[pools.pairs(batch)]
                pairs = [pools.inputs[int(index)] for index in batch]
                computed.append(compute(make_batch(pairs, ranker.layout, self.device, offset_B)).float())
        values = np.zeros(pools.num_pairs)
        for batch, values_B in zip(batches, computed, strict=True):  # read after all batches are queued on a GPU
            values[pools.pairs(batch)] = values_B.cpu().numpy()
        return values

    def metrics(self, results: Sequence[Sequence[PoolResult]]) -> dict[str, float]:
        """Compute F1 (at a fitted threshold, or by argmax), R@1, MAP, ECE and NLL, by tag."""
        if self.link == "softmax":
            return answer_metrics(joined_results(results, pool_softmax), by_argmax=True)
        scores = joined_results(results, lambda logit_N, _: expit(logit_N))
        return answer_metrics(scores, loss=nll_from_logits(scores.logit, scores.label))


def predictive_logits(ranker: Ranker, estimator: AbstractEstimator, batch: Batch) -> Tensor:
    """Compute the logits of E σ(f) over the posterior of each pair's logit f, as an estimator does, [B]."""
    return torch.logit(estimator.moments(ranker.answer_posterior(batch)).prob_mean, eps=1e-15)


def _arrow_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _shard(scores: bytes, intents: bytes | None = None) -> Shard:
    return pa.ipc.open_stream(scores).read_all(), None if intents is None else pa.ipc.open_stream(intents).read_all()


@dataclass
class PredictiveValidation(_AnswerValidation):
    """Validation metrics of the probabilities that an estimator predicts, in the view that a gain rule chooses.

    At most `MAX_POOLS` pools are scored, drawn by the seed; the passes have the same seeds after every epoch.
    """

    estimator: AbstractEstimator.Config
    rule: GainRule | None
    """Which view predicts; None: the plain one."""
    seed: int = field(kw_only=True)

    @cached_property
    def _shards(self) -> list[list[int]]:
        rng = np.random.default_rng(child_seed(self.seed, "validation pools"))
        drawn = np.sort(rng.permutation(np.asarray(self.rows))[:MAX_POOLS]).tolist()
        return [drawn[start : start + _POOLS_PER_SHARD] for start in range(0, len(drawn), _POOLS_PER_SHARD)]

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> list[tuple[int, list[bytes]]]:
        """Return number and scores (tables as Arrow's bytes) of every world-size-th shard."""
        if self.prepare is not None:
            self.prepare(ranker, rank, world_size)
        estimator, choice = self.estimator.build(), (self.rule or GainRule()).intents
        precision, max_tokens = self.settings.precision, self.settings.max_tokens_per_batch
        context = LoadedCross(ranker, estimator, self.device, precision, max_tokens, choice)
        return [(number, self._score(context, number)) for number in range(rank, len(self._shards), world_size)]

    def _score(self, context: LoadedCross, number: int) -> list[bytes]:
        pools = list(self.store.pools(self._shards[number]))
        seed = child_seed(self.seed, "validation", number)
        with_intents = self.rule is not None
        shard = score_token_pools(context, pools, with_intents=with_intents, seed=seed, offsets=self.offsets)
        return [_arrow_bytes(table) for table in shard if table is not None]

    def metrics(self, results: Sequence[Sequence[tuple[int, list[bytes]]]]) -> dict[str, float]:
        """Compute F1 (at a fitted threshold), R@1, MAP, ECE, NLL, by tag; SettingError if all passes are the same."""
        by_number = {number: shard for result in results for number, shard in result}
        shards = [_shard(*by_number[number]) for number in sorted(by_number)]
        if self.estimator.needs == "dropout" and not any(table["logit_var"].to_numpy().any() for table, _ in shards):
            raise SettingError(
                "all passes of mc-dropout have the same logits, so the uncertainty would be 0 everywhere: the model "
                "has no dropout. Set `encoder.dropout` above 0 (the backbone's own may be 0), or set `uncertainty` to "
                "deterministic."
            )
        return answer_metrics(pool_scores(shards, resolve_gain_rule(self.rule or GainRule(), shards)))


class ValidationWithIntents:
    """Adds F1 of the intents to validation metrics of answers, which still choose the weights.

    An utterance's intents are predicted (above probability ½) given the gold ones of those before it, as in training.
    At most 500 utterances are used, spread evenly over the pools.
    """

    def __init__(self, answers: PlainValidation | PredictiveValidation) -> None:
        self._answers = answers
        found = [
            (pool.row, utterance)
            for pool in answers.store.pools(answers.rows)
            for utterance, intents in enumerate(pool.intents)
            if len(intents)
        ]
        self._utterances = found[:: -(-len(found) // _MAX_UTTERANCES)] if found else []

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> tuple[Any, list[list[float]]]:
        """Return the results of answers, and per intent the true positives, predicted and gold ones [3, K]."""
        answers = self._answers(ranker, rank, world_size)
        return answers, self._counts(ranker, self._utterances[rank::world_size]).tolist()

    def metrics(self, results: Sequence[tuple[Any, list[list[float]]]]) -> dict[str, float]:
        """Compute the answers' metrics, and micro and macro F1 of intents, the latter over those that occur."""
        metrics = self._answers.metrics([answers for answers, _ in results])
        counts_3K = np.sum([counts for _, counts in results], axis=0)
        if not counts_3K.any():
            return metrics
        return {**metrics, **dict(zip((MICRO, MACRO), micro_macro_f1(counts_3K), strict=True))}

    def _counts(self, ranker: Ranker, utterances: Sequence[tuple[int, int]]) -> Floats:
        settings, device = self._answers.settings, self._answers.device
        layout, questions = ranker.layout, list[Encoded]()
        gold_NK = np.zeros((len(utterances), len(ranker.config.intents)), np.bool_)
        for number, (row, utterance) in enumerate(utterances):
            pool = self._answers.store.pool(row)
            questions.append(layout.intent_question(pool.context, pool.intents, utterance))
            gold_NK[number, list(pool.intents[utterance])] = True
        predicted_NK = np.zeros_like(gold_NK)
        with torch.inference_mode(), autocast(device, settings.precision):
            for batch in forward_batches([len(ids) for ids, _ in questions], settings.max_tokens_per_batch, device):
                inputs = make_batch([questions[int(index)] for index in batch], layout, device)
                predicted_NK[batch] = (ranker.intent_logits(inputs) > 0).cpu().numpy()
        return label_counts(predicted_NK, gold_NK)
