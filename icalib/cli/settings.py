"""From options to the settings of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from icalib.core.errors import SettingError
from icalib.core.storage import pull

if TYPE_CHECKING:
    from icalib.data.schema import Split
    from icalib.pipeline.run import RunSettings

C = TypeVar("C", bound=str)


def run_settings(
    name: str,
    data: Path,
    labelled: float | None,
    seed: int,
    limit: str | None,
    settings: list[str] | None,
    backbone: str | None,
    experiment: str,
    *,
    preset: str | None = None,
    own: Mapping[str, Any] | None = None,
    lenient: bool = False,
) -> RunSettings:
    """A run's settings from the options of a verb.

    Args:
        name: a method, or a variant of one such as pg-drr@head.kernel=matern.
        preset: one of the method's presets; it comes before the variant's settings, and those before --set.
        own: the variant's settings by dotted name; None reads them from its name.
        lenient: leave out --set and --preset of what the method doesn't have.

    Raises:
        SettingError: an option is missing or can't be.
    """
    from icalib.core.component import with_setting
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import RunSettings

    pool_set = read_pool_set(data)
    fraction = labelled if labelled is not None else pool_set.default_labelled_fraction
    if fraction is None:
        raise SettingError("--labelled is missing: say which share of the training pools is labelled, e.g. 0.1.")
    if not 0 < fraction <= 1:
        raise SettingError(f"--labelled {fraction} is no share; give a number above 0 and at most 1, e.g. 0.1.")
    base, _, variant = name.partition("@")
    method = changed(variant_of(name, preset, own, lenient=lenient), settings, lenient=lenient)
    if backbone:
        method = with_setting(method, "encoder.backbone", backbone)
    return RunSettings(
        method=base.rpartition(".")[2] + (f"@{variant}" if variant else ""),
        data=data.resolve(),
        labelled=fraction,
        seed=seed,
        limit=limits(limit),
        backbone=method.encoder.backbone,
        experiment=experiment,
        settings=method,
    )


def variant_of(name: str, preset: str | None, own: Mapping[str, Any] | None = None, *, lenient: bool = False) -> Any:
    """A method, or a variant of one, before --set; the arguments are those of `run_settings`."""
    from icalib.core.component import with_settings
    from icalib.methods.catalogue import load_method

    base, _, variant = name.partition("@")
    method = with_settings(load_method(base), preset_settings(base, preset, lenient=lenient))
    own = changes(variant.split(",") if variant else None) if own is None else own
    return with_settings(method, _in_full(method, own))


def from_config(path: Path) -> RunSettings:
    """The settings in a run's config.yaml."""
    from icalib.core.component import validated_file
    from icalib.core.run_folder import RUN_VERSION, read_config
    from icalib.pipeline.run import RunSettings

    pull(path)
    if not path.is_file():
        raise SettingError(f"no config at {path}; name a method or the config.yaml of a run.")
    fields = read_config(path)
    if fields.pop("version", None) != RUN_VERSION:
        raise SettingError(f"{path} is no config of run-folder version {RUN_VERSION}.")
    return validated_file(path, RunSettings, fields)


def preset_settings(name: str, preset: str | None, *, lenient: bool = False) -> dict[str, Any]:
    """The settings of a method's preset, by dotted name; `lenient` takes none where the method doesn't have it.

    Raises:
        SettingError: the method has no such preset.
    """
    from icalib.methods.catalogue import presets

    known = presets(name.partition("@")[0])
    if preset is None or (lenient and preset not in known):
        return {}
    if preset not in known:
        there = f"it has: {', '.join(known)}" if known else "it has none, so leave --preset out"
        raise SettingError(f"`{name}` has no preset `{preset}`; {there}.")
    return known[preset]


def check_preset(preset: str | None, names: Sequence[str]) -> None:
    """Refuse a preset that none of some methods has."""
    from icalib.methods.catalogue import presets

    known = sorted({known for name in names for known in presets(name.partition("@")[0])})
    if preset is not None and preset not in known:
        there = f"they have: {', '.join(known)}" if known else "they have none, so leave --preset out"
        raise SettingError(f"none of these methods has a preset `{preset}`; {there}.")


def changed(method: Any, settings: list[str] | None, *, lenient: bool = False) -> Any:
    """A method with --set options applied; a name's start may be left out where what is left is unique."""
    from icalib.core.component import with_settings

    wanted = _in_full(method, changes(settings))
    return with_settings(method, {path: wanted[path] for path in _fitting(method, wanted)} if lenient else wanted)


def _in_full(method: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    from icalib.core.component import full_path

    return {full_path(method, path): value for path, value in settings.items()}


def _fitting(method: Any, paths: Collection[str]) -> list[str]:
    """The paths that a method has, or gets by another of them: a component that is replaced brings its own."""
    from icalib.core.component import has_setting

    there = [path for path in paths if has_setting(method, path)]
    return [path for path in paths if path in there or any(path.startswith(f"{whole}.") for whole in there)]


def check_set(settings: list[str] | None, methods: Sequence[Any]) -> None:
    """Refuse a --set that fits none of some methods.

    Raises:
        SettingError: names it, and the setting that is most like it.
    """
    from difflib import get_close_matches

    from icalib.core.component import described, full_path

    paths = changes(settings)
    for path in paths:
        if not any(full_path(method, path) in _fitting(method, _in_full(method, paths)) for method in methods):
            near = get_close_matches(path, {name for method in methods for name, _, _ in described(method)}, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise SettingError(
                f"--set {path}: none of these methods has such a setting.{hint} `icalib show METHOD` lists a method's."
            )


def changes(settings: list[str] | None) -> dict[str, Any]:
    """--set options by dotted name."""
    import yaml

    found: dict[str, Any] = {}
    for setting in settings or []:
        path, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"--set {setting} has no value; write --set NAME=VALUE, e.g. --set regime.num_rounds=2.")
        found[path] = yaml.safe_load(text)
    return found


def limits(text: str | None) -> dict[Split, int]:
    """What --limit says of each split."""
    from icalib.data.schema import SPLITS

    if text is None:
        return {}
    parts: dict[str, str] = dict.fromkeys(SPLITS, text)
    if "=" in text:
        parts = {name.strip(): number for name, _, number in (part.partition("=") for part in text.split(","))}
    limits: dict[Split, int] = {name: int(parts[name]) for name in SPLITS if parts.get(name, "").strip().isdecimal()}
    if len(limits) != len(parts) or min(limits.values(), default=0) < 1:
        raise SettingError(f"--limit {text} can't be read; write a number above 0, or train=2000,test=400.")
    return limits


def choice(option: str, value: str, choices: Sequence[C]) -> C:
    """The choice that an option names."""
    for choice in choices:
        if choice == value:
            return choice
    raise SettingError(f"{option} {value} is unknown. Choose one of: {', '.join(choices)}.")


def required(data: Path | None) -> Path:
    """The pool folder, which this verb can't do without."""
    if data is None:
        raise SettingError("--data is missing: name the pool folder that `icalib prepare` made.")
    return data


def check(chosen: list[RunSettings]) -> None:
    """All faults show before the first run costs anything."""
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits

    for settings in chosen:
        check_fits(settings, read_pool_set(settings.data))


def with_tests(folders: list[Path]) -> list[Path]:
    """Pool folders to evaluate on; their results are kept by name."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise SettingError(f"two pool folders are called the same ({', '.join(names)}); rename one of them.")
    for folder in folders:
        has_pools(folder, "test")
    return folders


def has_pools(folder: Path, split: str) -> None:
    """Refuse a pool folder without pools of a split."""
    from icalib.data.pools import read_pool_set

    if not read_pool_set(folder).num_pools[split]:
        raise SettingError(f"{folder} has no {split} pools. Name another pool folder, or prepare it with such pools.")
