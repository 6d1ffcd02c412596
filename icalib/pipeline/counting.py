"""What a method will do, counted before it does it: a workbench that writes down what a regime asks for.

The regime itself runs, against this workbench, so that there is no second account of what it does. Nothing is trained
or scored; models and scores are names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icalib.core.errors import SettingError
from icalib.core.files import content_digest
from icalib.core.stage_cache import Stage
from icalib.data.encoding import TokenPool, TokenStore
from icalib.data.generated import Wanted
from icalib.data.schema import Split
from icalib.data.selection import Part, Rows, Selection
from icalib.generation.generator import AbstractGenerator
from icalib.losses.binary import AbstractLoss
from icalib.methods.composition import Method
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker
from icalib.regimes.regime import Parts, score_members
from icalib.scoring.job import Shards
from icalib.training.examples import PairLabels, gold_labels
from icalib.training.job import Augmentation, answer_curriculum
from icalib.training.loop import Curriculum
from icalib.training.post_training.curriculum import post_training_curriculum
from icalib.training.post_training.task import AbstractPostTraining
from icalib.training.settings import TrainingSettings
from icalib.uncertainty.estimator import AbstractEstimator, MCDropout

Lengths = Mapping[int, float]
"""How many inputs there are of each number of tokens; expected numbers where they come from a sample."""

_MOST_POOLS = 2000  # more than these are counted from a sample of so many
_SELECTED = 0.5  # share of the scored pools that a round is taken to pseudo-label; it may be none or all


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
        low, high: least and most work, as shares of the expected.
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


class CountingWorkbench:
    """Answers a regime's questions by stages without content, and keeps what each would have cost.

    Args:
        stores: tokens of each split.
        selection: the run's pools.
        ranker: built from the method's settings; its weights don't matter.
        seed: the run's.
        scratch: an empty folder, where stages that a regime looks into lie.
    """

    def __init__(
        self, stores: Mapping[Split, TokenStore], selection: Selection, ranker: Ranker, seed: int, scratch: Path
    ) -> None:
        self._stores, self._selection, self._ranker = stores, selection, ranker
        self._layout, self._seed, self._scratch = ranker.layout, seed, scratch
        self._pseudo_pools: dict[str, tuple[Rows, float]] = {}
        self.works: list[Work] = []
        self.first_training: TrainingSettings = TrainingSettings()
        """How the first ranker is trained on answers."""

    def post_train(self, ranker: RankerConfig, settings: AbstractPostTraining.Config) -> Stage:
        """Windows of dialogues, each epoch as many."""
        selection = self._selection.for_training(labelled_fraction=1.0)
        store = self._stores["train"]
        curriculum = post_training_curriculum(settings, self._ranker, store, selection, "train")
        name = "post-training"
        digest = content_digest([name, settings.model_dump(mode="json"), selection.model_dump(mode="json")])
        trained, updates = _epochs(curriculum, settings.training)
        return self._add(Work(name, "training", digest, trained=trained, updates=updates))

    def train(
        self,
        name: str,
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        with_intents: bool,
        start: Stage | None,
        pseudo_labels: Stage | None = None,
        augmentation: Augmentation | None = None,
        number: int = 0,
    ) -> Stage:
        """Labelled pools, and as many pseudo-labelled ones as a round is expected to select; validation every epoch."""
        if number == 0:
            self.first_training = training
        store, rows = self._stores["train"], self._rows("train", "labelled")
        sampled, factor = _sampled(rows)
        labelled = [gold_labels(pool, with_intents=with_intents) for pool in store.pools(sampled)]
        trained, updates = self._curriculum(labelled, loss, training, factor)
        low = high = 1.0
        if pseudo_labels is not None:
            pools, more = self._pseudo_pools[pseudo_labels.digest]
            found = [gold_labels(pool, with_intents=with_intents) for pool in store.pools(pools)]
            extra, extra_updates = self._curriculum(found, loss, training, more)
            own, most = sum(trained.values()), sum(extra.values())
            low, high = (share / (own + _SELECTED * most) for share in (own, own + most))
            trained = _sum([trained, _times(extra, _SELECTED)])
            updates += _SELECTED * extra_updates
        least_epochs = min(training.epochs, 1 + training.patience) / training.epochs
        checked, share = _sampled(self._rows("validation", "all"))
        validation = self._view_lengths(self._stores["validation"].pools(checked), with_intents=False)
        digest = content_digest(
            [
                [ranker.model_dump(mode="json"), loss.model_dump(mode="json"), training.model_dump(mode="json")],
                [with_intents, number, self._seed, self._selection.model_dump(mode="json")],
                [stage and stage.digest for stage in (start, pseudo_labels)],
                [augmentation.texts.digest, augmentation.contrast.model_dump(mode="json")] if augmentation else None,
                name.rpartition("/")[0] if name.startswith("member-") else "",
            ]
        )
        return self._add(
            Work(
                name,
                "training",
                digest,
                trained=trained,
                passed=_times(validation, share * training.epochs),
                updates=updates,
                low=low * least_epochs,
                high=high,
            )
        )

    def train_members(
        self,
        names: Sequence[str],
        *,
        ranker: RankerConfig,
        loss: AbstractLoss.Config,
        training: TrainingSettings,
        start: Stage | None,
    ) -> list[Stage]:
        """One training a member; side by side they share what one has alone."""
        return [
            self.train(name, ranker=ranker, loss=loss, training=training, with_intents=False, start=start)
            for name in names
        ]

    def generate(self, wanted: Wanted, num_answers: int, generator: AbstractGenerator.Config) -> Stage:
        """Named, but not counted: how long a generator takes isn't measured."""
        facts = [wanted, num_answers, generator.model_dump(mode="json")]
        return self._add(Work(wanted.replace("_", "-"), "uncounted", content_digest(facts)))

    def score(
        self,
        name: str,
        model: Stage,
        *,
        split: Split,
        part: Part,
        estimator: AbstractEstimator.Config,
        with_intents: bool,
        number: int = 0,
        sample: int | None = None,
    ) -> Shards:
        """Every pair in each view, and with intents a question for each utterance."""
        rows = self._rows(split, part)
        wanted = min(sample or len(rows), len(rows))
        sampled, factor = _sampled(rows, wanted)
        pools = list(self._stores[split].pools(sampled))
        lengths = _times(self._view_lengths(pools, with_intents=with_intents), factor)
        asked = _times(self._question_lengths(pools) if with_intents else {}, factor)
        draws = isinstance(estimator, MCDropout.Config)
        passes = estimator.num_passes if isinstance(estimator, MCDropout.Config) else 1
        many = _times(lengths, passes)
        pairs = factor * sum(len(pool.candidates) for pool in pools)
        digest = content_digest(
            [model.digest, split, part, sample, number, estimator.model_dump(mode="json"), with_intents, self._seed]
        )
        passed, dropped = (asked, many) if draws else (_sum([asked, many]), {})
        stage = self._add(Work(name, "scoring", digest, passed=passed, dropped=dropped, pairs=pairs))
        self._pseudo_pools[stage.digest] = sampled, factor
        return Shards(stage)

    def stage(self, name: str, inputs: dict[str, Any], build: Callable[[Path], None]) -> Stage:
        """Pseudo labels, of which a round is taken to find some; it costs next to nothing."""
        digest = content_digest([name, inputs])
        folder = self._scratch / digest
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"pool_id": ["some"]}), folder / "pseudo-000000.parquet")
        if inputs.get("scores") in self._pseudo_pools:
            self._pseudo_pools[digest] = self._pseudo_pools[inputs["scores"]]
        return Stage(name, digest, folder, False, 0.0)

    def figure(self, model: Stage) -> float:
        """No model is better than another."""
        return 0.0

    def _add(self, work: Work) -> Stage:
        self.works.append(work)
        return Stage(work.name, work.digest, self._scratch, False, 0.0)

    def _rows(self, split: Split, part: Part) -> Rows:
        return self._selection.rows(split, part, self._stores[split].column("label_order"))

    def _curriculum(
        self, pools: Sequence[PairLabels], loss: AbstractLoss.Config, training: TrainingSettings, factor: float
    ) -> tuple[dict[int, float], float]:
        intents = len(self._ranker.config.intents)
        curriculum = answer_curriculum(
            pools, self._stores["train"], self._layout, loss.build(), training, num_intents=intents, seed=self._seed
        )
        trained, updates = _epochs(curriculum, training)
        return _times(trained, factor), updates * factor

    def _view_lengths(self, pools: Iterable[TokenPool], *, with_intents: bool) -> dict[int, float]:
        """Inputs of the plain view; with intents, those of the view with the pools' own intents too."""
        layout, counts = self._layout, Counter[int]()
        for pool in pools:
            counts.update(layout.input_lengths(pool.context, None, pool.candidates))
            if with_intents:
                counts.update(layout.input_lengths(pool.context, pool.intents, pool.candidates))
        return dict(counts)

    def _question_lengths(self, pools: Iterable[TokenPool]) -> dict[int, float]:
        return dict(
            Counter(
                self._layout.question_length(pool.context, pool.intents, utterance)
                for pool in pools
                for utterance in range(len(pool.context))
            )
        )


def planned(method: Method, parts: Parts, bench: CountingWorkbench, evaluated: Sequence[Split]) -> tuple[Work, ...]:
    """The stages of a method's run, in order.

    Raises:
        SettingError: the method starts from models whose cost isn't counted.
    """
    if method.preliminary is not None:
        raise SettingError(
            "word vectors and the intent classifier of iart are not counted. Plan another method, or take a run with "
            "--limit as the measure."
        )
    if method.post_training is not None:
        bench.post_train(parts.ranker, method.post_training)
    trained = method.regime.build().run(bench, parts)
    for split in evaluated:
        score_members(bench, trained.members, split, with_intents=method.regime.view_rule() is not None)
    return tuple(bench.works)


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
