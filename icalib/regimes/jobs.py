"""Turning a job's description into models, data and results, in whichever process runs it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from icalib.core.errors import SettingError
from icalib.core.files import content_digest, whole_file
from icalib.core.seeding import child_seed
from icalib.data.encoding import Layout, TokenStore
from icalib.data.selection import Rows
from icalib.losses.binary import AbstractLoss
from icalib.losses.listwise import AbstractPoolLoss
from icalib.regimes.answers import AnswerCurriculum, PlainValidation
from icalib.regimes.augmented_answers import AugmentedCurriculum
from icalib.regimes.conditioning import Gather, condition, is_conditioned_on_support, only_one
from icalib.regimes.examples import PairLabels, gold_labels
from icalib.regimes.generators.language_model import Writer, WritingCurriculum
from icalib.regimes.listwise import PoolCurriculum
from icalib.regimes.model import Model
from icalib.regimes.post_training.curriculum import HeldOutWindows, post_training_curriculum
from icalib.regimes.post_training.kind import AbstractPostTraining
from icalib.regimes.ranker import Ranker, load_ranker, save_posterior, start_weights
from icalib.regimes.scoring import ScoringContext, score_pools
from icalib.regimes.synthetic import SyntheticStore
from icalib.regimes.training import Curriculum, EarlyStoppingData, TrainingSettings
from icalib.regimes.workbench import AnyTrainJob, ScoreJob, TrainJob


@dataclass(frozen=True)
class Training:
    """What the loop needs."""

    model: Model
    curriculum: Curriculum
    validation: EarlyStoppingData | None


def prepare_training(job: AnyTrainJob, device: torch.device) -> Training:
    """Build the model, seeded the same in every process, and the data of a training job."""
    torch.manual_seed(child_seed(job.seed, "initial-weights"))
    if job.kind == "generator":
        writer = Writer(job.generator.model, job.generator)
        return Training(writer, WritingCurriculum(writer, job), None)
    if job.kind == "word_vectors":
        return Training(*job.build(), None)
    if job.kind == "intent_classifier":
        return Training(*job.build(device))
    if job.kind == "post_training":
        return _prepare_post_training(job, device)
    ranker = Ranker(job.ranker)
    if job.start is not None:
        start_weights(ranker, job.start)
    store = TokenStore(job.train_tokens)
    rows = job.selection.rows("train", "labelled", store.column("label_order"))
    labelled = [gold_labels(pool, with_intents=job.views_with_intents) for pool in store.pools(rows)]
    pseudo = pseudo_labelled(job.pseudo_labels, store) if job.pseudo_labels else []
    made = (
        answer_curriculum
        if job.contrast is None or job.made_up is None
        else partial(AugmentedCurriculum, contrast=job.contrast.build(), made_up=SyntheticStore(job.made_up))
    )
    curriculum = made(
        [*labelled, *pseudo],
        store,
        ranker.layout,
        job.loss.build(),
        job.training,
        num_intents=len(job.ranker.intents),
        seed=job.seed,
    )
    return Training(ranker, curriculum, _validation(job, ranker, device, curriculum))


def answer_curriculum(
    pools: Sequence[PairLabels],
    store: TokenStore,
    layout: Layout,
    loss: AbstractLoss,
    settings: TrainingSettings,
    *,
    num_intents: int,
    seed: int,
) -> AnswerCurriculum | PoolCurriculum:
    """Pairs and intents, or whole pools where the loss looks at those."""
    if isinstance(loss, AbstractPoolLoss):
        return PoolCurriculum(pools, store, layout, loss, settings, seed=seed)
    return AnswerCurriculum(pools, store, layout, loss, settings, num_intents=num_intents, seed=seed)


def _prepare_post_training(job: TrainJob, device: torch.device) -> Training:
    settings = job.post_training
    assert settings is not None
    ranker = Ranker(job.ranker, masked_words=settings.masked_word_weight > 0, questions=settings.questions)
    curriculum = post_training_curriculum(settings, ranker, TokenStore(job.train_tokens), job.selection, "train")
    return Training(ranker, curriculum, _held_out(job, settings, ranker, device))


def _held_out(
    job: TrainJob, settings: AbstractPostTraining.Config, ranker: Ranker, device: torch.device
) -> HeldOutWindows | None:
    """Windows of validation contexts; None where those are too short to hold any."""
    few = settings.model_copy(update={"max_windows": settings.held_out_windows})
    store = TokenStore(job.validation_tokens)
    try:
        curriculum = post_training_curriculum(few, ranker, store, job.selection, "validation")
    except SettingError:
        return None
    return HeldOutWindows(curriculum, job.training, device, settings.seed)


def add_posterior(
    checkpoint: Path,
    training: Training,
    job: TrainJob,
    device: torch.device,
    *,
    rank: int = 0,
    world_size: int = 1,
    gather: Gather = only_one,
    with_chains: bool = True,
) -> int:
    """Compute the posterior of a checkpoint's weights from the pairs that they were trained on, and keep it there.

    Args:
        with_chains: False leaves a Pólya-Gamma head's support set without chains, for others to run them.

    Returns:
        How many times a matrix needed more jitter than planned.
    """
    assert isinstance(training.curriculum, AnswerCurriculum)
    ranker = load_ranker(checkpoint).to(device)
    condition(
        ranker, training.curriculum, job.training, device,
        seed=job.seed, rank=rank, world_size=world_size, gather=gather, with_chains=with_chains,
    )  # fmt: skip
    head = ranker.posterior_head
    assert head is not None
    if rank == 0:
        save_posterior(checkpoint, head.posterior_state())
    return head.num_jitters


def _validation(job: TrainJob, ranker: Ranker, device: torch.device, curriculum: Curriculum) -> PlainValidation:
    store = TokenStore(job.validation_tokens)
    rows = job.selection.rows("validation", "all", store.column("label_order"))
    known = rows[store.column("label")[rows] >= 0]
    if not is_conditioned_on_support(ranker):
        return PlainValidation(store, known.tolist(), ranker.layout, job.training, device, link=job.ranker.link)
    assert isinstance(curriculum, AnswerCurriculum)

    def look_at_support(ranker: Ranker) -> None:
        condition(ranker, curriculum, job.training, device, seed=job.seed)

    return PlainValidation(store, known.tolist(), ranker.layout, job.training, device, prepare=look_at_support)


def pseudo_labelled(folder: Path, store: TokenStore) -> list[PairLabels]:
    """The pools of a round's pseudo-label shards.

    A pair with intents is learnt in both views, one without only in the plain view; a context's predicted intents
    are targets if a kept pair of it is with intents.
    """
    by_id = {str(name): row for row, name in enumerate(store.column("pool_id"))}
    pools: list[PairLabels] = []
    for path in sorted(folder.glob("pseudo-*.parquet")):
        table = pq.read_table(path)
        intents = _shard_intents(path)
        ids = np.asarray(table["pool_id"].to_pylist(), dtype=object)
        bounds = [*np.flatnonzero(np.append([True], ids[1:] != ids[:-1])), len(ids)] if len(ids) else []
        candidates, labels = table["candidate"].to_numpy(), table["label"].to_numpy()
        intent_view = np.asarray(table["view"].to_pylist(), dtype=object) == "intent"
        for start, end in pairwise(bounds):
            row = by_id[str(ids[start])]
            pools.append(
                PairLabels(
                    row=row,
                    candidates=candidates[start:end].astype(np.int64),
                    labels=labels[start:end].astype(np.int64),
                    intent_view=intent_view[start:end],
                    intents=intents.get(row, ()),
                    learn_intents=bool(intent_view[start:end].any()),
                )
            )
    return pools


def _shard_intents(path: Path) -> dict[int, Any]:
    intents = _intents_path(path)
    if not intents.is_file():
        return {}
    table = pq.read_table(intents)
    return dict(zip(table["row"].to_pylist(), table["intents"].to_pylist(), strict=True))


def _intents_path(shard: Path) -> Path:
    return shard.with_name(shard.name.replace("pseudo-", "intents-"))


def pseudo_label_digest(folder: Path) -> str:
    """Digest of what training takes from a round's pseudo-label shards.

    Rules that select the same pairs, with the same labels, views and intents, have the same digest: figures such as
    gains don't count, nor do intents that no kept pair is learnt with.
    """
    return content_digest([_learnt(path) for path in sorted(folder.glob("pseudo-*.parquet"))])


def _learnt(path: Path) -> dict[str, Any]:
    table = pq.read_table(path, columns=["pool_id", "candidate", "label", "view"])
    with_intents = set(table.filter(pc.field("view") == "intent")["pool_id"].to_pylist())
    intents: dict[str, Any] = {}
    shard = _intents_path(path)
    if shard.is_file():
        rows = pq.read_table(shard, columns=["pool_id", "intents"]).to_pylist()
        intents = {row["pool_id"]: row["intents"] for row in rows if row["pool_id"] in with_intents}
    return {"pairs": table.to_pydict(), "intents": intents}


def shard_rows(job: ScoreJob) -> list[Rows]:
    """The rows of each shard of a scoring job."""
    rows = job.selection.rows(job.split, job.part, TokenStore(job.tokens).column("label_order"))
    if job.sample is not None and job.sample < len(rows):
        rng = np.random.default_rng(child_seed(job.seed, "sample", job.split, job.part))
        rows = np.sort(rng.choice(rows, job.sample, replace=False))
    return [rows[start : start + job.pools_per_shard] for start in range(0, len(rows), job.pools_per_shard)]


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard's scores lie; the file's presence says that the shard is whole."""
    return folder / f"scores-{number:06d}.parquet"


def shard_intents_path(folder: Path, number: int) -> Path:
    """Where a shard's predicted intents lie, if there are any; they are there before its scores."""
    return folder / f"intents-{number:06d}.parquet"


def score_shard(job: ScoreJob, number: int, rows: Sequence[int], folder: Path, device: torch.device) -> None:
    """Score one shard and write it: intents first, then the scores whose presence completes it."""
    context = _context(job, device)
    scores, intents = score_pools(
        context,
        TokenStore(job.tokens),
        rows,
        with_intents=job.with_intents,
        seed=child_seed(job.seed, "shard", job.split, job.part, number),
    )
    if intents is not None:
        with whole_file(shard_intents_path(folder, number)) as temporary:
            pq.write_table(intents, temporary)
    with whole_file(shard_path(folder, number)) as temporary:
        pq.write_table(scores, temporary)
    _return_free_memory()


def _return_free_memory() -> None:
    """Every batch shape is a new size to malloc; glibc's heap would only grow, shard after shard."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


_loaded: dict[tuple[str, str], Ranker] = {}


def _context(job: ScoreJob, device: torch.device) -> ScoringContext:
    key = (str(job.checkpoint), str(device))
    if key not in _loaded:  # one model a process; workers live on from shard to shard
        _loaded.clear()
        _loaded[key] = load_ranker(job.checkpoint).to(device).eval()
    ranker = _loaded[key]
    return ScoringContext(
        ranker=ranker,
        layout=ranker.layout,
        estimator=job.estimator.build(),
        device=device,
        precision=job.precision,
        max_tokens=job.max_tokens_per_batch,
    )
