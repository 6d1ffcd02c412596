"""Training runs to compare: through Ray and DeepSpeed, the same loop bare, and sentence-transformers.

Each gives training pairs a second, at the same batch size, in one epoch over the same pairs, in a fresh process:
on a GPU if there is one, but for the bare loop, else on all cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from common import BACKBONE, in_fresh_process, made_here, num_cores, silently

from icalib.core.files import read_json
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_path, load_config
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.checkpoint import RankerConfig, save_ranker
from icalib.models.precision import Precision
from icalib.training.cross_encoder import CrossEncoderJob
from icalib.training.local_engine import LocalEngine
from icalib.training.settings import TrainingSettings

if TYPE_CHECKING:
    from icalib.data.encoding import TokenStore

SETTINGS = TrainingSettings(epochs=1)


def training_job(tokens: Path, precision: Precision, ranker: RankerConfig | None = None) -> CrossEncoderJob:
    """All training pools of the token files; validation with one pool, so that the loop is all that counts."""
    return CrossEncoderJob(
        ranker=ranker or RankerConfig(),
        loss=BinaryCrossEntropy.Config(),
        training=SETTINGS.model_copy(update={"precision": precision}),
        selection=Selection(labelled_fraction=1.0, limit={"validation": 1}),
        train_tokens=made_here(tokens / "train.arrow"),
        validation_tokens=made_here(tokens / "validation.arrow"),
        seed=1,
    )


def ray_and_deepspeed(job: CrossEncoderJob, threads: int | None = None) -> float:
    """The loop as a worker of Ray Train runs it, by default on all cores; Ray is started for it and stopped after."""
    return in_fresh_process(_ray_and_deepspeed, job.model_dump_json(), threads)


def bare_loop(job: CrossEncoderJob, threads: int | None = None) -> float:
    """The same loop, model, data, validation and saving of the best weights, with plain torch."""
    return in_fresh_process(_bare_loop, job.model_dump_json(), threads)


def sentence_transformers(
    pairs: Sequence[tuple[str, str]], labels: Sequence[float], *, bf16: bool, backbone: str = BACKBONE
) -> float:
    """CrossEncoderTrainer with its own settings but for batch size, learning rate and precision."""
    return in_fresh_process(silently, _sentence_transformers, pairs, labels, bf16, backbone)


def mean_length(store: TokenStore) -> float:
    """Mean tokens of a pair, special tokens left out."""
    pools = list(store.pools(range(len(store))))
    lengths = [sum(map(len, pool.context)) + len(candidate) for pool in pools for candidate in pool.candidates]
    return sum(lengths) / len(lengths)


def _ray_and_deepspeed(job: str, threads: int | None) -> float:
    from icalib.core.events import ignore
    from icalib.distributed import session
    from icalib.distributed.training import train

    session.start(num_cpus=threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(CrossEncoderJob.model_validate_json(job), Path(folder), session.available(), "training", ignore)
            result = read_json(Path(folder) / "result.json")
    finally:
        session.stop()
    return result["examples"] / result["seconds"]


def _bare_loop(fields: str, threads: int | None) -> float:
    from icalib.training.loop import train

    torch.set_num_threads(threads or num_cores())
    job, device = CrossEncoderJob.model_validate_json(fields), torch.device("cpu")
    training = job.prepare(device)
    with tempfile.TemporaryDirectory() as folder:
        state = train(
            training.model,
            LocalEngine(training.model, job.training),
            training.curriculum,
            job.training,
            _Saver(Path(folder), job.ranker),
            seed=job.seed,
            validation=training.validation,
        )
    return state.examples / state.seconds


class _Saver:
    """Saves the best weights, as the worker of a real run does."""

    def __init__(self, folder: Path, ranker: RankerConfig) -> None:
        self._folder, self._ranker = folder, ranker

    def progress(self, done: float, total: float, note: str) -> None:
        """Nobody watches."""

    def best(self, weights: dict[str, Any]) -> None:
        """Save these weights."""
        save_ranker(self._folder / "checkpoint", self._ranker, weights)

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        """Nobody watches."""


def _sentence_transformers(
    pairs: Sequence[tuple[str, str]], labels: Sequence[float], bf16: bool, backbone: str
) -> float:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    torch.set_num_threads(num_cores())
    path = backbone_path(backbone)
    model = CrossEncoder(path, num_labels=1, max_length=min(512, load_config(path).max_position_embeddings))
    contexts, candidates = zip(*pairs, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = CrossEncoderTrainer(
            model=model,
            args=CrossEncoderTrainingArguments(
                output_dir=folder,
                num_train_epochs=SETTINGS.epochs,
                per_device_train_batch_size=SETTINGS.batch_size,
                learning_rate=SETTINGS.learning_rate,
                bf16=bf16,
                use_cpu=not torch.cuda.is_available(),
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"context": contexts, "candidate": candidates, "label": labels}),
            loss=BinaryCrossEntropyLoss(model),
        )
        started = time.perf_counter()
        trainer.train()
        return len(pairs) / (time.perf_counter() - started)
