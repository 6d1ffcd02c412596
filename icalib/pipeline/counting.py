"""An executor that counts the work of a run instead of computing it.

The run's own regime creates the run's own jobs, so the counts follow the code that runs, and the stages have the same
digests as in the run. The exception are students whose pseudo labels are not yet known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import SettingError
from icalib.core.events import Emit
from icalib.core.files import content_digest, write_json
from icalib.core.job import LocalJob, ShardedJob
from icalib.data.encoding import Layout, TokenPool, TokenStore
from icalib.data.schema import Split
from icalib.data.selection import Part, Rows, Selection
from icalib.encoders.transformer import AbstractEncoder, BackboneEncoder
from icalib.generation.language_model import GeneratorJob
from icalib.models.config import RankerConfig
from icalib.models.dual_encoder import DualEncoder
from icalib.models.ranker import Ranker
from icalib.pipeline.resources import Resources
from icalib.pipeline.tokens import TokenizeLogsJob
from icalib.regimes.self_training import PseudoLabelJob
from icalib.scoring.job import ScoreJob
from icalib.training.answers import TrainJob, answer_curriculum
from icalib.training.bi_encoder import BiEncoderJob
from icalib.training.examples import gold_labels
from icalib.training.job import TrainingJob
from icalib.training.loop import Curriculum
from icalib.training.post_training.curriculum import post_training_curriculum
from icalib.training.post_training.job import ContrastiveJob, PostTrainJob
from icalib.training.predictive_validation import MAX_POOLS
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, MCDropout

Lengths = Mapping[int, float]
"""Number of inputs by their number of tokens; expected values if estimated from a sample."""

_MAX_POOLS = 2000  # larger pool sets are estimated from a sample of this size
_SELECTED = 0.5  # assumed fraction of scored pools that a round pseudo-labels; it can be between none and all


@dataclass(frozen=True)
class Work:
    """Amount of work of a stage.

    Args:
        name: name of the stage in the run.
        kind: training, scoring, or a kind that isn't counted.
        digest: stages with the same digest are computed once.
        trained: inputs of forward and backward passes.
        passed: inputs of forward passes without dropout.
        questions: those of `passed` from which intents are predicted, once whatever the number of passes.
        dropped: inputs of forward passes with dropout.
        pairs: number of scored pairs.
        passes: number of passes of the estimator.
        updates: number of optimiser updates.
        low, high: minimum and maximum work, as fractions of the expected work.
    """

    name: str
    kind: Literal["training", "scoring", "uncounted"]
    digest: str
    trained: Lengths = field(default_factory=dict[int, float])
    passed: Lengths = field(default_factory=dict[int, float])
    questions: Lengths = field(default_factory=dict[int, float])
    dropped: Lengths = field(default_factory=dict[int, float])
    pairs: float = 0.0
    passes: int = 1
    updates: float = 0.0
    low: float = 1.0
    high: float = 1.0

    @property
    def num_inputs(self) -> float:
        """Number of inputs of forward passes, including those of training."""
        return sum(sum(lengths.values()) for lengths in (self.trained, self.passed, self.dropped))


def _times(lengths: Lengths, factor: float) -> dict[int, float]:
    return {length: number * factor for length, number in lengths.items()}


def _sum(parts: Iterable[Lengths]) -> dict[int, float]:
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)  # pyright: ignore[reportArgumentType]  # typed for integers; expected values are floats
    return dict(total)


@final
class CountingExecutor:
    """Counts the work of jobs, and leaves stages without content.

    Args:
        resources: resources of the run.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.works: list[Work] = []
        self.first_training: TrainJob | None = None
        """The first job that trains on answers."""
        self.answering: list[Work] = []
        """The work of scoring one split with all members of the finished run."""
        self._rankers: dict[str, tuple[Layout, bool]] = {}
        self._scored: dict[Path, tuple[Rows, float]] = {}

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Count the work of a training job.

        Raises:
            SettingError: this kind of training can't be counted.
        """
        if isinstance(job, TrainJob):
            self.first_training = self.first_training or job
            self.works.append(self._answers(job, stage))
        elif isinstance(job, PostTrainJob):
            self.works.append(self._windows(job, stage))
        elif isinstance(job, ContrastiveJob):
            encoder = DualEncoder(job.backbone, job.budget, pretrained=False)
            trained, updates = _epochs(job.curriculum(encoder.layout), job.task.training)
            self.works.append(Work(stage, "training", job.digest(), trained=trained, updates=updates))
        elif isinstance(job, BiEncoderJob):
            self.works.append(self._bi_encoder(job, stage))
        elif isinstance(job, GeneratorJob):
            self.works.append(Work(stage, "uncounted", job.digest()))
        else:
            raise SettingError(
                "the training of iart's word vectors and intent classifier can't be planned. Plan another method, or "
                "measure a run with --limit."
            )
        write_json(folder / "curve.json", [])
        write_json(folder / "result.json", {"best_epoch": 1})

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Count the work of a scoring job; generation is not counted."""
        if isinstance(job, ScoreJob):
            self.works.append(self._scoring(job, folder, stage))
        else:
            self.works.append(Work(stage, "uncounted", job.digest()))

    def compute(self, job: LocalJob, folder: Path, stage: str, emit: Emit) -> None:
        """Tokenise logs, and write a placeholder of pseudo labels; the cost of small jobs is neglected."""
        if isinstance(job, TokenizeLogsJob):
            job.compute(folder, stage, emit)
        if isinstance(job, PseudoLabelJob):
            found = {"pool_id": [job.digest()], "candidate": [0], "label": [1], "view": ["plain"]}
            pq.write_table(pa.table(found), folder / "pseudo-000000.parquet")
            self._scored[folder] = self._scored[job.scores.path]

    def side_by_side(self, number: int) -> tuple[CountingExecutor, int]:
        """Count trainings sequentially: in parallel they divide the same resources."""
        return self, 1

    def _windows(self, job: PostTrainJob, stage: str) -> Work:
        """Count the work of post-training; every epoch has the same number of windows."""
        ranker = Ranker(job.ranker, pretrained=False)
        store = TokenStore(job.train_tokens.path)
        curriculum = post_training_curriculum(job.task, ranker, store, job.selection, "train")
        trained, updates = _epochs(curriculum, job.task.training)
        return Work(stage, "training", job.digest(), trained=trained, updates=updates)

    def _bi_encoder(self, job: BiEncoderJob, stage: str) -> Work:
        """Count the texts of labelled and expected pseudo-labelled pools, and of validation in every epoch."""
        training, store = job.settings.training, TokenStore(job.train_tokens.path)
        layout = DualEncoder(job.backbone, job.budget, pretrained=False).layout
        sampled, factor = _sampled(_rows(job.selection, store, "train", "labelled"))
        labelled = _times(_text_lengths(layout, store.pools(sampled)), factor)
        updates, extra = factor * len(sampled) / training.batch_size, dict[int, float]()
        if job.pseudo_labels is not None:
            pseudo, weight = self._scored[job.pseudo_labels.path]
            extra = _times(_text_lengths(layout, store.pools(pseudo)), weight * _SELECTED)
            updates += _SELECTED * weight * len(pseudo) / training.batch_size
        trained = _times(_sum([labelled, extra]), training.epochs)
        low, high = _range(labelled, extra)
        held_out = TokenStore(job.validation_tokens.path)
        checked, weight = _sampled(_rows(job.selection, held_out, "validation", "all"))
        passed = _times(_text_lengths(layout, held_out.pools(checked)), weight * (training.epochs + 1))
        return Work(
            stage,
            "training",
            job.digest(),
            trained=trained,
            passed=passed,
            updates=updates * training.epochs,
            low=low * _min_epochs(training),
            high=high,
        )

    def _answers(self, job: TrainJob, stage: str) -> Work:
        """Count the work of training on labelled and expected pseudo-labelled pools, with validation in every epoch.

        The start's validation counts as that of an epoch; the intent head's isn't counted.
        """
        training, store = job.training, TokenStore(job.train_tokens.path)
        sampled, factor = _sampled(_rows(job.selection, store, "train", "labelled"))
        trained, updates = self._curriculum(job, store, sampled, factor)
        low = high = 1.0
        if job.pseudo_labels is not None:
            extra, extra_updates = self._curriculum(job, store, *self._scored[job.pseudo_labels.path])
            extra = _times(extra, _SELECTED)
            low, high = _range(trained, extra)
            trained = _sum([trained, extra])
            updates += _SELECTED * extra_updates
        passed, dropped = self._validation(job)
        return Work(
            stage,
            "training",
            job.digest(),
            trained=trained,
            passed=passed,
            dropped=dropped,
            updates=updates,
            low=low * _min_epochs(training),
            high=high,
        )

    def _validation(self, job: TrainJob) -> tuple[Lengths, Lengths]:
        """Count the passes of all validations without and with dropout."""
        number = job.training.epochs + (job.training.keep_start and job.may_keep_start)
        store, layout = TokenStore(job.validation_tokens.path), self._layout(job.ranker)
        rows = _rows(job.selection, store, "validation", "all")
        predictive = job.rule is not None or job.estimator.needs == "dropout"
        sampled, factor = _sampled(rows, min(len(rows), MAX_POOLS) if predictive else None)
        pools, factor = list(store.pools(sampled)), factor * number
        if self._ranks_by_bi_encoder(job):
            return _times(_text_lengths(layout, pools), factor), {}
        lengths = _times(_view_lengths(layout, pools, with_intents=job.rule is not None), factor)
        questions = _times(_question_lengths(layout, pools) if job.rule is not None else {}, factor)
        num_passed, num_dropped = _num_passes(job.estimator, job.ranker.encoder)
        return _sum([questions, _times(lengths, num_passed)]), _times(lengths, num_dropped)

    def _curriculum(
        self, job: TrainJob, store: TokenStore, rows: Rows, factor: float
    ) -> tuple[dict[int, float], float]:
        """Count inputs and updates of training on some pools, each weighted by `factor`."""
        pools = [gold_labels(pool, with_intents=job.views_with_intents) for pool in store.pools(rows)]
        curriculum = answer_curriculum(
            pools,
            store,
            self._layout(job.ranker),
            job.loss.build(),
            job.training,
            num_intents=len(job.ranker.intents),
            seed=job.seed,
        )
        trained, updates = _epochs(curriculum, job.training)
        return _times(trained, factor), updates * factor

    def _scoring(self, job: ScoreJob, folder: Path, stage: str) -> Work:
        """Count every pair in each view, and with intents one input per utterance to predict them."""
        assert self.first_training is not None
        layout, store = self._layout(self.first_training.ranker), TokenStore(job.tokens.path)
        rows = _rows(job.selection, store, job.split, job.part)
        sampled, factor = _sampled(rows, min(job.sample or len(rows), len(rows)))
        pools = list(store.pools(sampled))
        by_bi_encoder = self._ranks_by_bi_encoder(self.first_training)
        counted = _text_lengths(layout, pools) if by_bi_encoder else None
        lengths = _times(counted or _view_lengths(layout, pools, with_intents=job.with_intents), factor)
        questions = _times(_question_lengths(layout, pools) if job.with_intents else {}, factor)
        num_passed, num_dropped = _num_passes(job.estimator, self.first_training.ranker.encoder)
        passed, dropped = _sum([questions, _times(lengths, num_passed)]), _times(lengths, num_dropped)
        passes = job.estimator.num_passes if isinstance(job.estimator, MCDropout.Config) else 1
        pairs = factor * sum(len(pool.candidates) for pool in pools)
        self._scored[folder] = sampled, factor
        return Work(
            stage,
            "scoring",
            job.digest(),
            passed=passed,
            questions=questions,
            dropped=dropped,
            pairs=pairs,
            passes=passes,
        )

    def _ranks_by_bi_encoder(self, job: TrainJob) -> bool:
        """Return whether only the bi-encoder reads texts after a training without epochs."""
        return job.training.epochs == 0 and self._empty(job.ranker)[1]

    def _layout(self, ranker: RankerConfig) -> Layout:
        """Return the layout of a ranker's inputs, which doesn't depend on its weights."""
        return self._empty(ranker)[0]

    def _empty(self, ranker: RankerConfig) -> tuple[Layout, bool]:
        """Return a ranker's layout, and whether it ranks by its bi-encoder alone until it is trained."""
        key = content_digest(ranker.model_dump(mode="json"))
        if key not in self._rankers:
            made = Ranker(ranker, pretrained=False)
            self._rankers[key] = made.layout, made.is_at_start
        return self._rankers[key]


def _num_passes(estimator: AbstractEstimator.Config, encoder: AbstractEncoder.Config) -> tuple[float, float]:
    """Return how many passes over a pair an estimator's cost is worth: without and with dropout."""
    if not isinstance(estimator, MCDropout.Config):
        return 1.0, 0.0
    if estimator.dropout_layers is None:
        return 0.0, float(estimator.num_passes)
    assert isinstance(encoder, BackboneEncoder.Config)  # the only ones whose layers can have dropout or not
    fraction = estimator.dropout_layers / encoder.load_backbone_config().num_hidden_layers
    return 1.0 - fraction, estimator.num_passes * fraction


def _rows(selection: Selection, store: TokenStore, split: Split, part: Part) -> Rows:
    return selection.rows(split, part, store.column("label_order"))


def _view_lengths(layout: Layout, pools: Iterable[TokenPool], *, with_intents: bool) -> dict[int, float]:
    """Count the inputs of the plain view, and with intents those of the intent view with gold intents."""
    counts = Counter[int]()
    for pool in pools:
        counts.update(layout.input_lengths(pool.context, None, pool.candidates))
        if with_intents:
            counts.update(layout.input_lengths(pool.context, pool.intents, pool.candidates))
    return dict(counts)


def _text_lengths(layout: Layout, pools: Iterable[TokenPool]) -> dict[int, float]:
    """Count the texts that a bi-encoder reads: contexts and candidates."""
    counts = Counter[int]()
    for pool in pools:
        counts.update([len(layout.context_ids(pool.context, None)) + 2, *(len(ids) + 2 for ids in pool.candidates)])
    return dict(counts)


def _range(labelled: Lengths, pseudo: Lengths) -> tuple[float, float]:
    """Return the work if no scored pool or every one is pseudo-labelled, as fractions of what is expected."""
    known, expected = sum(labelled.values()), sum(pseudo.values())
    if not known + expected:  # nothing but the bi-encoder learns
        return 1.0, 1.0
    return known / (known + expected), (known + expected / _SELECTED) / (known + expected)


def _min_epochs(training: TrainingSettings) -> float:
    return min(training.epochs, 1 + training.patience) / max(1, training.epochs)


def _question_lengths(layout: Layout, pools: Iterable[TokenPool]) -> dict[int, float]:
    return dict(
        Counter(
            layout.question_length(pool.context, pool.intents, utterance)
            for pool in pools
            for utterance in range(len(pool.context))
        )
    )


def _epochs(curriculum: Curriculum, training: TrainingSettings) -> tuple[dict[int, float], float]:
    """Count inputs and updates of all epochs from the first; other epochs only draw other negatives."""
    batches = curriculum.batches(0)
    lengths: Counter[int] = Counter(int(example.length) for batch in batches for example in batch)
    return _times(lengths, training.epochs), float(len(batches) * training.epochs)


def _sampled(rows: Rows, wanted: int | None = None) -> tuple[Rows, float]:
    """Return evenly spaced rows and the weight of each, such that the weights sum to `wanted` (None: all rows)."""
    wanted = len(rows) if wanted is None else wanted
    size = min(len(rows), wanted, _MAX_POOLS)
    if size == 0:
        return rows[:0], 1.0
    return rows[np.linspace(0, len(rows) - 1, size).astype(np.int64)], wanted / size


def pairs_scored(works: Sequence[Work], pairs: float) -> Work:
    """Return the work of scoring a number of pairs with all members of a run.

    Args:
        works: each member's work of scoring the same pairs.
        pairs: number of pairs.
    """
    factor = pairs / works[-1].pairs
    return replace(
        works[-1],
        name=f"scoring {pairs:g} pairs",
        pairs=pairs,
        passed=_times(_sum(work.passed for work in works), factor),
        questions=_times(_sum(work.questions for work in works), factor),
        dropped=_times(_sum(work.dropped for work in works), factor),
    )


def with_passes(work: Work, passes: int) -> Work:
    """Return the work of scoring the same pairs with one pass without dropout, or with several passes with dropout."""
    if work.dropped:
        once, others = _times(work.dropped, 1 / work.passes), work.passed
    else:  # the run itself needs one pass
        once, others = _sum([work.passed, _times(work.questions, -1)]), work.questions
    if passes == 1:
        return replace(work, passed=_sum([others, once]), dropped={}, passes=1)
    return replace(work, passed=others, dropped=_times(once, passes), passes=passes)
