"""Jobs of a round of self-training: what selects and labels its pools, and what repeats labelled ones in a control."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from typing_extensions import override

from icalib.core.events import Emit
from icalib.core.files import read_json, write_json
from icalib.core.job import Artifact, LocalJob, ShardedJob
from icalib.core.parquet import read_parquet, write_parquet
from icalib.core.run_tables import RoundSummary
from icalib.core.seeding import child_seed
from icalib.data.encoding import TokenStore
from icalib.data.selection import Selection
from icalib.regimes.pseudo_labels import PseudoLabelRule, assign, pseudo_label_table, resolve_rule, scores_for_rule
from icalib.regimes.round_tally import ShardTally, round_summary
from icalib.scoring.gain import Shard
from icalib.scoring.scores import Shards, intent_shard
from icalib.training.examples import PairLabels, gold_labels, training_rows

SUMMARY = "summary.json"
_SCORES_PER_SHARD = 64  # files, of 32 pools each by default: a second of work


class ScoreFiles(NamedTuple):
    """Numbers of some files of scores, which each machine finds in its own copy; the rule with absolute thresholds."""

    numbers: range
    rule: PseudoLabelRule


class PseudoLabelJob(ShardedJob):
    """Selects and labels the pools of one round's scores, file by file, and summarises them."""

    version: ClassVar[int] = 2  # a λ⁻ that is a precision selects the last candidate, too
    verb: ClassVar[str] = "pseudo-labelling"

    scores: Artifact
    """Folder of scored shards."""
    rule: PseudoLabelRule
    round: int
    validation: Artifact | None = None
    """Folder of the scored shards of validation, for thresholds that are precisions."""

    @property
    @override
    def uses_models(self) -> bool:
        return False

    @override
    def shards(self) -> list[ScoreFiles]:
        """Return blocks of files, after thresholds that depend on all of them have been computed."""
        scores = Shards(self.scores.path)
        if not scores:
            return []
        rule = resolve_rule(self.rule, scores, self._validation)
        numbers = range(len(scores))
        return [ScoreFiles(numbers[i : i + _SCORES_PER_SHARD], rule) for i in numbers[::_SCORES_PER_SHARD]]

    @property
    def _validation(self) -> Shards | None:
        return Shards(self.validation.path) if self.validation else None

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"tally-{index:06d}.json"

    @override
    def shared_files(self, folder: Path, index: int) -> Sequence[Path]:
        first = index * _SCORES_PER_SHARD
        numbers = range(first, first + _SCORES_PER_SHARD)
        files = [folder / f"{name}-{number:06d}.parquet" for number in numbers for name in ("pseudo", "intents")]
        return [*files, self.shard_path(folder, index)]

    @override
    def compute_shard(self, index: int, shard: ScoreFiles, folder: Path, device: torch.device) -> None:
        found, tallies = Shards(self.scores.path), list[ShardTally]()
        for number in shard.numbers:
            scores, intents = found[number]
            chosen = scores_for_rule(scores, intents, shard.rule)
            labels = assign(chosen, shard.rule)
            tallies.append(ShardTally.of(chosen, labels))
            _write_shard(folder, number, pseudo_label_table(chosen, labels), intents)
        block = {"thresholds": shard.rule.thresholds, "tallies": [tally.model_dump() for tally in tallies]}
        write_json(self.shard_path(folder, index), block)

    @override
    def finish(self, folder: Path) -> None:
        """Write summary.json."""
        blocks = [read_json(path) for path in sorted(folder.glob("tally-*.json"))]
        rule = self.rule.resolved(blocks[0]["thresholds"]) if blocks else self.rule
        tallies = [ShardTally.model_validate(tally) for block in blocks for tally in block["tallies"]]
        summary = _with_validation(round_summary(tallies, rule, self.round), rule, self._validation)
        write_json(folder / SUMMARY, summary.model_dump())


class RepeatJob(LocalJob):
    """Writes labelled pools, repeated, with gold labels of as many of their pairs as a round has pseudo labels."""

    version: ClassVar[int] = 2  # as many pairs of a pool instead of all

    pseudo_labels: Artifact
    """Folder of a round's pseudo labels, whose numbers count."""
    tokens: Artifact
    selection: Selection
    with_intents: bool
    seed: int
    """Draws the wrong candidates."""

    @override
    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        store, rng = TokenStore(self.tokens.path), np.random.default_rng(child_seed(self.seed, "control"))
        rows = training_rows(store, self.selection)
        sizes = _pool_sizes(self.pseudo_labels.path)
        for index, start in enumerate(range(0, len(sizes), len(rows))):
            wanted = sizes[start : start + len(rows)]
            pools = list(store.pools(rows[: len(wanted)]))
            intents = intent_shard(pools, [pool.intents for pool in pools]) if self.with_intents else None
            gold = gold_labels(store, rows[: len(wanted)], with_intents=self.with_intents)
            drawn = [_drawn(labels, size, rng) for labels, size in zip(gold, wanted, strict=True)]
            tables = [_gold_table(pool.pool_id, labels) for pool, labels in zip(pools, drawn, strict=True)]
            _write_shard(folder, index, pa.concat_tables(tables), intents)


def _pool_sizes(folder: Path) -> list[int]:
    """Return the number of pseudo labels of each pool of a round, in the order of its files."""
    ids = (read_parquet(path, columns=["pool_id"])["pool_id"] for path in sorted(folder.glob("pseudo-*.parquet")))
    return [size for column in ids for size in column.value_counts().field("counts").to_pylist()]


def _drawn(gold: PairLabels, number: int, rng: np.random.Generator) -> PairLabels:
    """Return the labels of that many candidates of a pool: right ones first, then wrong ones, drawn."""
    order = rng.permutation(len(gold.labels))
    right_first = order[np.argsort(-gold.labels[order], kind="stable")]
    return gold.at(np.sort(right_first[:number]))


def _gold_table(pool_id: str, gold: PairLabels) -> pa.Table:
    view = np.where(gold.intent_view, "intent", "plain")
    values = [[pool_id] * len(view), gold.candidates, gold.labels, view]
    return pa.table(dict(zip(("pool_id", "candidate", "label", "view"), values, strict=True)))


def _write_shard(folder: Path, index: int, labels: pa.Table, intents: pa.Table | None) -> None:
    for name, table in (("pseudo", labels), ("intents", intents)):
        if table is not None:
            write_parquet(folder / f"{name}-{index:06d}.parquet", table)


def preview(
    shards: Sequence[Shard], rule: PseudoLabelRule, number: int, validation: Sequence[Shard] | None = None
) -> RoundSummary:
    """Summarise what a rule would select from some scores, without writing anything."""
    rule = resolve_rule(rule, shards, validation)
    return _with_validation(round_summary(_tallies(shards, rule), rule, number), rule, validation)


def _with_validation(summary: RoundSummary, rule: PseudoLabelRule, validation: Iterable[Shard] | None) -> RoundSummary:
    if validation is None:
        return summary
    found = round_summary(_tallies(validation, rule), rule, summary.round)
    return summary.model_copy(
        update={"validation_pools_selected": found.num_pools_selected, "validation_accuracy": found.pool_accuracy}
    )


def _tallies(shards: Iterable[Shard], rule: PseudoLabelRule) -> list[ShardTally]:
    chosen = (scores_for_rule(*shard, rule) for shard in shards)  # one shard in memory at a time
    return [ShardTally.of(one, assign(one, rule)) for one in chosen]


def selects_any(folder: Path) -> bool:
    """Return whether a round has any pseudo label."""
    return bool(read_json(folder / SUMMARY)["num_pools_selected"])
