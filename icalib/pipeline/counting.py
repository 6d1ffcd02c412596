"""What a run will do, counted before it does it: an executor that counts instead of computing.

The regime itself runs, and the jobs are those of the run, so that there is no second account of what it does and the
stages have the run's digests, up to students whose pseudo labels aren't known yet.
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
from icalib.generation.language_model import GeneratorJob
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker
from icalib.pipeline.executor import Resources
from icalib.regimes.self_training import PseudoLabelJob
from icalib.scoring.job import ScoreJob
from icalib.training.answers import TrainJob, answer_curriculum
from icalib.training.examples import gold_labels
from icalib.training.job import TrainingJob
from icalib.training.loop import Curriculum
from icalib.training.post_training.curriculum import post_training_curriculum
from icalib.training.post_training.job import PostTrainJob
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import MCDropout

Lengths = Mapping[int, float]
"""How many inputs there are of each number of tokens; expected numbers where they come from a sample."""

_MOST_POOLS = 2000  # more than these are counted from a sample of so many
_SELECTED = 0.5  # fraction of the scored pools that a round is taken to pseudo-label; it may be none or all


@dataclass(frozen=True)
class Work:
    """What a stage will do.

    Args:
        name: of the stage, as the run calls it.
        kind: training, or scoring, or what isn't counted.
        digest: stages with the same one are computed once.
        trained: inputs of forward and backward passes.
        passed: inputs of forward passes, deterministic ones.
        dropped: inputs of forward passes with dropout on.
        pairs: that are scored; 0 where nothing is.
        updates: of the optimiser; 0 where nothing is trained.
        low, high: minimum and maximum work, as fractions of the expected.
    """

    name: str
    kind: Literal["training", "scoring", "uncounted"]
    digest: str
    trained: Lengths = field(default_factory=dict[int, float])
    passed: Lengths = field(default_factory=dict[int, float])
    dropped: Lengths = field(default_factory=dict[int, float])
    pairs: float = 0.0
    updates: float = 0.0
    low: float = 1.0
    high: float = 1.0

    @property
    def num_inputs(self) -> float:
        """Forward passes of single inputs, training's among them."""
        return sum(sum(lengths.values()) for lengths in (self.trained, self.passed, self.dropped))


def _times(lengths: Lengths, factor: float) -> dict[int, float]:
    return {length: number * factor for length, number in lengths.items()}


def _sum(parts: Iterable[Lengths]) -> dict[int, float]:
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)  # pyright: ignore[reportArgumentType]  # typed for integers; expected numbers are none
    return dict(total)


@final
class CountingExecutor:
    """Counts what jobs would take, and leaves stages without content.

    Args:
        resources: what the work will be divided by.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.works: list[Work] = []
        self.first_training: TrainJob | None = None
        """The first training on answers."""
        self._layouts: dict[str, Layout] = {}
        self._scored: dict[Path, tuple[Rows, float]] = {}

    def train(self, job: TrainingJob, folder: Path, stage: str, emit: Emit) -> None:
        """Count a training.

        Raises:
            SettingError: it is a kind of training that isn't counted.
        """
        if isinstance(job, TrainJob):
            self.first_training = self.first_training or job
            self.works.append(self._answers(job, stage))
        elif isinstance(job, PostTrainJob):
            self.works.append(self._windows(job, stage))
        elif isinstance(job, GeneratorJob):
            self.works.append(Work(stage, "uncounted", job.digest()))
        else:
            raise SettingError(
                "word vectors and the intent classifier of iart are not counted. Plan another method, or use a run "
                "with --limit as the measure."
            )
        write_json(folder / "curve.json", [])
        write_json(folder / "result.json", {"figure": 0.0})  # no model is better than another

    def map(self, job: ShardedJob, folder: Path, stage: str, emit: Emit) -> None:
        """Count a scoring; how long a generator takes isn't measured."""
        if isinstance(job, ScoreJob):
            self.works.append(self._scoring(job, folder, stage))
        else:
            self.works.append(Work(stage, "uncounted", job.digest()))

    def compute(self, job: LocalJob, folder: Path, stage: str, emit: Emit) -> None:
        """Pretend that a round finds pseudo labels; it costs next to nothing, as do all jobs of this kind."""
        if isinstance(job, PseudoLabelJob):
            found = {"pool_id": [job.digest()], "candidate": [0], "label": [1], "view": ["plain"]}
            pq.write_table(pa.table(found), folder / "pseudo-000000.parquet")
            self._scored[folder] = self._scored[job.scores.path]

    def side_by_side(self, number: int) -> tuple[CountingExecutor, int]:
        """One training after the other: side by side they share what one has alone."""
        return self, 1

    def _windows(self, job: PostTrainJob, stage: str) -> Work:
        """Windows of dialogues, each epoch as many."""
        ranker = Ranker(job.ranker, pretrained=False)
        store = TokenStore(job.train_tokens.path)
        curriculum = post_training_curriculum(job.task, ranker, store, job.selection, "train")
        trained, updates = _epochs(curriculum, job.task.training)
        return Work(stage, "training", job.digest(), trained=trained, updates=updates)

    def _answers(self, job: TrainJob, stage: str) -> Work:
        """Labelled pools, and as many pseudo-labelled ones as a round is expected to select; validation every epoch."""
        training, store = job.training, TokenStore(job.train_tokens.path)
        sampled, factor = _sampled(_rows(job.selection, store, "train", "labelled"))
        trained, updates = self._curriculum(job, store, sampled, factor)
        low = high = 1.0
        if job.pseudo_labels is not None:
            extra, extra_updates = self._curriculum(job, store, *self._scored[job.pseudo_labels.path])
            own, most = sum(trained.values()), sum(extra.values())
            low, high = (part / (own + _SELECTED * most) for part in (own, own + most))
            trained = _sum([trained, _times(extra, _SELECTED)])
            updates += _SELECTED * extra_updates
        min_epochs = min(training.epochs, 1 + training.patience) / training.epochs
        held_out = TokenStore(job.validation_tokens.path)
        checked, weight = _sampled(_rows(job.selection, held_out, "validation", "all"))
        validation = _view_lengths(self._layout(job.ranker), held_out.pools(checked), with_intents=False)
        return Work(
            stage,
            "training",
            job.digest(),
            trained=trained,
            passed=_times(validation, weight * training.epochs),
            updates=updates,
            low=low * min_epochs,
            high=high,
        )

    def _curriculum(
        self, job: TrainJob, store: TokenStore, rows: Rows, factor: float
    ) -> tuple[dict[int, float], float]:
        """Inputs and updates of training on some pools, of which each stands for `factor`."""
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
        """Every pair in each view, and with intents a question for each utterance."""
        assert self.first_training is not None
        layout, store = self._layout(self.first_training.ranker), TokenStore(job.tokens.path)
        rows = _rows(job.selection, store, job.split, job.part)
        sampled, factor = _sampled(rows, min(job.sample or len(rows), len(rows)))
        pools = list(store.pools(sampled))
        lengths = _times(_view_lengths(layout, pools, with_intents=job.with_intents), factor)
        asked = _times(_question_lengths(layout, pools) if job.with_intents else {}, factor)
        draws = isinstance(job.estimator, MCDropout.Config)
        passes = job.estimator.num_passes if isinstance(job.estimator, MCDropout.Config) else 1
        many = _times(lengths, passes)
        passed, dropped = (asked, many) if draws else (_sum([asked, many]), {})
        pairs = factor * sum(len(pool.candidates) for pool in pools)
        self._scored[folder] = sampled, factor
        return Work(stage, "scoring", job.digest(), passed=passed, dropped=dropped, pairs=pairs)

    def _layout(self, ranker: RankerConfig) -> Layout:
        """How inputs are written; the weights don't matter."""
        key = content_digest(ranker.model_dump(mode="json"))
        if key not in self._layouts:
            self._layouts[key] = Ranker(ranker, pretrained=False).layout
        return self._layouts[key]


def _rows(selection: Selection, store: TokenStore, split: Split, part: Part) -> Rows:
    return selection.rows(split, part, store.column("label_order"))


def _view_lengths(layout: Layout, pools: Iterable[TokenPool], *, with_intents: bool) -> dict[int, float]:
    """Inputs of the plain view; with intents, those of the view with the pools' own intents too."""
    counts = Counter[int]()
    for pool in pools:
        counts.update(layout.input_lengths(pool.context, None, pool.candidates))
        if with_intents:
            counts.update(layout.input_lengths(pool.context, pool.intents, pool.candidates))
    return dict(counts)


def _question_lengths(layout: Layout, pools: Iterable[TokenPool]) -> dict[int, float]:
    return dict(
        Counter(
            layout.question_length(pool.context, pool.intents, utterance)
            for pool in pools
            for utterance in range(len(pool.context))
        )
    )


def _epochs(curriculum: Curriculum, training: TrainingSettings) -> tuple[dict[int, float], float]:
    """Inputs and updates of all epochs; the first stands for the others, which draw other negatives."""
    batches = curriculum.batches(0)
    lengths: Counter[int] = Counter(int(example.length) for batch in batches for example in batch)
    return _times(lengths, training.epochs), float(len(batches) * training.epochs)


def _sampled(rows: Rows, wanted: int | None = None) -> tuple[Rows, float]:
    """Some rows, spread evenly, and for how many each stands so that there are `wanted` (None: all rows)."""
    wanted = len(rows) if wanted is None else wanted
    size = min(len(rows), wanted, _MOST_POOLS)
    if size == 0:
        return rows[:0], 1.0
    return rows[np.linspace(0, len(rows) - 1, size).astype(np.int64)], wanted / size


def pairs_scored(works: Sequence[Work], pairs: float) -> Work:
    """Scoring so many pairs as the last stage scores its own."""
    last = works[-1]
    factor = pairs / last.pairs
    return replace(
        last,
        name=f"scoring {pairs:g} pairs",
        pairs=pairs,
        passed=_times(last.passed, factor),
        dropped=_times(last.dropped, factor),
    )
