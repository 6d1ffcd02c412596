"""Settings at which one method must equal another; the maths' own limits are tested in tests/unit/inference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.scoring import score_pools
from helpers.tiny_models import BUDGET
from helpers.tiny_training import train_and_score

from icalib.core.component import with_settings
from icalib.data.encoding import TokenStore
from icalib.methods.catalogue import load_method
from icalib.methods.method import Method
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker
from icalib.scoring.cross import LoadedCross
from icalib.training.cross_encoder import answer_curriculum
from icalib.training.examples import gold_labels
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")


def scores(method: Method, backbone: Path, store: TokenStore) -> dict[str, list[Any]]:
    """Scores of two pools by the method, trained on two others."""
    return train_and_score(method, backbone, store, rows=(5, 6)).scores.to_pydict()


def changed(name: str, **settings: Any) -> Method:
    return with_settings(load_method(name), settings)


def test_limit_gpf_bert_with_gamma_0_is_sngp(tiny_bert: Path, store: TokenStore) -> None:
    head = {"head.num_features": 32}
    gpf = scores(changed("gpf-bert", **head, **{"loss.gamma": 0.0}), tiny_bert, store)
    assert gpf == scores(changed("sngp", **head), tiny_bert, store)
    assert gpf != scores(changed("gpf-bert", **head), tiny_bert, store)


def test_limit_focal_with_gamma_0_is_bert(tiny_bert: Path, store: TokenStore) -> None:
    focal = scores(changed("focal", **{"loss.gamma": 0.0}), tiny_bert, store)
    bert = scores(changed("bert"), tiny_bert, store)
    assert focal["logit_mean"] == pytest.approx(bert["logit_mean"], abs=1e-5)


def test_limit_gpf_bert_without_its_gp_is_focal() -> None:
    plain = {"head": "linear-head", "uncertainty": "deterministic", "regime.training.head_learning_rate": None}
    assert changed("gpf-bert", **plain) == load_method("focal")


def test_limit_bert_fp_without_its_domain_pretraining_is_bert() -> None:
    given = load_method("bert-fp")
    plain = {"domain_pretraining": None, "similarity": None, "intent": None}
    alike = {"encoder": given.encoder, "regime.training": given.regime.trainings()[0]}
    bert = changed("bert", **plain, **{path: value.model_dump() for path, value in alike.items()})
    assert changed("bert-fp", domain_pretraining=None) == bert
    assert given != bert


def test_limit_mc_dropout_without_dropout_is_bert(tiny_bert: Path, store: TokenStore) -> None:
    none = {"encoder.dropout": 0.0}
    passes = scores(changed("mc-dropout", **none), tiny_bert, store)
    bert = scores(changed("bert", **none), tiny_bert, store)
    assert passes["prob_mean"] == pytest.approx(bert["prob_mean"], abs=1e-7)
    assert max(passes["logit_var"]) < 1e-12


def test_limit_a_posterior_without_variance_is_its_point_estimate(tiny_bert: Path, store: TokenStore) -> None:
    sure = changed("sngp", **{"head.num_features": 32, "head.ridge": 1e12})
    posterior = scores(sure, tiny_bert, store)
    point = scores(changed("sngp", uncertainty="deterministic", **{"head.num_features": 32}), tiny_bert, store)
    assert posterior["prob_mean"] == pytest.approx(point["prob_mean"], abs=1e-6)
    assert max(posterior["mutual_information"]) < 1e-9


def test_limit_sngp_whose_mean_field_ignores_the_variance_is_its_point_estimate(
    tiny_bert: Path, store: TokenStore
) -> None:
    ignored = {"uncertainty.integration": "mean_field", "uncertainty.mean_field_factor": 0.0}
    posterior = scores(changed("sngp", **{"head.num_features": 32, **ignored}), tiny_bert, store)
    point = scores(changed("sngp", uncertainty="deterministic", **{"head.num_features": 32}), tiny_bert, store)
    assert posterior["prob_mean"] == pytest.approx(point["prob_mean"], abs=1e-6)
    assert min(posterior["logit_var"]) > 1e-6


@pytest.mark.parametrize("name", ["jm", "grn"])
def test_limit_an_untrained_listwise_ranker_gives_all_candidates_the_same_probability(
    name: str, tiny_bert: Path, store: TokenStore
) -> None:
    method = with_settings(load_method(name), {"encoder.backbone": str(tiny_bert), "encoder.budget": BUDGET})
    ranker = Ranker(RankerConfig(encoder=method.encoder, link="softmax")).eval()
    torch.nn.init.zeros_(ranker.answer_head.linear.weight)
    pools = gold_labels(store, range(3), with_intents=False)
    curriculum = answer_curriculum(
        pools, store, ranker.layout, method.loss.build(), TrainingSettings(), num_intents=0, seed=0
    )  # fmt: skip
    (batch,) = curriculum.batches(0)
    _, loss = curriculum.losses(ranker, batch, CPU)
    assert loss.item() == pytest.approx(3 * math.log(4), rel=1e-6)
    context = LoadedCross(ranker, method.uncertainty.build(), CPU, "fp32", 8192)
    probs = score_pools(context, store, [0, 1], with_intents=False, seed=0)[0]["prob_mean"].to_pylist()
    assert probs == pytest.approx([0.25] * 8)
