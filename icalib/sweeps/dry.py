"""What the trials of a sweep over pseudo-label rules would select in round 1: one teacher, no student."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from icalib.core.errors import SettingError
from icalib.data.pools import read_pool_set
from icalib.methods.composition import Method
from icalib.pipeline.run import RunSettings, Surroundings, check_fits, set_up, stage_cache
from icalib.regimes.gain import Shard
from icalib.regimes.self_training import SelfTraining, preview
from icalib.scoring.job import Shards
from icalib.sweeps.folder import encoded_params
from icalib.sweeps.proposals import Proposal

_RULE = "regime.rule."


def dry(
    proposals: Sequence[Proposal], base: RunSettings, seeds: int, surroundings: Surroundings
) -> Iterator[dict[str, Any]]:
    """A row of DRY_SCHEMA for each trial and seed, trial by trial.

    Teacher and scores come from the cache, or are computed once a seed and stay there for the sweep itself.

    Raises:
        SettingError: the method doesn't pseudo-label, or a trial changes more than the rule.
    """
    _check(proposals, base)
    scored = {seed: _first_scores(base.model_copy(update={"seed": seed}), surroundings) for seed in range(1, seeds + 1)}
    for proposal in proposals:
        method = proposal.method
        assert isinstance(method, Method)
        assert isinstance(method.regime, SelfTraining.Config)
        for seed, shards in scored.items():
            summary = preview(shards, method.regime.rule, number=1)
            yield {
                "trial": proposal.number,
                "seed": seed,
                "params": encoded_params(proposal.settings),
                "num_pools_scored": summary.num_pools_scored,
                "num_pseudo_pools": summary.num_pools_selected,
                "num_pseudo_pairs": summary.num_pairs_selected,
                "num_selected_intents": summary.num_pairs_with_intents,
                "pseudo_accuracy": summary.pool_accuracy,
                "pair_accuracy": summary.pair_accuracy,
                "base_accuracy": summary.base_accuracy,
            }


def _check(proposals: Sequence[Proposal], base: RunSettings) -> None:
    if not (isinstance(base.settings, Method) and isinstance(base.settings.regime, SelfTraining.Config)):
        raise SettingError(
            f"--dry tells what a rule would pseudo-label, and `{base.method}` has no rounds. Leave --dry out, or take "
            "a self-training method such as icast or tsst."
        )
    others = sorted({path for proposal in proposals for path in proposal.settings if not path.startswith(_RULE)})
    if others:
        raise SettingError(
            f"--dry asks one teacher about many rules, and the space also changes {', '.join(others[:5])}. "
            "Leave --dry out, or take a space of regime.rule settings alone, such as icast_grid."
        )


def _first_scores(settings: RunSettings, surroundings: Surroundings) -> list[Shard]:
    pool_set = read_pool_set(settings.data)
    check_fits(settings, pool_set)
    assert isinstance(settings.settings, Method)
    bench, parts = set_up(settings, settings.settings, pool_set, surroundings, stage_cache(surroundings))
    regime: SelfTraining = settings.settings.regime.build()
    return [_joined(regime.first_scores(bench, parts))]


def _joined(shards: Shards) -> Shard:
    """All shards as one: many rules look at them."""
    scores, intents = zip(*shards, strict=True)
    return pa.concat_tables(scores), pa.concat_tables(intents) if intents[0] is not None else None
