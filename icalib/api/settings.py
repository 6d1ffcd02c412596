"""From options to the settings of runs, and what is checked before anything is computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icalib.core.errors import SettingError
from icalib.core.storage import pull

if TYPE_CHECKING:
    from icalib.api.options import RunTemplate
    from icalib.methods.method import Method
    from icalib.pipeline.config import RunConfig


def run_settings(
    name: str, template: RunTemplate, seed: int = 1, *, own: Mapping[str, Any] | None = None, lenient: bool = False
) -> RunConfig:
    """Return a run's settings, or raise a SettingError if an option is missing or invalid.

    `name` is a method, or a variant of one such as pg-drr@head.kernel=matern; `own` has the variant's settings where
    its name isn't to be read. The template's preset comes before these, and they before the template's settings.
    `lenient` leaves out presets and settings that the method doesn't have.
    """
    from icalib.core.component import validated, with_settings
    from icalib.methods.catalogue import label

    base, _, variant = name.partition("@")
    fraction = labelled_fraction(template)
    method = composed(name, template.preset, template.settings, own=own, lenient=lenient)
    from icalib.pipeline.config import RunConfig  # it imports torch: after what can be checked without

    if template.backbone:
        method = with_settings(method, {"encoder.backbone": template.backbone})
    values = {
        "method": label(base) + (f"@{variant}" if variant else ""),
        "data": template.data.resolve(),
        "labelled": fraction,
        "seed": seed,
        "limit": dict(template.limit),
        "backbone": method.encoder.backbone,
        "experiment": template.experiment,
        "resample_labels": template.resample_labels,
        "settings": method,
    }
    return validated(RunConfig, values)


def labelled_fraction(template: RunTemplate) -> float:
    """Return the template's labelled fraction, or the pool folder's; a SettingError if there is neither."""
    from icalib.data.pools import read_pool_set

    pool_set = read_pool_set(template.data)
    fraction = template.labelled if template.labelled is not None else pool_set.default_labelled_fraction
    if fraction is None:
        raise SettingError(
            "`labelled` is missing: which fraction of the training pools is labelled? For example `--labelled 0.1`."
        )
    return checked_fraction(fraction)


def checked_fraction(fraction: float) -> float:
    """Return a labelled fraction, or raise a SettingError if it is out of its range."""
    if not isinstance(fraction, Real) or not 0 < fraction <= 1:
        raise SettingError(f"`labelled` is {fraction!r}: expected a fraction above 0 and at most 1, e.g. 0.1.")
    return fraction


def composed(
    name: str,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    own: Mapping[str, Any] | None = None,
    lenient: bool = False,
) -> Method:
    """Return a method with a preset, then its variant's settings, then others; arguments as for `run_settings`."""
    from icalib.core.component import with_settings
    from icalib.methods.catalogue import load_method

    base, _, variant = name.partition("@")
    method = with_settings(load_method(base), preset_settings(base, preset, lenient=lenient))
    own = parsed_settings(variant.split(",") if variant else ()) if own is None else own
    method, wanted = with_settings(method, own), settings or {}
    if lenient:
        return with_settings(method, {path: wanted[path] for path in _fitting(method, wanted)})
    method = with_settings(method, wanted)
    for path in wanted:
        if why := method.why_unused(path):
            raise SettingError(f"`{path}` has no effect on `{name}`, as {why}. Leave it out.")
    return method


def parsed_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings by dotted name from NAME=VALUE, values as in YAML; a SettingError if one is invalid."""
    from icalib.core.text import shortened
    from icalib.core.yaml_text import parse_yaml

    found: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise SettingError(
                f"--set {shortened(text)} has no value; write --set NAME=VALUE, e.g. --set regime.num_rounds=2."
            )
        try:
            found[path] = parse_yaml(value)
        except ValueError as error:
            raise SettingError(
                f"--set {shortened(text)} has a value that is not valid YAML: {error}. Correct it; text with special "
                "characters goes in quotes, e.g. --set 'NAME=\"a: b\"'."
            ) from error
    return found


def from_config(path: Path) -> RunConfig:
    """Return the settings in a run's config.yaml."""
    from icalib.core.files import is_file
    from icalib.core.run_folder import RUN_VERSION, read_config
    from icalib.pipeline.config import RunConfig

    pull(path)
    if not is_file(path):
        raise SettingError(f"no config at {path}; name a method or the config.yaml of a run.")
    fields = read_config(path)
    if fields.get("version") != RUN_VERSION:
        raise SettingError(f"{path} is not a config of run-folder version {RUN_VERSION}.")
    return RunConfig.recorded(path, fields)


def preset_settings(name: str, preset: str | None, *, lenient: bool = False) -> dict[str, Any]:
    """Return the settings of a preset of a method, or of a variant of one, by dotted name; None changes nothing.

    A SettingError says that the method has no such preset. If `lenient`, it then keeps its own settings, unless the
    preset is a paper's and the method is trained: beside a paper's rows, it would stand under the paper's name.
    """
    from icalib.methods.catalogue import is_of_paper, load_method, presets

    base = name.partition("@")[0]
    known = presets(base)
    if preset is None:
        return {}
    if preset not in known:
        if lenient and not (is_of_paper(preset) and load_method(base).regime.trains):
            return {}
        available = f"it has: {', '.join(known)}" if known else "it has none, so leave `preset` out"
        raise SettingError(f"`{name}` has no preset `{preset}`; {available}.")
    return known[preset]


def check_preset(preset: str | None, names: Sequence[str]) -> None:
    """Refuse a preset that none of some methods has."""
    from icalib.methods.catalogue import presets

    known = sorted({known for name in names for known in presets(name.partition("@")[0])})
    if preset is not None and preset not in known:
        available = f"they have: {', '.join(known)}" if known else "they have none, so leave `preset` out"
        raise SettingError(f"none of these methods has a preset `{preset}`; {available}.")


def _fitting(method: Any, paths: Collection[str]) -> list[str]:
    """Return the paths that a method has, or gets by another of them: a component that is replaced brings its own."""
    from icalib.core.component import has_setting

    existing = [path for path in paths if has_setting(method, path)]
    if not method.regime.trains and method.domain_pretraining is None:  # a baseline that shows the plain backbone
        existing = [path for path in existing if not path.startswith("domain_pretraining")]
    return [path for path in paths if path in existing or any(path.startswith(f"{whole}.") for whole in existing)]


def check_settings(settings: Mapping[str, Any], methods: Sequence[Any]) -> None:
    """Refuse a setting that fits none of some methods; the error names the setting that is most like it."""
    from icalib.core.component import described
    from icalib.core.text import did_you_mean

    for path in settings:
        if not any(path in _fitting(method, settings) and not method.why_unused(path) for method in methods):
            names = {name for method in methods for name, _, _ in described(method) if not method.why_unused(name)}
            raise SettingError(
                f"`{path}`: none of these methods reads such a setting.{did_you_mean(path, names)} "
                "`icalib show METHOD` lists a method's."
            )


def check(chosen: Sequence[RunConfig], runs: Path, *, fresh: bool = False) -> None:
    """Report all errors before an executor starts, which takes seconds, and before the first run costs anything.

    A SettingError says that a method doesn't fit its data or that a folder has a run with other settings, a
    RunFolderError that a folder was written by another version or isn't a run folder.
    """
    from icalib.data.pools import read_pool_set
    from icalib.pipeline.run import check_fits, check_free

    for config in chosen:
        check_fits(config, read_pool_set(config.data))
    if not fresh:
        for config in chosen:
            check_free(config, runs.resolve())


def comparison_settings(methods: Sequence[str], template: RunTemplate, seeds: int) -> list[RunConfig]:
    """Return the runs of a comparison; the untrained methods are added, with one seed."""
    from icalib.methods.catalogue import EXTERNAL, module_path

    if not isinstance(seeds, Integral) or seeds < 1:
        raise SettingError(f"`seeds` is {seeds!r}; expected a whole number above 0.")
    given: Any = methods
    if isinstance(given, str) or not isinstance(given, Collection):
        example = given if isinstance(given, str) else "bert"
        raise SettingError(f"`methods` is {given!r}: expected a list, e.g. [{example!r}].")
    for name in methods:  # what is seen to be wrong without importing torch comes first
        if not name.startswith(EXTERNAL):
            module_path(name.partition("@")[0])
    labelled_fraction(template)
    check_preset(template.preset, methods)
    names = list(dict.fromkeys([*UNTRAINED, *methods]))
    runs = [run_settings(name, template, lenient=True) for name in names]
    check_settings(template.settings, [config.settings for config in runs])
    return [
        config.model_copy(update={"seed": seed})
        for seed in range(1, seeds + 1)
        for config in runs
        if seed == 1 or config.settings.regime.trains
    ]


def curve_settings(
    methods: Sequence[str], template: RunTemplate, fractions: Sequence[float], seeds: int
) -> tuple[list[RunConfig], dict[float, list[RunConfig]]]:
    """Return the runs of a label curve: those of untrained methods, and the others by labelled fraction, ascending."""
    if isinstance(fractions, str | Real):
        raise SettingError(f"`fractions` is {fractions!r}: expected a list, e.g. [{fractions}].")
    fractions = list(fractions)
    if not fractions:
        raise SettingError("a label curve needs at least one labelled fraction, e.g. 0.01 and 0.1.")
    untrained: list[RunConfig] = []
    by_fraction: dict[float, list[RunConfig]] = {}
    for fraction in sorted({checked_fraction(fraction) for fraction in fractions}):
        runs = comparison_settings(methods, replace(template, labelled=fraction), seeds)
        untrained = untrained or [config for config in runs if not config.settings.regime.trains]
        by_fraction[fraction] = [config for config in runs if config.settings.regime.trains]
        if not by_fraction[fraction]:
            raise SettingError(
                f"found no method that learns from labels in {', '.join(methods)}; expected one or more, e.g. bert."
            )
    return untrained, by_fraction


UNTRAINED = ("bm25", "bi-encoder", "candidates-only")
"""Methods that are part of every comparison; without labels to train on, every seed gives the same numbers."""


def with_test_pools(folders: Sequence[Path]) -> list[Path]:
    """Return pool folders to evaluate on; their results are stored by name."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise SettingError(f"two pool folders have the same name ({', '.join(names)}); rename one of them.")
    for folder in folders:
        check_has_pools(folder, "test")
    return list(folders)


def check_has_pools(folder: Path, split: str) -> None:
    """Refuse a pool folder without pools of a split."""
    from icalib.data.pools import read_pool_set

    if not read_pool_set(folder).num_pools[split]:
        raise SettingError(f"{folder} has no {split} pools. Name another pool folder, or prepare it with such pools.")
