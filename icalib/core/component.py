"""Components and their settings.

A component is a class with a nested `Config` (pydantic, frozen, unknown keys refused). Settings live in the Config,
runtime objects go into `build(...)`. A saved Config names its component by import path and loads only as a subclass
of the base that the field expects, so that a file can never call anything else.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from icalib.core.errors import SettingError

S = TypeVar("S", bound=BaseModel)


class Settings(BaseModel):
    """Frozen settings; a key that doesn't exist is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ComponentConfig(Settings):
    """Settings of a component; `build` makes the component."""

    owner: ClassVar[type[Component]]

    @model_serializer(mode="wrap")
    def _with_target(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"target": f"{self.owner.__module__}.{self.owner.__qualname__}", **handler(self)}

    @model_validator(mode="wrap")
    @classmethod
    def _from_target(cls, value: Any, handler: Any) -> Any:
        if not isinstance(value, dict):
            return handler(value)
        if "target" not in value:
            if not _is_concrete(cls.owner):
                raise ValueError(f"`target` is missing: it names the {cls.owner.__name__} to use by import path")
            return handler(value)
        fields = dict(value)
        owner = component_class(fields.pop("target"), cls.owner)
        return handler(fields) if owner.Config is cls else owner.Config.model_validate(fields)

    def build(self, **runtime: Any) -> Any:
        """Make the component from these settings and runtime objects."""
        owner: Any = self.owner
        return owner(self, **runtime)


class Component:
    """A swappable part; concrete subclasses are final and nest their own `Config`."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Tell the nested Config whose it is."""
        super().__init_subclass__(**kwargs)
        if "Config" in cls.__dict__:
            cls.Config.owner = cls


def component_class(path: str, base: type[Component]) -> type[Component]:
    """The component class at an import path.

    Raises:
        SettingError: nothing is there, or it is no subclass of `base`.
    """
    try:
        module_name, _, name = path.rpartition(".")
        found: Any = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise SettingError(f"no component `{path}`: {error}. Check the `target` line in the config.") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise SettingError(f"`{path}` is no {base.__name__}; this setting takes only subclasses of it.")
    if not _is_concrete(found):
        raise SettingError(f"`{path}` is abstract; name one of its subclasses, which are marked @final.")
    return found


def _is_concrete(owner: type[Component]) -> bool:
    return bool(getattr(owner, "__final__", False))


def with_settings(settings: S, changes: Mapping[str, Any]) -> S:
    """A copy of `settings` with some dotted settings replaced; everything is validated again, once.

    Raises:
        SettingError: no such setting (those that exist are named), or a value out of its range.
    """
    nested: dict[str, Any] = {}
    for path, value in changes.items():
        _check_path(settings, path)
        *parents, name = path.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return validated(type(settings), _merged(settings, nested))


def with_setting(settings: S, path: str, value: Any) -> S:
    """A copy of `settings` with one dotted setting replaced."""
    return with_settings(settings, {path: value})


def has_setting(settings: BaseModel, path: str) -> bool:
    """Whether there is a setting at a dotted path."""
    try:
        _check_path(settings, path)
    except SettingError:
        return False
    return True


def described(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """All settings, depth first: dotted path, value, help."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            kind = f"[{value.owner.__qualname__}] " if isinstance(value, ComponentConfig) else ""
            yield from (
                (path, inner, f"{kind if place == 0 else ''}{text}")
                for place, (path, inner, text) in enumerate(described(value, f"{prefix}{name}."))
            )
        else:
            yield f"{prefix}{name}", value, " ".join((field.description or "").split())


def _check_path(settings: BaseModel, path: str) -> None:
    current: Any = settings
    for name in path.split("."):
        if not isinstance(current, BaseModel) or name not in type(current).model_fields:
            names = sorted(type(current).model_fields) if isinstance(current, BaseModel) else []
            near = get_close_matches(name, names, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            there = f"; there are: {', '.join(names)}" if names else ""
            raise SettingError(f"no setting `{path}`: `{name}` is unknown{there}.{hint}")
        current = getattr(current, name)


def _merged(settings: BaseModel, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a dictionary with the changes laid over; components keep their class."""
    values = settings.model_dump(mode="python")
    for name, change in changes.items():
        current = getattr(settings, name)
        if isinstance(current, BaseModel) and isinstance(change, Mapping) and "target" not in change:
            values[name] = _merged(current, change)
        else:
            values[name] = change
    return values


def validated(settings_class: type[S], values: Any) -> S:
    """Validate settings; pydantic's complaints become one SettingError with a line for each.

    Raises:
        SettingError: what is wrong, setting by setting.
    """
    try:
        return settings_class.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, problem['loc'])) or 'settings'}: {problem['msg']}, found {problem['input']!r}"
            if problem["loc"]
            else problem["msg"].removeprefix("Value error, ")
            for problem in error.errors()
        ]
        raise SettingError("; ".join(lines)) from error
