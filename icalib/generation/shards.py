"""Texts that were made up for labelled pools, on disk: readable shards, and the same as ids for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from icalib.core.files import whole_file
from icalib.core.seeding import child_seed
from icalib.data.encoding import Budget, Tokenize
from icalib.data.generated import ID_SCHEMA
from icalib.data.negatives import Rows
from icalib.data.schema import Pool
from icalib.generation.generator import AbstractGenerator, GenerateJob, build_generator
from icalib.generation.retrieval import gold, training_pools, training_rows
from icalib.generation.texts import question_place

SUMMARY = "generated.json"
"""Who made up what, beside the shards."""

TEXT_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),  # of the training pools
        ("pool_id", pa.string()),
        ("question", pa.string()),  # for people who look at it, as is the right answer
        ("right_answer", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("answer_sources", pa.list_(pa.string())),
        ("contexts", pa.list_(pa.list_(pa.string()))),  # one a candidate, empty for none; or no list at all
        ("context_sources", pa.list_(pa.string())),
    ]
)


def generation_shards(job: GenerateJob) -> list[Rows]:
    """The rows of the labelled pools that each shard serves."""
    rows, size = training_rows(job.data, job.selection, "labelled"), job.generator.pools_per_shard
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def texts_path(folder: Path, number: int) -> Path:
    """Where a shard's texts lie; the file's presence says that the shard is whole."""
    return folder / f"texts-{number:06d}.parquet"


def generate_shard(job: GenerateJob, number: int, folder: Path, device: torch.device) -> None:
    """Make up the texts of one shard and write them."""
    rows = generation_shards(job)[number]
    pools = list(training_pools(job.data, rows))
    table = _made_up(job, rows, pools, _generator(job, device), child_seed(job.generator.seed, job.wanted, number))
    with whole_file(texts_path(folder, number)) as temporary:
        pq.write_table(table, temporary)


_built: dict[str, AbstractGenerator] = {}


def _generator(job: GenerateJob, device: torch.device) -> AbstractGenerator:
    key = f"{device} {job.model_dump_json()}"
    if key not in _built:  # one generator a process; workers live on from shard to shard
        _built.clear()
        _built[key] = build_generator(job, device)
    return _built[key]


def _made_up(job: GenerateJob, rows: Rows, pools: Sequence[Pool], generator: AbstractGenerator, seed: int) -> pa.Table:
    if job.wanted == "grey_answers":
        answers, contexts = generator.grey_answers(pools, job.num_answers, seed), [[] for _ in pools]
    else:
        answers, contexts = generator.right_answers(pools, seed), generator.contexts(pools, seed)
    records = [
        {
            "row": int(row),
            "pool_id": pool.pool_id,
            "question": pool.context[question_place(pool.context)].text,
            "right_answer": gold(pool),
            "answers": [answer.text for answer in own_answers],
            "answer_sources": [answer.source for answer in own_answers],
            "contexts": [list(context.utterances) if context else [] for context in own_contexts],
            "context_sources": [context.source if context else "" for context in own_contexts],
        }
        for row, pool, own_answers, own_contexts in zip(rows, pools, answers, contexts, strict=True)
    ]
    return pa.Table.from_pylist(records, schema=TEXT_SCHEMA)


def made_up_texts(folder: Path) -> Iterator[pa.Table]:
    """TEXT_SCHEMA, one shard after the other."""
    return (pq.read_table(path) for path in sorted(folder.glob("texts-*.parquet")))


def summarise_texts(job: GenerateJob, folder: Path) -> dict[str, Any]:
    """Who made up what, and how many of each kind."""
    answers, contexts, num_pools = Counter[str](), Counter[str](), 0
    for table in made_up_texts(folder):
        num_pools += table.num_rows
        answers.update(table["answer_sources"].combine_chunks().flatten().to_pylist())
        contexts.update(filter(None, table["context_sources"].combine_chunks().flatten().to_pylist()))
    return {
        "wanted": job.wanted,
        "generator": job.generator.title(job.wanted),
        "num_pools": num_pools,
        "answers": dict(answers),
        "contexts": dict(contexts),
    }


def write_synthetic_tokens(texts: Path, path: Path, tokenize: Tokenize, budget: Budget) -> None:
    """Tokenise a folder of texts into an Arrow file that readers map into memory."""
    with whole_file(path) as temporary, pa.ipc.new_file(str(temporary), ID_SCHEMA) as writer:
        for table in made_up_texts(texts):
            writer.write_batch(_id_batch(table.to_pylist(), tokenize, budget))


def _id_batch(records: Sequence[dict[str, Any]], tokenize: Tokenize, budget: Budget) -> pa.RecordBatch:
    texts = [text for record in records for texts in (record["answers"], *record["contexts"]) for text in texts]
    distinct = list(dict.fromkeys(texts))
    ids = dict(zip(distinct, tokenize(distinct), strict=True))
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
