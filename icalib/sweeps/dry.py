"""What the trials of a sweep over pseudo-label rules would select in round 1: one teacher, no student."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from icalib.core.errors import SettingError
from icalib.data.pools import read_column, read_pool_set
from icalib.pipeline.config import RunConfig
from icalib.pipeline.run import RunContext, stages_of
from icalib.regimes.pseudo_labelling import preview
from icalib.regimes.pseudo_labels import PseudoLabelRule
from icalib.regimes.self_training import SelfTraining
from icalib.scoring.gain import Shard
from icalib.scoring.scores import Shards
from icalib.sweeps.study import Proposal


def dry(proposals: Sequence[Proposal], base: RunConfig, seeds: int, context: RunContext) -> Iterator[dict[str, Any]]:
    """Return rows of DRY_SCHEMA, one for each trial and seed, trial by trial; they are computed as they are asked for.

    Teacher and scores are cached for the sweep itself. A SettingError, raised at once, says that the method doesn't
    pseudo-label, that a trial changes more than the rule, or that no pool is unlabelled.
    """
    if not isinstance(base.settings.regime, SelfTraining.Config):
        raise SettingError(
            f"--dry shows what a rule would pseudo-label, and `{base.method}` has no rounds. Leave --dry out, or use "
            "a self-training method such as icast or tsst."
        )
    tuned = {path for proposal in proposals for path in proposal.settings}
    # predicted intents change the scores
    if others := sorted(p for p in tuned if not p.startswith("regime.rule.") or p.startswith("regime.rule.intents")):
        raise SettingError(
            f"--dry applies many rules to one teacher, and the space also changes {', '.join(others[:5])}. "
            "Leave --dry out, or use a space of regime.rule settings alone, such as icast_grid."
        )
    if not len(base.selection.rows("train", "unlabelled", read_column(base.data, "train", "label_order"))):
        raise SettingError(
            f"--dry shows what a rule would pseudo-label, and no training pool of {base.data} is unlabelled at "
            f"{base.labelled:g} labelled. Lower --labelled."
        )
    return _rows(proposals, base, seeds, context)


def _rows(proposals: Sequence[Proposal], base: RunConfig, seeds: int, context: RunContext) -> Iterator[dict[str, Any]]:
    is_precise = any(_rule(proposal).scale == "precision" for proposal in proposals)
    scored = {
        seed: _first_scores(base.model_copy(update={"seed": seed}), context, with_validation=is_precise)
        for seed in range(1, seeds + 1)
    }
    for proposal in proposals:
        rule = _rule(proposal)
        for seed, (shards, validation) in scored.items():
            summary = preview(shards, rule, 1, validation if rule.scale == "precision" else None)
            yield {
                "trial": proposal.number,
                "seed": seed,
                "params": [{"name": name, "value": json.dumps(value)} for name, value in proposal.settings.items()],
                "num_pools_scored": summary.num_pools_scored,
                "num_pseudo_pools": summary.num_pools_selected,
                "num_pseudo_pairs": summary.num_pairs_selected,
                "num_selected_intents": summary.num_pairs_with_intents,
                "pseudo_accuracy": summary.pool_accuracy,
                "pair_accuracy": summary.pair_accuracy,
                "base_accuracy": summary.base_accuracy,
            }


def _rule(proposal: Proposal) -> PseudoLabelRule:
    regime = proposal.method.regime
    assert isinstance(regime, SelfTraining.Config)
    return regime.rule


def _first_scores(
    config: RunConfig, context: RunContext, *, with_validation: bool
) -> tuple[list[Shard], list[Shard] | None]:
    """Return the scores of the unlabelled pools, and of validation, each as one shard, since many rules read them."""
    stages = stages_of(config, read_pool_set(config.data), context)
    regime: SelfTraining = config.settings.regime.build()
    unlabelled, validation = regime.first_scores(stages, with_validation=with_validation)
    return [_joined(unlabelled)], [_joined(validation)] if validation else None


def _joined(shards: Shards) -> Shard:
    scores, intents = zip(*shards, strict=True)
    return pa.concat_tables(scores), pa.concat_tables(intents) if intents[0] is not None else None
