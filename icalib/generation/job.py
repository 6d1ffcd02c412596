"""Jobs that generate texts for labelled pools, and tokenise them for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import torch
from pydantic import SerializeAsAny
from typing_extensions import override

from icalib.core.events import Emit
from icalib.core.files import atomic_write, write_json
from icalib.core.job import Artifact, ByContent, LocalJob, ShardedJob, kept
from icalib.core.parquet import read_parquet, write_parquet
from icalib.core.seeding import child_seed
from icalib.data.encoding import Budget, Tokenize, ids_by_text
from icalib.data.generated import GENERATED_TOKENS, ID_SCHEMA, TextKind
from icalib.data.negatives import Rows
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.encoders.backbone import Tokenizer, backbone_digest
from icalib.generation.generator import AbstractGenerator, Task
from icalib.generation.retrieval import gold, question_index, training_pools, training_rows
from icalib.models.checkpoint import CHECKPOINT_VERSION

SUMMARY = "generated.json"
"""File that describes the generator and counts the texts, next to the shards."""

TEXT_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),  # of the training pools
        ("pool_id", pa.string()),
        ("question", pa.string()),  # for people who read the table, like the right answer
        ("right_answer", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("contexts", pa.list_(pa.list_(pa.string()))),  # one per candidate, empty for none; or an empty outer list
    ]
)


class GenerateJob(ShardedJob):
    """Generates texts for the labelled pools, in shards."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 1  # without wrong candidates
    verb: ClassVar[str] = "generating texts for"
    memory_advice: ClassVar[str] = "Lower `generator.max_source_tokens` or `generator.max_target_tokens`."

    data: Artifact
    selection: Selection
    wanted: TextKind
    num_answers: int
    """Number of grey answers per pool."""
    generator: SerializeAsAny[AbstractGenerator.Config]
    models: Mapping[Task, Artifact]
    """Checkpoints of the fine-tuned models, by task."""

    @property
    @override
    def uses_models(self) -> bool:
        return bool(self.models)

    def shards(self) -> list[Rows]:
        """Return the rows of the labelled pools of each shard."""
        rows, size = training_rows(self.data.path, self.selection, "labelled"), self.generator.pools_per_shard
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    @override
    def shard_path(self, folder: Path, index: int) -> Path:
        return folder / f"texts-{index:06d}.parquet"

    @override
    def compute_shard(self, index: int, shard: Rows, folder: Path, device: torch.device) -> None:
        pools = list(training_pools(self.data.path, shard))
        seed = child_seed(self.generator.seed, self.wanted, index)
        table = _generated(self, shard, pools, _generator(self, device), seed)
        write_parquet(self.shard_path(folder, index), table)

    def finish(self, folder: Path) -> None:
        """Write a description of the generator and the number of texts."""
        summary: dict[str, Any] = {"wanted": self.wanted, "generator": self.generator.title(self.wanted)}
        counts = {"num_pools": 0, "answers": 0, "contexts": 0}
        for table in generated_texts(folder):
            counts["num_pools"] += table.num_rows
            counts["answers"] += sum(map(len, table["answers"].to_pylist()))
            counts["contexts"] += sum(bool(context) for row in table["contexts"].to_pylist() for context in row)
        write_json(folder / SUMMARY, summary | counts)


def _generator(job: GenerateJob, device: torch.device) -> AbstractGenerator:
    models = {task: model.path for task, model in job.models.items()}
    place = device if models else torch.device("cpu")
    return kept(
        (job.digest(), str(place)),
        lambda: job.generator.build(data=job.data.path, selection=job.selection, models=models, device=place),
    )


def _generated(
    job: GenerateJob, rows: Rows, pools: Sequence[Pool], generator: AbstractGenerator, seed: int
) -> pa.Table:
    if job.wanted == "grey_answers":
        answers, contexts = generator.grey_answers(pools, job.num_answers, seed), [[] for _ in pools]
    else:
        answers, contexts = generator.right_answers(pools, seed), generator.contexts(pools, seed)
    records = [
        {
            "row": int(row),
            "pool_id": pool.pool_id,
            "question": pool.context[question_index(pool.context)].text,
            "right_answer": gold(pool),
            "answers": own_answers,
            "contexts": own_contexts,
        }
        for row, pool, own_answers, own_contexts in zip(rows, pools, answers, contexts, strict=True)
    ]
    return pa.Table.from_pylist(records, schema=TEXT_SCHEMA)


def generated_texts(folder: Path) -> Iterator[pa.Table]:
    """Iterate over the tables of the shards (TEXT_SCHEMA)."""
    return (read_parquet(path) for path in sorted(folder.glob("texts-*.parquet")))


class TokenizeTextsJob(LocalJob):
    """Tokenises generated texts for the encoder."""

    texts: Artifact
    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget

    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        """Write a memory-mappable Arrow file."""
        write_generated_tokens(self.texts.path, folder / GENERATED_TOKENS, Tokenizer(self.backbone), self.budget)


def write_generated_tokens(texts: Path, path: Path, tokenize: Tokenize, budget: Budget) -> None:
    """Tokenise a folder of generated texts (ID_SCHEMA)."""
    with atomic_write(path) as temporary, pa.ipc.new_file(str(temporary), ID_SCHEMA) as writer:
        for table in generated_texts(texts):
            writer.write_batch(_id_batch(table.to_pylist(), tokenize, budget))


def _id_batch(records: Sequence[dict[str, Any]], tokenize: Tokenize, budget: Budget) -> pa.RecordBatch:
    texts = (text for record in records for texts in (record["answers"], *record["contexts"]) for text in texts)
    ids = ids_by_text(texts, tokenize)
    return pa.RecordBatch.from_pylist(
        [
            {
                "row": record["row"],
                "answers": [ids[text][: budget.max_candidate_tokens] for text in record["answers"]],
                "contexts": [
                    [ids[text][-budget.max_context_tokens :] for text in context] for context in record["contexts"]
                ],
            }
            for record in records
        ],
        schema=ID_SCHEMA,
    )
