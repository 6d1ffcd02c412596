"""What every regime must say of itself before anything is computed; a new one is discovered."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.discovery import default_config, discovered

from icalib.core.combination import PAIR_PROBS
from icalib.methods.method import Method
from icalib.regimes.regime import AbstractRegime
from icalib.scoring.gain import GainRule
from icalib.uncertainty.estimator import MCDropout


@pytest.fixture(params=discovered(AbstractRegime), ids=lambda owner: owner.__name__)
def config(request: pytest.FixtureRequest) -> Any:
    return default_config(request.param)


def test_it_builds_from_its_settings_and_makes_a_method(config: Any) -> None:
    assert isinstance(config.build(), AbstractRegime)
    method = Method(regime=config, uncertainty=MCDropout.Config(), similarity=None, intent=None)
    prior = method.train_prior(10)
    assert (prior is not None) == config.trains
    assert prior is None or 0 < prior <= 0.5


def test_it_says_how_long_it_trains_and_on_how_many_wrong_candidates(config: Any) -> None:
    assert (config.num_epochs() >= 1) == config.trains
    assert config.train_negatives() is None or config.train_negatives() >= 1


def test_a_view_is_chosen_only_where_intents_are_learnt(config: Any) -> None:
    rule = config.view_rule()
    assert isinstance(rule, GainRule) == config.needs_intents()
    assert rule is None or PAIR_PROBS in config.requires()


def test_its_check_takes_its_default_settings(config: Any) -> None:
    config.check()
