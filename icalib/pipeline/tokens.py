"""Job that tokenises a pool folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from icalib.core.events import Emit, Progress
from icalib.core.job import Artifact, ByContent, LocalJob
from icalib.data.encoding import Budget, write_tokens
from icalib.data.logs import LOG_TOKENS, LOGS_FILE, write_log_tokens
from icalib.data.pools import as_pools, iter_pools, read_pool_set
from icalib.data.schema import Pool, Split
from icalib.encoders.backbone import Tokenizer, backbone_digest


class TokenizeJob(LocalJob):
    """Tokenises the utterances and candidates of some splits, each distinct text once."""

    version: ClassVar[int] = 2

    data: Artifact
    """Pool folder."""
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    splits: tuple[Split, ...]

    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        """Write <split>.arrow for each split."""
        tokenize, pool_set = Tokenizer(self.backbone), read_pool_set(self.data.path)
        for split in self.splits:

            def batches(split: Split = split) -> Iterator[list[Pool]]:
                done = 0
                for batch in iter_pools(self.data.path, split):
                    yield list(as_pools(batch))
                    done += batch.num_rows
                    emit(Progress(stage, done, pool_set.num_pools[split], split))

            write_tokens(folder / f"{split}.arrow", batches(), tokenize, pool_set.intents, self.budget)


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
