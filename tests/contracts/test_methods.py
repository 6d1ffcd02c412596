"""What every method must do; a new file in icalib/methods is picked up by itself."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
import yaml
from helpers.observers import Silent
from helpers.tiny_models import BUDGET, token_store

from icalib.core.component import described, validated, with_setting, with_settings
from icalib.core.errors import SettingError
from icalib.data.encoding import TokenStore
from icalib.data.pools import read_pool_set
from icalib.losses.binary import AbstractLoss
from icalib.methods.catalogue import describe, load_method, method_names
from icalib.methods.composition import Method
from icalib.models.config import RankerConfig
from icalib.models.ranker import Ranker
from icalib.scoring.scorer import ScoringContext, score_pools
from icalib.training.conditioning import condition
from icalib.training.examples import gold_labels
from icalib.training.job import answer_curriculum
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.pairs import AnswerCurriculum
from icalib.training.settings import TrainingSettings

NAMES = method_names()
TRAINED = [name for name in NAMES if isinstance(load_method(name), Method)]


@pytest.fixture(scope="module")
def store(tiny_pools: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return token_store(tiny_pools, "train", tiny_bert, tmp_path_factory.mktemp("tokens"))


@pytest.mark.parametrize("name", NAMES)
def test_settings_survive_yaml(name: str) -> None:
    method = load_method(name)
    text = yaml.safe_dump(method.model_dump(mode="json"))
    assert validated(type(method), yaml.safe_load(text)) == method


@pytest.mark.parametrize("name", NAMES)
def test_settings_survive_pickling_between_processes(name: str) -> None:
    method = load_method(name)
    assert pickle.loads(pickle.dumps(method)) == method


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_key_is_refused_wherever_it_stands(name: str) -> None:
    method = load_method(name)
    values = method.model_dump(mode="json")
    for place in (values, values["encoder"], values["scoring"]):
        place["surprise"] = 1
        with pytest.raises(SettingError, match="surprise"):
            validated(type(method), values)
        del place["surprise"]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_help_and_the_method_a_line(name: str) -> None:
    assert describe(name).endswith((".", ")"))
    lines = list(described(load_method(name)))
    assert lines
    assert [path for path, _, text in lines if not text.strip()] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_can_be_overridden(name: str) -> None:
    method = with_setting(load_method(name), "scoring.pools_per_shard", 3)
    assert method.scoring.pools_per_shard == 3


@pytest.mark.parametrize("name", TRAINED)
def test_two_steps_and_a_scored_pool_on_a_tiny_backbone(
    name: str, tiny_bert: Path, tiny_pools: Path, store: TokenStore
) -> None:
    backbone = {"encoder.backbone": str(tiny_bert), "encoder.budget": BUDGET}
    method = with_settings(load_method(name), backbone)
    assert isinstance(method, Method)
    with_intents = method.regime.needs_intents()
    names = read_pool_set(tiny_pools).intents if with_intents else ()
    torch.manual_seed(0)
    ranker = Ranker(
        RankerConfig(
            encoder=method.encoder,
            head=method.head,
            similarity_start=method.similarity_start,
            intents=names,
            link=method.loss.link,
        )
    )
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    settings = TrainingSettings(epochs=2, batch_size=4, precision="fp32", warmup_fraction=0)
    loss: AbstractLoss = method.loss.build()
    pools = [gold_labels(pool, with_intents=with_intents) for pool in store.pools([0, 1])]
    curriculum = answer_curriculum(pools, store, ranker.layout, loss, settings, num_intents=len(names), seed=0)
    state = train(ranker, LocalEngine(ranker, settings), curriculum, settings, Silent(), seed=0, validation=None)
    assert state.step >= 2
    assert all(torch.isfinite(tensor).all() for tensor in ranker.state_dict().values())
    learnt = [f"answer_head.{name}" for name, _ in ranker.answer_head.named_parameters()]
    assert any(not torch.equal(before[name], ranker.state_dict()[name]) for name in learnt)
    if method.head.has_posterior:
        assert isinstance(curriculum, AnswerCurriculum)
        condition(ranker, curriculum, settings, torch.device("cpu"), seed=0)
    context = ScoringContext(
        ranker, ranker.layout, method.uncertainty.build(), torch.device("cpu"), "fp32",
        method.scoring.max_tokens_per_batch,
    )  # fmt: skip
    views = method.regime.view_rule() is not None
    scores, intents = score_pools(context, store, [3], with_intents=views, seed=0)
    assert scores.num_rows == 4 * (1 + views)
    assert (intents is not None) == views
