from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.observers import DyingEngine, Interrupted
from helpers.tiny_models import tiny_ranker
from torch import Tensor, nn

from icalib.core.errors import IcalibError
from icalib.data.encoding import TokenStore
from icalib.losses.binary import BinaryCrossEntropy
from icalib.models.model import Model
from icalib.models.ranker import Ranker
from icalib.training import loop
from icalib.training.examples import gold_labels
from icalib.training.local_engine import LocalEngine, parameter_groups
from icalib.training.loop import LoopState, stalled_epochs, train
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings


class Listener:
    """Keeps the weights that the loop calls best."""

    def __init__(self) -> None:
        self.weights: list[dict[str, Tensor]] = []
        self.done: list[float] = []
        self.epochs: list[list[float]] = []

    def progress(self, done: float, total: float, note: str) -> None:
        self.done.append(done / total)

    def best(self, weights: dict[str, Tensor]) -> None:
        self.weights.append(weights)

    def validated(self, points: Sequence[dict[str, Any]]) -> None:
        self.epochs.append([point["value"] for point in points])


class Scripted:
    """Validation whose figures are known beforehand."""

    def __init__(self, tag: str, figures: Sequence[float]) -> None:
        self.tag, self._figures = tag, iter(figures)

    def __call__(self, ranker: Ranker, rank: int, world_size: int) -> None:
        assert not ranker.training

    def metrics(self, shares: Sequence[None]) -> dict[str, float]:
        return {self.tag: next(self._figures)}


def settings(**values: Any) -> TrainingSettings:
    return TrainingSettings.model_validate({"precision": "fp32", **values})


def curriculum(
    store: TokenStore, ranker: Ranker, made: TrainingSettings, rows: int, *, with_intents: bool = False
) -> AnswerCurriculum:
    pools = gold_labels(store, range(rows), with_intents=with_intents)
    return AnswerCurriculum(
        pools, store, ranker.layout, BinaryCrossEntropy.Config().build(), made,
        num_intents=len(ranker.config.intents), seed=1,
    )  # fmt: skip


def fit(
    store: TokenStore, ranker: Ranker, made: TrainingSettings, *, rows: int = 4, validation: Any = None,
    with_intents: bool = False, engine: Any = None, start_ranks: bool = False,
) -> tuple[LoopState, Listener]:  # fmt: skip
    listener = Listener()
    examples = curriculum(store, ranker, made, rows, with_intents=with_intents)
    engine = engine or LocalEngine(ranker, made)
    state = train(ranker, engine, examples, made, listener, seed=1, validation=validation, start_ranks=start_ranks)
    return state, listener


class GradientEngine(LocalEngine):
    """One of several workers, which adds up its gradients and never steps."""

    def __init__(self, model: Model, made: TrainingSettings, rank: int, world_size: int) -> None:
        super().__init__(model, made)
        self.rank, self.world_size = rank, world_size

    def backward_and_step(self, loss: Tensor) -> None:
        (loss / self._settings.gradient_accumulation).backward()


@pytest.mark.parametrize(("workers", "accumulation", "batch_size"), [(2, 1, 8), (3, 2, 4), (5, 1, 3)])
def test_workers_that_share_a_batch_average_to_the_gradient_of_one(
    store: TokenStore, tiny_bert: Path, workers: int, accumulation: int, batch_size: int
) -> None:
    def gradient(rank: int, world_size: int, accumulation: int) -> dict[str, Tensor]:
        ranker = tiny_ranker(tiny_bert, dropout=0.0)
        made = settings(epochs=1, batch_size=batch_size, gradient_accumulation=accumulation)
        fit(store, ranker, made, rows=3, engine=GradientEngine(ranker, made, rank, world_size))
        return {name: p.grad for name, p in ranker.named_parameters() if p.grad is not None}

    shares = [gradient(rank, workers, accumulation) for rank in range(workers)]
    for name, tensor in gradient(0, 1, 1).items():
        mean = torch.stack([share[name] for share in shares]).mean(0)
        torch.testing.assert_close(mean, tensor, rtol=1e-3, atol=1e-6, msg=name)


def test_a_resumed_run_ends_with_the_same_bits_as_an_undisturbed_one(
    store: TokenStore, tiny_bert: Path, intents: tuple[str, ...], tmp_path: Path
) -> None:
    """Of two epochs of 7 updates: before the first checkpoint, mid-epoch, after an epoch, and at its end."""

    def run(
        every: int, engine: Callable[[Ranker, TrainingSettings], LocalEngine]
    ) -> tuple[LoopState, dict[str, Tensor]]:
        ranker = tiny_ranker(tiny_bert, intents=intents)
        made = settings(epochs=2, learning_rate=1e-3, batch_size=6, checkpoint_every=every, train_negatives=2)
        state, listener = fit(store, ranker, made, with_intents=True, engine=engine(ranker, made))
        return state, listener.weights[-1]

    whole = {every: run(every, LocalEngine) for every in (3, 7)}
    for every, deadline in ((3, 2), (3, 5), (3, 8), (7, 10)):
        undisturbed, weights = whole[every]
        folder = tmp_path / f"{every} {deadline}"
        dying = type("Dying", (DyingEngine,), {"deadline": deadline})
        with pytest.raises(Interrupted):
            run(every, partial(dying, folder=folder))
        torch.manual_seed(12345)
        resumed, again = run(every, partial(LocalEngine, folder=folder))
        assert replace(resumed, seconds=0.0) == replace(undisturbed, seconds=0.0)
        for name, tensor in weights.items():
            assert torch.equal(again[name], tensor), name


@pytest.mark.parametrize(
    ("metric", "changes", "figures", "epoch", "best", "best_epoch", "num_kept"),
    [
        ("class/F1", {"patience": 2}, [0.1, 0.3, 0.2, 0.3, 0.9], 4, 0.3, 2, 2),
        ("class/F1", {"patience": 2, "start_ranks": True}, [0.4, 0.1, 0.4, 0.3, 0.9], 3, 0.4, 0, 1),
        ("class/F1", {"epochs": 2, "start_ranks": True}, [0.4, 0.3, 0.5], 2, 0.5, 2, 2),
        ("cal/NLL", {"patience": 2, "epochs": 3}, [0.5, 0.2, 0.4], 3, -0.2, 2, 2),  # better when smaller
        ("held_out/x/loss", {"patience": 1, "epochs": 3}, [0.5, 0.7, 0.9], 3, None, 3, 3),  # not what was asked for
    ],
)
def test_the_best_epoch_or_the_start_is_kept_and_training_stops_after_patience(
    store: TokenStore, tiny_bert: Path, metric: str, changes: dict[str, Any], figures: list[float],
    epoch: int, best: float | None, best_epoch: int, num_kept: int,
) -> None:  # fmt: skip
    changes = dict(changes)
    start_ranks = changes.pop("start_ranks", False)
    selection = "NLL" if metric == "cal/NLL" else "F1"
    made = settings(**{"epochs": 9, "selection_metric": selection, "learning_rate": 1e-3, **changes})
    ranker = tiny_ranker(tiny_bert)
    start = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    state, listener = fit(store, ranker, made, validation=Scripted(metric, figures), start_ranks=start_ranks)
    assert (state.epoch, state.best_epoch, state.stopped) == (epoch, best_epoch, epoch < made.epochs)
    if best is not None:
        assert state.best == best
    seen = epoch + start_ranks
    validated = [(p["epoch"], p["value"]) for p in state.log if p["split"] == "validation"]
    assert validated == list(zip(range(1 - start_ranks, epoch + 1), figures[:seen], strict=True))
    assert listener.epochs == [figures[: number + 1] for number in range(seen)]
    assert len(listener.weights) == num_kept
    kept_start = all(torch.equal(tensor, listener.weights[-1][name]) for name, tensor in start.items())
    assert kept_start == (best_epoch == 0)


@pytest.mark.parametrize(
    ("schedule", "warmup", "stalls", "expected"),
    [
        ("linear", 0.25, 0, [0, 0.5, 1, 0.5, 0]),
        ("linear", 0.0, 0, [1, 0.875, 0.75, 0.375, 0]),
        ("constant", 0.25, 3, [0, 0.5, 1, 1, 1]),
        ("plateau", 0.25, 0, [0, 0.5, 1, 1, 1]),
        ("plateau", 0.0, 3, [0.9**3] * 5),
    ],
)
def test_the_learning_rate_rises_to_its_peak_and_falls_by_its_schedule(
    schedule: Any, warmup: float, stalls: int, expected: list[float]
) -> None:
    made = TrainingSettings(warmup_fraction=warmup, schedule=schedule)
    factors = [made.progress_factor(progress, stalls) for progress in (0, 0.125, 0.25, 0.625, 1)]
    np.testing.assert_allclose(factors, expected)


@pytest.mark.parametrize(
    ("means", "stalls"),
    [([], 0), ([1.0], 0), ([1.0, 0.9], 0), ([1.0, 0.995], 1), ([1.0, 1.2, 1.1], 1), ([1.0, 0.9, 0.9, 0.95], 2)],
)
def test_an_epoch_stalls_whose_loss_falls_by_less_than_a_hundredth(means: list[float], stalls: int) -> None:
    assert stalled_epochs([{"answer": [mean * 6, 6], "intent": [mean * 2, 2]} for mean in means]) == stalls


class OneWeight(Model):
    """A model whose outputs don't matter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        return self.weight


class ScriptedLosses:
    """Updates whose losses are known beforehand, of each epoch."""

    def __init__(self, losses: Sequence[Sequence[float]]) -> None:
        self._losses = losses

    def batches(self, epoch: int) -> Sequence[Sequence[float]]:
        return [[loss] for loss in self._losses[epoch]]

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[float], device: torch.device
    ) -> tuple[str, Tensor]:
        return "answer", forward() * 0 + examples[0]


def test_a_batch_that_is_not_full_counts_by_its_examples() -> None:
    made, found = settings(epochs=1, batch_size=4), list[float]()

    class Listening(LocalEngine):
        def backward_and_step(self, loss: Tensor) -> None:
            found.append(loss.item())
            super().backward_and_step(loss)

    model = OneWeight()
    train(model, Listening(model, made), ScriptedLosses([[2.0]]), made, Listener(), seed=1, validation=None)
    assert found == [0.5]  # of one example, as a fourth of an update


def test_the_first_update_of_a_warm_up_counts_and_the_curve_has_the_rate_of_its_points_update() -> None:
    made, rates = settings(epochs=1, warmup_fraction=0.5, batch_size=1, learning_rate=2.0), list[float]()

    class Listening(LocalEngine):
        def set_learning_rate(self, factor: float) -> None:
            rates.append(2.0 * factor)
            super().set_learning_rate(factor)

    model = OneWeight()
    losses = ScriptedLosses([[1.0] * 13])
    state = train(model, Listening(model, made), losses, made, Listener(), seed=1, validation=None)
    assert 0 < rates[0] < rates[1] / 10
    assert [p["value"] for p in state.log if p["tag"] == "opt/lr"] == [rates[9], rates[12]]


def test_all_updates_of_an_epoch_count_alike_for_plateau_whatever_the_checkpoints() -> None:
    """Ten updates fall by 0.1 an epoch; the last one, which shares a point of the curve with few, rises by 0.5."""
    losses = [[1.0 - 0.1 * epoch] * 10 + [1.0 + 0.5 * epoch] for epoch in range(3)]

    def trained(every: int) -> LoopState:
        made = settings(
            epochs=3, schedule="plateau", warmup_fraction=0.0, batch_size=1, learning_rate=1.0, checkpoint_every=every
        )
        model = OneWeight()
        return train(model, LocalEngine(model, made), ScriptedLosses(losses), made, Listener(), seed=1, validation=None)

    states = [trained(every) for every in (1000, 10, 7, 2)]
    for state in states:
        assert {point["value"] for point in state.log if point["tag"] == "opt/lr"} == {1.0}
        assert state.losses == states[0].losses
    np.testing.assert_allclose([epoch["answer"] for epoch in states[0].losses], [[11.0, 11], [10.5, 11], [10.0, 11]])


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, [10, 20]), (3600.0, [])])
def test_checkpoints_follow_the_clock_of_rank_0(
    monkeypatch: pytest.MonkeyPatch, seconds: float, saved: list[int]
) -> None:
    class Saving(LocalEngine):
        """Two workers, of which the second one has a clock of its own."""

        def gather(self, value: Any) -> list[Any]:
            return [value, value + 10 * 3600 if isinstance(value, float) else value]

        def save(self, state: dict[str, Any]) -> None:
            steps.append(state["step"])

    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", seconds)
    steps: list[int] = []
    made, model = settings(epochs=1, batch_size=1), OneWeight()
    train(model, Saving(model, made), ScriptedLosses([[1.0] * 25]), made, Listener(), seed=1, validation=None)
    assert steps == [*saved, 25]  # the last epoch's weights are the best, as nothing is validated


def test_a_loss_is_the_mean_of_all_workers() -> None:
    class TwoWorkers(LocalEngine):
        """The other one's losses are 1 higher."""

        def gather(self, value: Any) -> list[Any]:
            other = (
                {task: [loss + 1 for loss in losses] for task, losses in value.items()}
                if isinstance(value, dict)
                else value
            )
            return [value, other]

    made, model = settings(epochs=1, batch_size=1), OneWeight()
    engine = TwoWorkers(model, made)
    state = train(model, engine, ScriptedLosses([[1.0, 2.0, 3.0]]), made, Listener(), seed=1, validation=None)
    assert state.losses == [{"answer": [7.5, 3]}]
    assert [point["value"] for point in state.log if point["tag"] == "loss/answer"] == [2.5]


@pytest.mark.parametrize("head_rate", [1e-3, None])
def test_heads_have_their_own_rate_if_any_and_biases_and_norms_no_decay(
    tiny_bert: Path, head_rate: float | None
) -> None:
    ranker = tiny_ranker(tiny_bert, intents=("a", "b"))
    names = {id(parameter): name for name, parameter in ranker.named_parameters()}
    made = settings(learning_rate=1e-5, head_learning_rate=head_rate, weight_decay=0.02)
    found = [
        (names[id(parameter)], group["lr"], group["peak_lr"], group["weight_decay"])
        for group in parameter_groups(ranker, made)
        for parameter in group["params"]
    ]
    assert sorted(name for name, *_ in found) == sorted(names.values())
    for name, rate, peak, decay in found:
        assert rate == peak == (1e-5 if name.startswith("encoder.") else head_rate or 1e-5), name
        assert decay == (0.0 if "bias" in name or "LayerNorm" in name else 0.02), name


def test_a_loss_or_a_figure_that_is_no_number_ends_the_training_there(store: TokenStore, tiny_bert: Path) -> None:
    ranker = tiny_ranker(tiny_bert)
    with pytest.raises(IcalibError, match=r"diverged.*Lower `learning_rate`"):
        fit(store, ranker, settings(epochs=1, selection_metric="F1"), validation=Scripted("class/F1", [math.nan]))
    with torch.no_grad():
        ranker.answer_head.linear.weight.fill_(math.nan)
    with pytest.raises(IcalibError, match=r"diverged: the loss is nan in update 1.*Lower `learning_rate`"):
        fit(store, ranker, settings(epochs=1))


class SpoilingLosses(ScriptedLosses):
    """Finite losses whose last gradient is nan, as that of a root of 0 is."""

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[float], device: torch.device
    ) -> tuple[str, Tensor]:
        return "answer", torch.sqrt(forward() * 0)


def test_weights_that_are_no_numbers_are_not_kept_where_nothing_is_validated() -> None:
    made, model, listener = settings(epochs=1, batch_size=1), OneWeight(), Listener()
    with pytest.raises(IcalibError, match=r"diverged: a weight is nan or infinite after epoch 1"):
        train(model, LocalEngine(model, made), SpoilingLosses([[1.0]]), made, listener, seed=1, validation=None)
    assert listener.weights == []


class StoppedListener(Listener):
    """Ends the process after a fraction of the training."""

    def progress(self, done: float, total: float, note: str) -> None:
        if done / total > 0.7:
            raise Interrupted


def test_kept_weights_are_those_of_the_best_epoch_where_a_redone_one_measures_otherwise(tmp_path: Path) -> None:
    """As on GPUs, and with fewer workers than before: epoch 2 measures 0.6, and would measure 0.499 again."""
    made = settings(epochs=3, batch_size=1, checkpoint_every=3, patience=5, selection_metric="F1")
    kept: list[dict[str, Tensor]] = []
    for listener, figures in ((StoppedListener(), [0.5, 0.6]), (Listener(), [0.4])):
        model, losses = OneWeight(), ScriptedLosses([[1.0] * 4] * 3)
        engine, validation = LocalEngine(model, made, folder=tmp_path), Scripted("class/F1", figures)
        try:
            state = train(model, engine, losses, made, listener, seed=1, validation=validation)
        except Interrupted:
            kept += listener.weights
            continue
        assert (state.best_epoch, state.best, len(kept), listener.weights) == (2, 0.6, 2, [])
