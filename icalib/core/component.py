"""Components and their settings.

A component is a class with a nested `Config` (pydantic, frozen, unknown keys refused). Settings live in the Config,
runtime objects go into `build(...)`. A saved Config names its component by import path and loads only as a subclass
of the base that the field expects, so that a file can never call anything else. People may write the short name
instead: `mc-dropout` for `MCDropout`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from icalib.core.combination import Combinable
from icalib.core.errors import ComponentError, RunFolderError, SettingError
from icalib.core.files import file_digest, is_file
from icalib.core.imports import failed, import_object
from icalib.core.storage import local_path, location
from icalib.core.text import did_you_mean, short_repr, shortened

S = TypeVar("S", bound=BaseModel)
_MAX_PROBLEMS = 10  # that one message names


class Settings(BaseModel):
    """Frozen settings; a key that doesn't exist is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


FINITE = ConfigDict(allow_inf_nan=False)
"""Refuses infinity and NaN in settings that users choose: a run's JSON has no such numbers, and can't be read again."""


def _local_text(value: Any) -> Any:
    return str(local_path(value)) if isinstance(value, str | Path) else value  # as text: JSON has no paths


Stored = Annotated[
    Path, BeforeValidator(_local_text), PlainSerializer(location, return_type=str, when_used="json-unless-none")
]  # A path in settings that may be in an object store; JSON has its location, which is valid on every machine


class ComponentConfig(Settings, Combinable):
    """Settings of a component; `build` makes the component."""

    model_config = FINITE

    owner: ClassVar[type[Component]]

    @model_serializer(mode="wrap")
    def _with_target(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"target": import_path(self.owner), **handler(self)}

    @model_validator(mode="wrap")
    @classmethod
    def _from_target(cls, value: Any, handler: Any) -> Any:
        if isinstance(value, str):
            value = {"target": value}
        if not isinstance(value, dict):
            return handler(value)
        if "target" not in value:
            if not _is_concrete(cls.owner):
                raise ValueError(f"`target` is missing: it names the {cls.owner.__name__} to use")
            return handler(value)
        fields = dict(value)
        owner = component_class(fields.pop("target"), cls.owner)
        fields = _over_defaults(owner.Config, fields)
        return handler(fields) if owner.Config is cls else owner.Config.model_validate(fields)

    def build(self, **runtime: Any) -> Any:
        """Make the component from these settings and runtime objects."""
        owner: Any = self.owner
        try:
            return owner(self, **runtime)
        except MemoryError:
            raise
        except Exception as error:
            if is_ours(owner):
                raise
            given = "".join(f", {name}=..." for name in runtime)
            raise failed(f"`{import_path(owner)}` can't be built by __init__(config{given})", error) from error


_NOT_SETTINGS = {"target", "owner", "build", "provides", "requires"}


class Component:
    """A swappable part; concrete subclasses are final and nest their own `Config`."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "Config" not in cls.__dict__:  # with the settings of its parent, which would else be built by them
            kind: Any = type(cls.Config)
            names = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Config"}
            cls.Config = kind("Config", (cls.Config,), names)
        if taken := sorted(_NOT_SETTINGS & cls.Config.model_fields.keys()):
            raise SettingError(
                f"`{import_path(cls)}` has a setting called `{taken[0]}`, a name that every component's Config needs "
                "for itself. Give the setting another name."
            )
        cls.Config.owner = cls
        cls._edition = _edition_now(cls)

    _edition: ClassVar[str] = ""


def import_path(owner: type[Component]) -> str:
    """Return the module and name by which a saved Config names its component."""
    return f"{owner.__module__}.{owner.__qualname__}"


def missing(component: Component, method: str) -> SettingError:
    """Return the error for a component from outside without a method that its base requires."""
    return SettingError(f"`{import_path(type(component))}` has no method `{method}`, which is required. Define it.")


def is_ours(owner: type[Component]) -> bool:
    """Return whether a component is part of icalib, rather than from outside."""
    return owner.__module__.startswith("icalib.")


def edition(owner: type[Component]) -> str:
    """Return the digest of the file that a class from outside was imported from, empty for ours.

    A SettingError says that there is no file, as in a notebook, where cached results of an earlier definition would be
    taken for this one's; that it was edited since: this process has the old code, and workers import the new one; or
    that no name leads to the class, as to one that a function defines.
    """
    if not is_ours(owner) and "." in owner.__qualname__:
        raise SettingError(
            f"`{import_path(owner)}` is defined inside a function or class, where nothing can import it by its name. "
            "Define it at the top level of its module."
        )
    if owner._edition != _edition_now(owner):  # pyright: ignore[reportPrivateUsage]
        raise SettingError(
            f"{sys.modules[owner.__module__].__file__} was edited after it was imported. Start this process again: its "
            "results would be of the earlier code."
        )
    if not is_ours(owner) and not owner._edition:  # pyright: ignore[reportPrivateUsage]
        raise SettingError(
            f"`{import_path(owner)}` is in no file, so that icalib can't see when it changes. Write it to a module (in "
            "a notebook by `%%writefile my_lab.py`) and name it by its import path."
        )
    return owner._edition  # pyright: ignore[reportPrivateUsage]


def _edition_now(owner: type[Component]) -> str:
    return "" if is_ours(owner) else module_digest(owner.__module__)


def module_digest(name: str) -> str:
    """Return the digest of the file that a module was imported from, empty if there is none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file_digest(file)[:16] if file is not None and is_file(Path(file)) else ""


def component_class(target: Any, base: type[Component]) -> type[Component]:
    """Return the component class with a short name, or at an import path; a SettingError if it isn't one of `base`."""
    if not isinstance(target, str):
        raise ComponentError(f"no component {short_repr(target)}; expected a name. {_choices(base)}")
    module, _, name = target.rpartition(".")
    found = import_object(module, name, "component") if module else components(base).get(target)
    if found is None:
        raise ComponentError(f"no {base.__name__} `{shortened(target)}`. {_choices(base)}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ComponentError(f"`{target}` is not a subclass of {base.__name__}, which this setting requires.")
    if not _is_concrete(found):
        raise ComponentError(f"`{target}` is abstract; name one of its subclasses, which are marked @final.")
    return found


def short_name(owner: type[Component]) -> str:
    """The class name in kebab case, an acronym being one word: mc-dropout for MCDropout."""
    return _kebab(owner.__name__)


def short_target(target: str) -> str:
    """What names the component class at an import path: for one of icalib's its short name, without importing it."""
    return _kebab(target.rpartition(".")[2]) if target.startswith("icalib.") else target


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def components(base: type[Component]) -> dict[str, type[Component]]:
    """The concrete components of a base, by short name: those of its own package, and those that are imported."""
    package = base.__module__.rpartition(".")[0]
    if package.startswith("icalib."):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
    return _concrete_classes(base)


def _concrete_classes(base: type[Component]) -> dict[str, type[Component]]:
    found = {short_name(base): base} if _is_concrete(base) else {}
    for subclass in base.__subclasses__():
        others = _concrete_classes(subclass)
        # a class from outside never takes the short name of one of ours
        found |= {name: it for name, it in others.items() if name not in found or is_ours(it)}
    return found


def _choices(base: type[Component]) -> str:
    return f"Available: {', '.join(sorted(components(base)))}; name any other by its import path."


def _is_concrete(owner: type[Component]) -> bool:
    return bool(getattr(owner, "__final__", False))


def with_settings(settings: S, changes: Mapping[str, Any]) -> S:
    """A copy of `settings` with dotted settings replaced, validated once; a SettingError names what is wrong."""
    nested: dict[str, Any] = {}
    # parts after wholes: a component that is replaced takes settings of its own, which the old one may lack
    for path, value in sorted(changes.items(), key=lambda change: change[0].count(".")):
        if not any(path.startswith(f"{whole}.") for whole in changes):
            _check_path(settings, path)
        place_value(nested, path.split("."), value)
    return validated(type(settings), _merged(settings, nested))


def has_setting(settings: BaseModel, path: str) -> bool:
    """Whether there is a setting at a dotted path."""
    return path in _paths(settings)


def _paths(settings: BaseModel, prefix: str = "") -> Iterator[str]:
    for name in type(settings).model_fields:
        yield f"{prefix}{name}"
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _paths(value, f"{prefix}{name}.")


def described(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """All settings, depth first: dotted path, value (of a component its name, before its settings), help."""
    for name, field in type(settings).model_fields.items():
        path, value = f"{prefix}{name}", getattr(settings, name)
        text = " ".join((field.description or "").split())
        if isinstance(value, ComponentConfig):
            yield path, short_name(value.owner), text
        if isinstance(value, BaseModel):
            yield from described(value, f"{path}.")
        else:
            yield path, value, text


def place_value(nested: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Put a value at a path; a component given by name alone makes room for its settings."""
    *parents, name = path
    for parent in parents:
        whole = nested.get(parent, {})
        if not isinstance(whole, str | Mapping):
            raise SettingError(
                f"`{parent}` is set to {whole!r}, so `{'.'.join(path)}` can't be set too. Set one of the two."
            )
        nested[parent] = {"target": whole} if isinstance(whole, str) else dict(whole)
        nested = nested[parent]
    nested[name] = value


def _check_path(settings: BaseModel, path: str) -> None:
    current: Any = settings
    for name in path.split("."):
        if not isinstance(current, BaseModel) or name not in type(current).model_fields:
            names = sorted(type(current).model_fields) if isinstance(current, BaseModel) else []
            there = f"; available: {', '.join(names)}" if names else ""
            raise SettingError(f"no setting `{path}`: `{name}` is unknown{there}.{did_you_mean(name, names)}")
        current = getattr(current, name)


def _merged(settings: BaseModel, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a dictionary with the changes laid over; components keep their class."""
    values = settings.model_dump(mode="python")
    for name, change in changes.items():
        current = getattr(settings, name, None)  # what is unknown is refused by validation
        if isinstance(current, BaseModel) and isinstance(change, Mapping) and "target" not in change:
            values[name] = _merged(current, change)
        else:
            values[name] = change
    return values


def _over_defaults(settings_class: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a part of a component's settings leaves out is as in the component's own default of that part."""
    whole = dict(values)
    for name, value in values.items():
        field = settings_class.model_fields.get(name)
        if field is not None and isinstance(field.default, BaseModel) and isinstance(value, Mapping):
            whole[name] = value if "target" in value else _merged(field.default, value)
    return whole


def validated(settings_class: type[S], values: Any) -> S:
    """Validate settings; pydantic's errors become one SettingError with all of them."""
    try:
        return settings_class.model_validate(values)
    except ValidationError as error:
        problems = [_described(problem, settings_class) for problem in error.errors()]
        more = len(problems) - _MAX_PROBLEMS
        raise SettingError(
            "; ".join(problems[:_MAX_PROBLEMS]) + (f"; and {more} more errors" if more > 0 else "")
        ) from error


def _described(problem: Any, settings_class: type[BaseModel]) -> str:
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        known = ", ".join(settings_class.model_fields)
        return f"`{shortened(str(problem['loc'][0]))}` is unknown; expected one of {known}"
    together = problem["type"] == "value_error" and isinstance(problem["input"], Mapping)
    found = "" if together else f", found {short_repr(problem['input'])}"
    where = f"{shortened('.'.join(map(str, problem['loc'])))}: " if problem["loc"] else ""
    return f"{where}{shortened(problem['msg'].removeprefix('Value error, '), 600)}{found}"


def validated_file(path: Path, settings_class: type[S], values: Any) -> S:
    """Validate settings that were read from a run folder's file; a RunFolderError names file and settings."""
    try:
        return validated(settings_class, values)
    except SettingError as error:
        raise RunFolderError(
            f"{path}: {str(error).rstrip('.')}. Correct that file, or run `icalib run` with --fresh to write it again."
        ) from error
