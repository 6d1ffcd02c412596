"""Settings at which one method must equal another; the maths' own limits are tested in tests/unit/inference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.observers import Silent
from helpers.scoring import score_pools
from helpers.tiny_models import BUDGET, ranker_config
from helpers.tiny_training import train_and_score
from helpers.train_jobs import job_of
from torch import Tensor

from icalib.core.component import with_settings
from icalib.data.encoding import TokenStore
from icalib.methods.catalogue import load_method
from icalib.methods.method import Method
from icalib.models.checkpoint import RankerConfig
from icalib.models.ranker import Ranker
from icalib.scoring.cross import LoadedCross
from icalib.training.cross_encoder import answer_curriculum
from icalib.training.domain_pretraining.job import DomainPretrainJob
from icalib.training.examples import gold_labels
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
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


def test_limit_bert_fp_of_0_epochs_of_domain_pretraining_is_bert_in_scores_too(
    tiny_bert: Path, tokens: Path, store: TokenStore, tmp_path: Path
) -> None:
    given = load_method("bert-fp")
    quick = TrainingSettings(epochs=1, batch_size=8, learning_rate=1e-3, precision="fp32")
    task = given.domain_pretraining.model_copy(update={"training": quick, "max_windows": 16})  # type: ignore[union-attr]
    ranker = ranker_config(tiny_bert, turn_separators=True)
    job = job_of(DomainPretrainJob, tiny_bert, tokens, ranker=ranker, task=task)
    pretraining = job.prepare(CPU)

    def fine_tuned() -> dict[str, list[Any]]:
        pretraining.model.save(tmp_path, pretraining.model.state_dict())
        return train_and_score(given, tiny_bert, store, rows=(5, 6), start=tmp_path).scores.to_pydict()

    bert = changed("bert", **{"encoder.turn_separators": True})
    assert fine_tuned() == scores(bert, tiny_bert, store)
    engine = LocalEngine(pretraining.model, quick)
    train(pretraining.model, engine, pretraining.curriculum, quick, Silent(), seed=0, validation=None)
    assert fine_tuned() != scores(bert, tiny_bert, store)


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


def test_limit_grn_without_graph_and_attention_is_a_listwise_bert(tiny_bert: Path, store: TokenStore) -> None:
    alone = {"similarity": None, "intent": None, "domain_pretraining": None}
    small = {"encoder.backbone": str(tiny_bert), "encoder.budget": BUDGET}
    listwise = {"loss": "pool-cross-entropy", "decision": "argmax", "encoder.turn_separators": True}
    methods = changed("grn", **small), changed("bert", **alone, **listwise, **small)
    torch.manual_seed(0)
    grn, bert = (Ranker(RankerConfig(encoder=method.encoder, link=method.loss.link)).eval() for method in methods)
    given, rest = grn.answer_head.linear.weight.data.normal_(), grn.encoder.attention
    bert.answer_head.linear.weight.data = given[:, -bert.encoder.width :].clone()

    def found(method: Method, ranker: Ranker) -> tuple[Tensor, dict[str, Tensor], list[float]]:
        """The loss of three pools, its gradient in the backbone, and the probabilities of two others."""
        ranker.zero_grad()
        pools, quick = gold_labels(store, range(3), with_intents=False), TrainingSettings(train_negatives=3)
        curriculum = answer_curriculum(
            pools, store, ranker.layout, method.loss.build(), quick, num_intents=0, seed=0
        )  # fmt: skip
        (batch,) = curriculum.batches(0)
        _, loss = curriculum.losses(ranker, batch, CPU)
        loss.backward()
        gradient = {
            name: p.grad.clone() for name, p in ranker.encoder.backbone.named_parameters() if p.grad is not None
        }
        context = LoadedCross(ranker, method.uncertainty.build(), CPU, "fp32", 8192)
        table, _ = score_pools(context, store, [4, 5], with_intents=False, seed=0)
        return loss.detach(), gradient, table["prob_mean"].to_pylist()

    with_both = found(methods[0], grn)[0]
    given[:, : -bert.encoder.width] = 0  # of the response's node and of the maximum over nodes
    assert found(methods[0], grn)[0] != with_both
    torch.nn.init.zeros_(rest.output.weight)
    torch.nn.init.zeros_(rest.output.bias)
    rest.norm = torch.nn.Identity()  # of [CLS], which the backbone has normalised
    (loss, gradient, probs), (expected, expected_gradient, expected_probs) = map(found, methods, (grn, bert))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4)
    assert probs == pytest.approx(expected_probs, rel=1e-5)


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
