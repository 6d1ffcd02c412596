"""Validation of what predicts: an estimator's probabilities, in the view that a rule chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import torch

from icalib.core.errors import SettingError
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.metrics.summary import answer_metrics
from icalib.models.ranker import Ranker
from icalib.scoring.cross import ScoringContext, score_token_pools
from icalib.scoring.gain import GainRule, Shard, pool_scores, resolve_gain_rule
from icalib.scoring.offsets import Offsets
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator

MAX_POOLS = 300
"""How many validation pools are scored after each epoch: R@1 has a standard error of at most 0.03."""
_POOLS_PER_SHARD = 32


class PredictiveValidation:
    """Validation metrics of the probabilities that an estimator predicts, in the view that a gain rule chooses.

    T passes over two views cost 2T plain passes, so at most `MAX_POOLS` pools are scored, drawn by the seed. The passes
    have the same seeds after every epoch.

    Args:
        rule: which view predicts; None: the plain one.
        offsets: logits of the ranker's other parts; None: 0.
    """

    def __init__(
        self,
        store: TokenStore,
        rows: Sequence[int],
        settings: TrainingSettings,
        device: torch.device,
        estimator: AbstractEstimator.Config,
        rule: GainRule | None,
        *,
        seed: int,
        offsets: Offsets | None = None,
        prepare: Callable[[Ranker, int, int], None] | None = None,
    ) -> None:
        self._store, self._settings, self._device, self._prepare = store, settings, device, prepare
        self._estimator, self._rule, self._seed, self._offsets = estimator, rule, seed, offsets
        rng = np.random.default_rng(child_seed(seed, "validation pools"))
        drawn = np.sort(rng.permutation(np.asarray(rows))[:MAX_POOLS]).tolist()
        self._shards = [drawn[start : start + _POOLS_PER_SHARD] for start in range(0, len(drawn), _POOLS_PER_SHARD)]

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> list[tuple[int, Shard]]:
        """Return number and scores of every world-size-th shard."""
        own = range(rank, len(self._shards), world_size)
        if self._prepare is not None:
            self._prepare(ranker, rank, world_size)
        rule = self._rule or GainRule()
        context = ScoringContext(
            ranker=ranker,
            layout=ranker.layout,
            estimator=self._estimator.build(),
            device=self._device,
            precision=self._settings.precision,
            max_tokens=self._settings.max_tokens_per_batch,
            intent_choice=rule.intents,
        )
        return [(number, self._score(context, number)) for number in own]

    def _score(self, context: ScoringContext, number: int) -> Shard:
        pools = list(self._store.pools(self._shards[number]))
        seed = child_seed(self._seed, "validation", number)
        return score_token_pools(context, pools, with_intents=self._rule is not None, seed=seed, offsets=self._offsets)

    def metrics(self, results: Sequence[Sequence[tuple[int, Shard]]]) -> dict[str, float]:
        """Compute F1 (at a fitted threshold), R@1, MAP, ECE and NLL, by tag.

        Raises:
            SettingError: the model has no dropout, so all passes are the same.
        """
        by_number = {number: shard for result in results for number, shard in result}
        shards = [by_number[number] for number in sorted(by_number)]
        if self._estimator.needs == "dropout":
            _check_passes_differ([scores for scores, _ in shards])
        return answer_metrics(pool_scores(shards, resolve_gain_rule(self._rule or GainRule(), shards)))


def _check_passes_differ(tables: Sequence[pa.Table]) -> None:
    if not any(table["logit_var"].to_numpy().any() for table in tables):
        raise SettingError(
            "all passes of mc-dropout have the same logits, so the uncertainty would be 0 everywhere: the model has no "
            "dropout. Set `encoder.dropout` above 0 (the backbone's own may be 0), or set "
            " `uncertainty` to deterministic."
        )
