"""What a run will do is counted before it does it, and timed by measured rates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.runs import run_context
from helpers.tiny_models import BUDGET
from helpers.train_jobs import train_job

from icalib.core.component import with_settings
from icalib.data.encoding import TokenStore
from icalib.data.pools import read_pool_set
from icalib.data.selection import Selection
from icalib.methods.catalogue import load_method, presets
from icalib.pipeline.counting import Work, pairs_scored, with_passes
from icalib.pipeline.plan import count
from icalib.pipeline.rates import Machines, Rates, estimated, measure_rates
from icalib.pipeline.run import RunSettings

RATES = Rates(
    training_lengths=(10.0, 20.0),
    trained=(1.0, 3.0),
    scoring_lengths=(10.0, 20.0),
    passed=(0.1, 0.2),
    dropped=(0.2, 0.4),
    memory=1,
)
ALONE = Machines(num_workers=1, threads=1, num_scorers=1, training_start=5.0, scoring_start=1.0)


@pytest.fixture
def count_method(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> Callable[..., dict[str, Work]]:
    """Count a method on the tiny corpus."""

    def counted(name: str, seed: int = 1, **changes: object) -> dict[str, Work]:
        wanted = {"encoder.backbone": str(tiny_bert), "encoder.budget": BUDGET, **changes}
        settings = RunSettings(
            method=name,
            data=tiny_pools,
            labelled=0.25,
            seed=seed,
            backbone=str(tiny_bert),
            experiment="counted",
            settings=with_settings(load_method(name), wanted),
        )
        return {work.name: work for work in count(settings, run_context(tmp_path)).works}

    return counted


def sizes(store: TokenStore, fraction: float = 0.25) -> tuple[int, int]:
    selection, order = Selection(labelled_fraction=fraction), store.column("label_order")
    return len(selection.rows("train", "labelled", order)), len(selection.rows("train", "unlabelled", order))


def test_supervised_training_is_counted_pair_by_pair(
    count_method, store: TokenStore, tokens: Path, tiny_pools: Path
) -> None:
    works = count_method("bert", **{"regime.training.epochs": 2, "post_training": None})
    labelled, _ = sizes(store)
    num_validation = len(TokenStore(tokens / "validation.arrow"))
    num_test = read_pool_set(tiny_pools).num_pools["test"]
    assert list(works) == ["teacher-bi-encoder", "teacher", "validation/scores", "test/scores"]
    bi_encoder = works["teacher-bi-encoder"]
    assert sum(bi_encoder.trained.values()) == 3 * (1 + 4) * labelled  # epochs, context and candidates
    assert sum(bi_encoder.passed.values()) == (1 + 3) * (1 + 4) * num_validation
    assert sum(works["teacher"].trained.values()) == 2 * 4 * labelled  # pools of 4 candidates
    assert sum(works["teacher"].passed.values()) == (1 + 2) * 4 * num_validation  # the start, too
    assert works["test/scores"].pairs == 4 * num_test


def test_a_bi_encoder_alone_reads_each_text_of_a_pool_once(count_method, tiny_pools: Path) -> None:
    num_test = read_pool_set(tiny_pools).num_pools["test"]
    works = count_method("tsst", **presets("tsst")["bi-encoder"], **{"regime.num_rounds": 1})
    assert not any(sum(works[name].trained.values()) for name in ("teacher", "round-1/student"))
    assert works["round-1/student-bi-encoder"].updates > works["teacher-bi-encoder"].updates
    assert sum(works["test/scores"].passed.values()) == (1 + 4) * num_test
    assert works["test/scores"].pairs == 4 * num_test


def test_dropout_passes_views_and_questions_are_counted(count_method, store: TokenStore) -> None:
    works = count_method("icast", **{"regime.num_rounds": 2, "uncertainty.num_passes": 3, "post_training": None})
    _, unlabelled = sizes(store)
    assert [name for name in works if name.startswith("round-")] == [
        *(f"round-{number}/{what}" for number in (1, 2) for what in ("scores", "student-bi-encoder", "student")),
        "round-1/student/validation/scores",
        "round-2/student/validation/scores",  # the chosen one's, which the final evaluation reuses
    ]
    assert "validation/scores" not in works
    bi_encoder = works["round-1/student-bi-encoder"]
    assert sum(bi_encoder.trained.values()) > sum(works["teacher-bi-encoder"].trained.values())
    assert 0 < bi_encoder.low < 1 < bi_encoder.high
    scores = works["round-1/scores"]
    assert sum(scores.dropped.values()) == 3 * 2 * 4 * unlabelled  # passes, views, candidates
    utterances = sum(len(pool.context) for pool in store.pools(range(len(store))))
    assert 0 < sum(scores.passed.values()) < utterances  # one question each, of the unlabelled pools
    student = works["round-1/student"]
    assert 0 < student.low < 1 < student.high


def test_validation_is_counted_as_what_predicts(count_method, tokens: Path) -> None:
    store = TokenStore(tokens / "validation.arrow")
    pools = list(store.pools(range(len(store))))
    settings = {"uncertainty.num_passes": 3, "post_training": None}
    passes = count_method("mc-dropout", **settings, **{"regime.training.epochs": 2})["teacher"]
    assert (sum(passes.passed.values()), sum(passes.dropped.values())) == (0, 2 * 3 * 4 * len(pools))
    views = count_method("icast-teacher", **settings, **{"regime.training.epochs": 2})["teacher"]
    assert sum(views.passed.values()) == 2 * sum(len(pool.context) for pool in pools)  # questions
    assert sum(views.dropped.values()) == 2 * 3 * 2 * 4 * len(pools)


def test_late_dropout_repeats_the_upper_layers_only(count_method) -> None:
    settings = {"uncertainty.num_passes": 5, "post_training": None}
    exact, late, once = (
        count_method("mc-dropout", **settings, **{"uncertainty.dropout_layers": layers})["test/scores"]
        for layers in (None, 1, 0)
    )
    num_pairs = exact.pairs
    assert sum(exact.dropped.values()) == 5 * num_pairs
    assert sum(late.passed.values()) == pytest.approx(num_pairs / 2)  # the lower one of two layers
    assert sum(late.dropped.values()) == pytest.approx(5 * num_pairs / 2)
    assert (sum(once.passed.values()), sum(once.dropped.values())) == (num_pairs, 0)


def test_runs_share_what_has_the_same_digest(count_method) -> None:
    settings = {"regime.num_rounds": 1}
    one = count_method("tsst", **settings)
    other = count_method("tsst", **settings, **{"regime.rule.positive_threshold": 0.7})
    seed = count_method("tsst", seed=2, **settings)
    assert {name for name in one if one[name].digest == other[name].digest} == {
        "post-training",
        "teacher-bi-encoder",
        "teacher",
        "round-1/scores",
    }
    assert {name for name in one if one[name].digest == seed[name].digest} == {"post-training"}


def test_an_ensemble_trains_and_scores_every_member(count_method) -> None:
    works = count_method("ensemble", **{"regime.num_members": 3, "post_training": None})
    assert [name for name in works if name.endswith("teacher")] == ["teacher", "member-1/teacher", "member-2/teacher"]
    assert len({work.digest for work in works.values()}) == 12


def test_rates_are_interpolated_and_grow_beyond_what_was_measured() -> None:
    work = Work("teacher", "training", "d", trained={15: 2.0, 40: 1.0}, updates=3)
    assert estimated(work, RATES, ALONE).seconds == pytest.approx(5 + 2 * 2.0 + 3.0 * 2)
    two = Machines(num_workers=2, threads=1, num_scorers=1, training_start=5.0, scoring_start=1.0)
    assert estimated(work, RATES, two).seconds == pytest.approx(5 + 10 / 1.8)


def test_scoring_is_divided_among_tasks_and_scaled_to_any_number_of_pairs() -> None:
    work = Work("test/scores", "scoring", "d", passed={10: 10.0}, dropped={20: 10.0}, pairs=10)
    assert estimated(work, RATES, ALONE).seconds == pytest.approx(1 + 1 + 4)
    many = estimated(pairs_scored([work], 1e8), RATES, ALONE)
    assert many.seconds == pytest.approx(1 + 0.5 * 1e8)
    assert many.low < many.seconds < many.high


def test_pairs_are_scored_by_every_member_and_in_any_number_of_passes() -> None:
    dropped = Work("test/scores", "scoring", "d", passed={10: 10.0}, dropped={20: 30.0}, pairs=10, passes=3)
    million = pairs_scored([dropped, dropped], 1e6)
    assert (million.passed, million.dropped) == ({10: 2e6}, {20: 6e6})
    once, often = with_passes(million, 1), with_passes(million, 3)
    assert (once.passed, once.dropped) == ({10: 2e6, 20: 2e6}, {})
    assert (often.passed, often.dropped) == (million.passed, million.dropped)
    assert estimated(often, RATES, ALONE).seconds == pytest.approx(1 + 0.1 * 2e6 + 0.4 * 6e6)
    single = pairs_scored([Work("test/scores", "scoring", "d", passed={20: 20.0}, pairs=10)], 1e6)
    assert with_passes(single, 1) == single
    assert with_passes(single, 5).dropped == {20: 1e7}
    assert with_passes(single, 5).passed == {}


def test_intents_are_predicted_once_whatever_the_number_of_passes() -> None:
    """A run with a posterior reads each pair once, in both views, and one input per utterance for the intents."""
    passed, questions = {20: 20.0, 10: 4.0}, {10: 4.0}
    work = Work("test/scores", "scoring", "d", passed=passed, questions=questions, pairs=10)
    often = with_passes(pairs_scored([work], 100), 5)
    assert (often.passed, often.dropped[20]) == ({10: 40.0}, 1000.0)
    assert often.num_inputs == 10 * (4 + 5 * 20)
    assert with_passes(work, 1).passed == passed


def test_rates_are_differences_of_the_clock(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    job = train_job(tiny_pools, tiny_bert, tmp_path, batch_size=8)
    ticks = itertools.count()
    rates = measure_rates(
        job, precision="fp32", max_tokens=1024, device=torch.device("cpu"), clock=lambda: float(next(ticks))
    )
    assert all(1 / 8 <= seconds <= 1 / 4 for seconds in rates.trained)  # one tick a batch, which may be half full
    assert rates.passed == rates.dropped
    assert list(rates.scoring_lengths) == sorted(rates.scoring_lengths)
    assert rates.memory > 2**20
