"""Jobs of a round of self-training: what selects and labels its pools, and what repeats labelled ones in a control."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from icalib.core.events import Emit
from icalib.core.files import atomic_write, read_json, write_json
from icalib.core.job import Artifact, LocalJob
from icalib.core.parquet import read_parquet
from icalib.core.run_tables import RoundSummary
from icalib.data.encoding import TokenPool, TokenStore
from icalib.data.selection import Selection
from icalib.regimes.pseudo_labels import PseudoLabelRule, assign, choose_pools, pseudo_label_table, resolve_rule
from icalib.regimes.round_tally import RoundTally
from icalib.scoring.gain import Shard
from icalib.scoring.scores import Shards, intent_shard
from icalib.training.examples import gold_labels


class PseudoLabelJob(LocalJob):
    """Selects and labels the pools of one round's scores."""

    scores: Artifact
    """Folder of scored shards."""
    rule: PseudoLabelRule
    round: int
    validation: Artifact | None = None
    """Folder of the scored shards of validation, for thresholds that are precisions."""

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        validation = Shards(self.validation.path) if self.validation else None
        write_pseudo_labels(folder, Shards(self.scores.path), self.rule, self.round, validation)


class RepeatJob(LocalJob):
    """Writes labelled pools, with their gold labels, as often as pools were pseudo-labelled."""

    pseudo_labels: Artifact
    """Folder of a round's pseudo-labels, whose number counts."""
    tokens: Artifact
    selection: Selection
    with_intents: bool

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        store = TokenStore(self.tokens.path)
        rows = self.selection.rows("train", "labelled", store.column("label_order"))
        number = read_json(self.pseudo_labels.path / "summary.json")["num_pools_selected"]
        for index, start in enumerate(range(0, number, len(rows))):
            pools = list(store.pools(rows[: number - start]))
            intents = intent_shard(pools, [pool.intents for pool in pools]) if self.with_intents else None
            _write_shard(folder, index, pa.concat_tables([self._table(pool) for pool in pools]), intents)

    def _table(self, pool: TokenPool) -> pa.Table:
        gold = gold_labels(pool, with_intents=self.with_intents)
        view = np.where(gold.intent_view, "intent", "plain")
        values = [[pool.pool_id] * len(view), gold.candidates, gold.labels, view]
        return pa.table(dict(zip(("pool_id", "candidate", "label", "view"), values, strict=True)))


def write_pseudo_labels(
    folder: Path, shards: Shards, rule: PseudoLabelRule, number: int, validation: Shards | None = None
) -> None:
    """Write pseudo labels, and the intents that they were scored with, shard by shard; then the summary."""
    rule = resolve_rule(rule, shards, validation)
    counts = RoundTally(rule)
    for index, (scores, intents) in enumerate(shards):
        chosen = choose_pools(scores, intents, rule)
        labels = assign(chosen, rule)
        counts.add(chosen, labels)
        _write_shard(folder, index, pseudo_label_table(chosen, labels), intents)
    write_json(folder / "summary.json", _with_validation(counts.summary(number), rule, validation).model_dump())


def _write_shard(folder: Path, index: int, labels: pa.Table, intents: pa.Table | None) -> None:
    for name, table in (("pseudo", labels), ("intents", intents)):
        if table is not None:
            with atomic_write(folder / f"{name}-{index:06d}.parquet") as temporary:
                pq.write_table(table, temporary)


def preview(
    shards: Iterable[Shard], rule: PseudoLabelRule, number: int, validation: Iterable[Shard] | None = None
) -> RoundSummary:
    """Summarise what a rule would select from some scores, without writing anything."""
    rule = resolve_rule(rule, shards, validation)
    return _with_validation(_tally(shards, rule).summary(number), rule, validation)


def _with_validation(summary: RoundSummary, rule: PseudoLabelRule, validation: Iterable[Shard] | None) -> RoundSummary:
    if validation is None:
        return summary
    found = _tally(validation, rule).summary(summary.round)
    return summary.model_copy(
        update={"validation_pools_selected": found.num_pools_selected, "validation_accuracy": found.pool_accuracy}
    )


def _tally(shards: Iterable[Shard], rule: PseudoLabelRule) -> RoundTally:
    counts = RoundTally(rule)
    for shard in shards:
        chosen = choose_pools(*shard, rule)
        counts.add(chosen, assign(chosen, rule))
    return counts


def selects_any(folder: Path) -> bool:
    """Return whether a round's shards have any pseudo label."""
    return any(read_parquet(path, ["pool_id"]).num_rows for path in sorted(folder.glob("pseudo-*.parquet")))
