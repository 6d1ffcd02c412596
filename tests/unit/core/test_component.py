from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, final

import pytest
from pydantic import Field, SerializeAsAny

from icalib.core.component import Component, ComponentConfig, Settings, has_setting, with_settings
from icalib.core.errors import SettingError
from icalib.core.job import identity_of
from icalib.heads.linear import AbstractHead


class Engine(Component):
    class Config(ComponentConfig):
        power: int = Field(3, ge=1)
        """Horses."""


@final
class Diesel(Engine):
    class Config(Engine.Config):
        glow: float = 0.5

    def __init__(self, config: Config, *, color: str = "") -> None:
        self.config, self.color = config, color


@final
class Electric(Engine):
    class Config(Engine.Config):
        volts: int = 48


@final
class Steam(Engine):
    """An engine without settings of its own."""

    def __init__(self, config: Any) -> None:
        self.config = config


class Wheels(Settings):
    count: int = 4
    """How many."""


class Car(Settings):
    engine: SerializeAsAny[Engine.Config] = Diesel.Config()
    wheels: Wheels = Wheels()
    spare: Wheels | None = None
    limits: dict[str, int] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("icalib.losses.binary.BinaryCrossEntropy", "is not a subclass of AbstractHead"),
        ("icalib.heads.linear.AbstractHead", "is abstract"),
        ("abstract-head", "Available: .*linear-head"),
        (5, "no component"),
    ],
)
def test_a_target_of_a_wrong_class_is_refused(target: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AbstractHead.Config.model_validate({"target": target})


def test_with_settings_changes_nested_settings_and_leaves_the_original() -> None:
    car = Car()
    changed = with_settings(car, {"engine.glow": 0.9, "engine.power": 7, "wheels.count": 6, "limits": {"a": 1}})
    assert changed.engine == Diesel.Config(glow=0.9, power=7)
    assert (changed.wheels.count, changed.limits) == (6, {"a": 1})
    assert car == Car()
    with pytest.raises(SettingError, match=r"(?s)engine\.power.*found 0.*wheels\.count.*found 'four'"):
        with_settings(car, {"engine.power": 0, "wheels.count": "four"})


@pytest.mark.parametrize(
    "value",
    ["electric", {"target": "electric", "volts": 48}, {"target": f"{Electric.__module__}.Electric"}, Electric.Config()],
)
def test_a_component_is_replaced_by_short_name_import_path_or_settings(value: Any) -> None:
    assert with_settings(Car(), {"engine": value}).engine == Electric.Config()


def test_a_component_without_settings_of_its_own_isnt_its_parent() -> None:
    car = with_settings(Car(), {"engine": f"{__name__}.Steam", "engine.power": 7})
    for one in (car, Car.model_validate(car.model_dump(mode="json"))):
        assert type(one.engine.build()) is Steam
        assert one.engine.power == 7
    assert car.model_dump()["engine"]["target"] == f"{__name__}.Steam"
    with pytest.raises(SettingError, match="volts"):
        with_settings(Car(), {"engine": f"{__name__}.Steam", "engine.volts": 7})


def test_a_component_and_its_settings_change_together_in_any_order() -> None:
    changes = {"engine.volts": 400, "engine": "electric", "engine.power": 7}
    assert with_settings(Car(), changes).engine == Electric.Config(volts=400, power=7)
    saved = {"target": "electric"}
    assert with_settings(Car(), {"engine": saved, "engine.volts": 12}).engine == Electric.Config(volts=12)
    assert saved == {"target": "electric"}
    with pytest.raises(SettingError, match=r"engine\.glow.*Extra"):
        with_settings(Car(), {"engine": "electric", "engine.glow": 1.0})
    with pytest.raises(SettingError, match=r"`spare` is set to None.*`spare\.count`"):
        with_settings(Car(), {"spare": None, "spare.count": 3})


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("engine.glwo", "Did you mean `glow`"),
        ("enigne.glow", "Did you mean `engine`"),
        ("spare.count", "`count` is unknown"),
    ],
)
def test_a_misspelt_key_names_the_near_one(path: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint):
        with_settings(Car(), {path: 1})
    assert not has_setting(Car(), path)


def test_a_component_that_cant_be_built_is_named() -> None:
    wanted = (
        rf"`{__name__}\.Diesel` can't be built by __init__\(config, width=\.\.\.\): TypeError: .*'width'\. Correct it"
    )
    with pytest.raises(SettingError, match=wanted):
        Diesel.Config().build(width=4)


def test_an_edited_component_from_outside_has_another_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "our_engines.py"
    source = f"from typing import final\nfrom {__name__} import Engine\n\n@final\nclass Jet(Engine):\n    pass\n"
    module.write_text(source)
    jet = with_settings(Car(), {"engine": "our_engines.Jet"})
    before = identity_of(jet)
    assert identity_of(with_settings(Car(), {"engine": "our_engines.Jet"})) == before
    module.write_text(source + "    speed = 2\n")
    with pytest.raises(SettingError, match=r"our_engines.py was edited after it was imported"):
        identity_of(jet)
    importlib.reload(sys.modules["our_engines"])
    after = identity_of(with_settings(Car(), {"engine": "our_engines.Jet"}))
    assert after != before
    assert after["engine"]["target"].startswith("our_engines.Jet@")


def test_a_component_in_no_file_has_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("notebook")  # which would change without a sign
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    exec(
        f"from typing import final\nfrom {__name__} import Engine\n@final\nclass Jet(Engine):\n    pass", vars(notebook)
    )
    with pytest.raises(SettingError, match=r"`notebook.Jet` is in no file.*%%writefile my_lab.py"):
        identity_of(with_settings(Car(), {"engine": "notebook.Jet"}))


def test_a_component_that_nothing_can_import_has_no_identity() -> None:
    @final
    class Jet(Engine):
        pass

    with pytest.raises(SettingError, match=r"<locals>\.Jet` is defined inside a function or class.*top level"):
        identity_of(Car(engine=Jet.Config()))


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize("name", ["target", "owner", "build"])
def test_a_name_that_components_need_is_no_setting(name: str) -> None:
    config = type("Config", (Engine.Config,), {"__annotations__": {name: float}, name: 0.5, "__module__": __name__})
    with pytest.raises(SettingError, match=f"`{__name__}.Jet` has a setting called `{name}`.*another name"):
        type("Jet", (Engine,), {"Config": config, "__module__": __name__})
