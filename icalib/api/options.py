"""What the functions of the API take besides their first arguments: as keywords, and as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from icalib.core.errors import SettingError
from icalib.core.files import FOLDER_NAME
from icalib.core.storage import local_path
from icalib.core.text import did_you_mean

if TYPE_CHECKING:
    from icalib.data.schema import Split

C = TypeVar("C", bound=str)

ExecutorName = Literal["ray", "local"]
"""`ray`: Ray and DeepSpeed, on this machine or a cluster. `local`: this process."""
EXECUTORS: tuple[ExecutorName, ...] = ("ray", "local")


class PlaceKeywords(TypedDict, total=False):
    """Where and how to compute; none of it changes a number."""

    runs: str | Path
    """Where run folders and the stage cache are stored: a folder or e.g. s3://bucket/runs; default: runs."""
    workers: int | None
    """Training workers; default: one per GPU, or one on this machine's CPU cores."""
    address: str | None
    """Address of a Ray cluster; default: this machine."""
    executor: ExecutorName
    """ray (default) or local."""
    track: Sequence[str]
    """Trackers that also get runs: mlflow, wandb; default: none."""


class RunKeywords(PlaceKeywords, total=False):
    """What run, compare and sweep have in common besides data and labels."""

    limit: int | Mapping[Split, int] | None
    """Maximum number of pools of each split, or of some: {"train": 2000, "test": 400}."""
    settings: Mapping[str, Any] | None
    """Settings to change, by dotted name; `icalib show METHOD` lists them."""
    preset: str | None
    """Settings that belong together, applied before `settings`."""
    backbone: str | None
    """Encoder: minilm (embedded), a folder or its URI, or a hub name."""
    resample_labels: bool
    """Let each seed draw its own labelled pools; default: all seeds have the same ones."""
    experiment: str
    """Folder under `runs` that groups runs; default: default."""
    fresh: bool
    """Recompute everything from scratch instead of resuming and reusing."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how to compute; the fields are those of `PlaceKeywords`."""

    runs: Path = Path("runs")
    workers: int | None = None
    address: str | None = None
    executor: ExecutorName = "ray"
    track: Sequence[str] = ()

    def __post_init__(self) -> None:
        choice("executor", self.executor, EXECUTORS)
        if isinstance(self.track, str):
            raise SettingError(f"`track` is {self.track!r}: expected a list, e.g. [{self.track!r}].")
        for name in ("address", "workers"):
            if self.executor == "local" and (found := getattr(self, name)) not in (None, "", 1):
                raise SettingError(
                    f"the local executor works in this process; found {name} {found}. Leave `{name}` out, or use the "
                    "ray executor."
                )

    @classmethod
    def of(cls, keywords: PlaceKeywords, *, known: type = PlaceKeywords) -> Place:
        """Read keywords of a kind, a TypedDict that may have more than these, or raise a SettingError."""
        return cls(**_given(cls, keywords, known))


@dataclass(frozen=True, kw_only=True)
class RunTemplate(Place):
    """What runs of several methods and seeds have in common: data, labelled fraction and those of `RunKeywords`."""

    data: Path
    labelled: float | None = None
    limit: Mapping[Split, int] = field(default_factory=dict[Any, int])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    preset: str | None = None
    backbone: str | None = None
    resample_labels: bool = False
    experiment: str = "default"
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.search(FOLDER_NAME, str(self.experiment)):
            raise SettingError(
                f"`experiment` is {self.experiment!r}, which is not a valid folder name: use letters, digits, '_', '-' "
                "and '.', e.g. first-try. `runs` says where the folder is stored."
            )
        preset: Any = self.preset
        if not isinstance(preset, str | None):
            raise SettingError(f"`preset` is {preset!r}: expected a name, e.g. 'bi-encoder'.")

    @classmethod
    def of(
        cls,
        keywords: PlaceKeywords,
        data: str | Path | None = None,
        labelled: float | None = None,
        *,
        known: type = RunKeywords,
    ) -> RunTemplate:
        """Read keywords of a kind, a TypedDict that may have more than these, or raise a SettingError."""
        if data is None:
            raise SettingError("`data` is missing: name the pool folder that `icalib prepare` made.")
        given = _given(cls, keywords, known)
        given |= {"data": local_path(data), "labelled": labelled, "limit": limits(given.get("limit"))}
        if not isinstance(given.get("settings", {}), Mapping):
            raise SettingError(f"`settings` is {given['settings']!r}: expected values by name, {{'loss.gamma': 2}}.")
        given["settings"] = {_present_name(path): value for path, value in given.get("settings", {}).items()}
        return cls(**given)


def changed(keywords: PlaceKeywords, **others: Any) -> list[str]:
    """Return the names of `others` that aren't None, and of keywords that change a run's numbers or its folder."""
    unchanged = vars(RunTemplate(data=Path()))
    given = {name: value for name, value in keywords.items() if name not in (*vars(Place()), "fresh")}
    chosen = [name for name, value in given.items() if value not in (None, unchanged[name])]
    return [*(name for name, value in others.items() if value is not None), *chosen]


def _present_name(path: str) -> str:
    """Return a setting's present name: `post_training` is accepted until version 0.3."""
    whole, dot, part = path.partition(".")
    return f"domain_pretraining{dot}{part}" if whole == "post_training" else path


def _given(cls: type, keywords: Mapping[str, Any], known: type) -> dict[str, Any]:
    """Return those keywords that are fields of a dataclass and not None; Python lets `**` have any others, too."""
    names = known.__annotations__
    for name in keywords:
        if name not in names:
            hint = did_you_mean(name, names)
            raise SettingError(f"found the unknown argument `{name}`.{hint} There are also {', '.join(names)}.")
    given = {one.name: keywords[one.name] for one in fields(cls) if keywords.get(one.name) is not None}
    return {**given, "runs": local_path(given.get("runs", "runs"))}


def limits(limit: int | Mapping[Split, int] | None) -> Mapping[Split, int]:
    """Return the maximum number of pools by split, or raise a SettingError for an unknown split or a number below 1."""
    from icalib.data.schema import SPLITS

    if limit is None:
        return {}
    by_split: Mapping[Split, int] = limit if isinstance(limit, Mapping) else dict.fromkeys(SPLITS, limit)
    if unknown := sorted(set(by_split) - set(SPLITS)):
        raise SettingError(f"`limit` names the unknown split {unknown[0]}. Choose from: {', '.join(SPLITS)}.")
    if not all(isinstance(number, Integral) and number > 0 for number in by_split.values()):
        raise SettingError(f"`limit` is {limit!r}: expected numbers above 0.")
    return {split: int(number) for split, number in by_split.items()}


def choice(option: str, value: str, choices: Sequence[C]) -> C:
    """Return the choice that an option names, or raise a SettingError if there is none."""
    for known in choices:
        if known == value:
            return known
    raise SettingError(f"`{option}` is {value}. Choose one of: {', '.join(choices)}.")
