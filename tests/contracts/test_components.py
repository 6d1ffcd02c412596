"""What every component of every kind must do: its settings are saved, loaded, explained and found by name."""

from __future__ import annotations

import pickle

import pytest
import yaml
from helpers.discovery import bases, default_config, discovered

from icalib.core.component import Component, component_class, described, short_name, validated
from icalib.core.errors import SettingError
from icalib.methods.method import Method

KINDS = [pytest.param(base, owner, id=owner.__name__) for base in bases() for owner in discovered(base)]
every_component = pytest.mark.parametrize(("base", "owner"), KINDS)


def test_every_kind_has_components() -> None:
    assert len(bases()) >= 8
    assert [base.__name__ for base in bases() if not discovered(base)] == []


@every_component
def test_its_settings_survive_yaml_and_pickling(base: type[Component], owner: type[Component]) -> None:
    config = default_config(owner)
    assert validated(base.Config, yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))) == config
    assert pickle.loads(pickle.dumps(config)) == config


@every_component
def test_it_is_found_by_import_path_and_by_short_name(base: type[Component], owner: type[Component]) -> None:
    assert component_class(f"{owner.__module__}.{owner.__qualname__}", base) is owner
    assert component_class(short_name(owner), base) is owner


@every_component
def test_it_and_its_settings_have_help(base: type[Component], owner: type[Component]) -> None:
    assert (owner.__doc__ or "").strip()
    assert [path for path, _, text in described(default_config(owner)) if not text.strip()] == []


@every_component
def test_an_unknown_setting_is_refused(base: type[Component], owner: type[Component]) -> None:
    with pytest.raises(SettingError, match="surprise"):
        default_config(owner, surprise=1)


@every_component
def test_it_provides_and_requires_what_settings_of_a_method_have(base: type[Component], owner: type[Component]) -> None:
    config = default_config(owner)
    assert {capability.setting for capability in config.provides() | config.requires()} <= Method.model_fields.keys()
