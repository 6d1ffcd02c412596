"""Jobs that tokenise a pool folder and its logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import torch
from typing_extensions import override

from icalib.core.events import Emit, Progress
from icalib.core.job import Artifact, ByContent, LocalJob, ShardedJob
from icalib.data.encoding import Budget, write_tokens
from icalib.data.logs import LOG_TOKENS, LOGS_FILE, write_log_tokens
from icalib.data.pools import ROW_GROUP, as_pools, iter_pools, read_pool_set
from icalib.data.schema import Split
from icalib.encoders.backbone import Tokenizer, backbone_digest

_POOLS_PER_SHARD = 32 * ROW_GROUP  # their texts and ids take some hundred MiB


class Block(NamedTuple):
    """Some row groups of a split."""

    split: Split
    groups: Sequence[int]


class TokenizeJob(ShardedJob):
    """Tokenises the utterances and candidates of some splits, each distinct text of a shard once."""

    version: ClassVar[int] = 3  # a folder of files for each split
    verb: ClassVar[str] = "tokenising"

    data: Artifact
    """Pool folder."""
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    num_pools: dict[Split, int]
    """Number of pools of each split that is tokenised."""

    @property
    @override
    def uses_models(self) -> bool:
        return False

    @property
    @override
    def is_quick(self) -> bool:
        return sum(self.num_pools.values()) <= _POOLS_PER_SHARD

    @override
    def shards(self) -> list[Block]:
        """Return blocks of row groups, at least one of each split."""
        size = _POOLS_PER_SHARD // ROW_GROUP
        blocks: list[Block] = []
        for split, number in self.num_pools.items():
            groups = range(math.ceil(number / ROW_GROUP))
            blocks += [Block(split, groups[start : start + size]) for start in range(0, max(1, len(groups)), size)]
        return blocks

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / self.shards()[index].split / f"{index:06d}.arrow"

    @override
    def compute_shard(self, index: int, shard: Block, folder: Path, device: torch.device) -> None:
        batches = iter_pools(self.data.path, shard.split, groups=shard.groups)
        pools = [list(as_pools(batch)) for batch in batches]
        intents = read_pool_set(self.data.path).intents
        write_tokens(self.shard_path(folder, index), pools, Tokenizer(self.backbone), intents, self.budget)


class TokenizeLogsJob(LocalJob):
    """Tokenises the logs of a pool folder."""

    logs: Artifact
    """Pool folder, identified by its logs."""
    num_dialogues: int
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget

    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        """Write logs.arrow."""
        tokenize = Tokenizer(self.backbone)
        for done in write_log_tokens(folder / LOG_TOKENS, self.logs.path / LOGS_FILE, tokenize, self.budget):
            emit(Progress(stage, done, self.num_dialogues, "logs"))
