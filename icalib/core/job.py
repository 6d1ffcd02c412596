"""Jobs: what a stage computes, as a frozen value that knows its own identity.

`job.digest()` is derived from the job's fields, so that no cache key is written by hand and none can forget a field:

- a field counts by its value, also by a default one, which may change; settings within settings count field by field;
- an `Artifact` (another stage's file, a pool folder) counts by its digest, wherever it is stored;
- a field annotated with `ByContent` counts by what its value names, e.g. a backbone by its weights;
- a field annotated with `NOT_IN_DIGEST` does not count: it can't change the result.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, final

from pydantic import BaseModel

from icalib.core.component import ComponentConfig, Settings, Stored, edition, import_path, is_ours
from icalib.core.errors import SettingError
from icalib.core.events import Emit
from icalib.core.files import content_digest
from icalib.core.storage import pull

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@final
@dataclass(frozen=True)
class ByContent:
    """Marks a setting that counts by the digest of what it names, e.g. `Annotated[str, ByContent(backbone_digest)]`."""

    digest: Callable[[Any], str]


@final
class NotInDigest:
    """The class of `NOT_IN_DIGEST`."""


NOT_IN_DIGEST = NotInDigest()
"""Marks a field that can't change a job's result, e.g. `Annotated[int, NOT_IN_DIGEST]`."""


class Artifact(Settings):
    """A file or folder that a job reads, and the digest of what it holds."""

    path: Annotated[Stored, NOT_IN_DIGEST]
    digest: str


class Job(Settings):
    """Base of jobs: frozen settings from which a stage follows."""

    version: ClassVar[int] = 1
    """Raised when the same fields come to mean something else: cached stages of the earlier version are not reused."""

    def identity(self) -> dict[str, Any]:
        """The fields that decide the result, JSON-able; see the module's docstring."""
        return {"job": type(self).__name__, "version": self.version, **_fields(self)}

    def digest(self) -> str:
        """Digest of the identity, 16 hex digits."""
        return content_digest(self.identity())

    def artifacts(self) -> Iterator[Artifact]:
        """Everything that the job reads from files."""
        return _artifacts(self)

    def pull(self) -> None:
        """Copy what the job reads from an object store to this machine."""
        for artifact in self.artifacts():
            pull(artifact.path)

    def to_json(self) -> str:
        """The job as text that `read_job` understands on any machine."""
        return json.dumps({"class": [type(self).__module__, type(self).__qualname__], **self.model_dump(mode="json")})


class LocalJob(Job):
    """A job that the process of the run computes itself, since it takes little."""

    def compute(self, folder: Path, stage: str, emit: Emit) -> None:
        """Write the result to `folder`; `stage` is the stage's name, for progress events."""
        raise NotImplementedError


class ShardedJob(Job):
    """A job that is cut into shards, which any process can compute; each leaves one file, whole or not at all.

    A shard's result depends on the job and the shard alone; one thread computes it, so that it does not depend on the
    machine's number of cores.
    """

    verb: ClassVar[str]
    """What is done to a shard, for messages, e.g. "scoring"."""
    memory_advice: ClassVar[str] = ""  # what a user can do when a shard does not fit into memory

    @property
    def uses_models(self) -> bool:
        """Whether a GPU makes it faster."""
        return True

    @property
    def is_quick(self) -> bool:
        """Whether all shards together take a few seconds at most."""
        return False

    def shards(self) -> Sequence[Any]:
        """A description of each shard that `compute_shard` takes."""
        raise NotImplementedError

    def shard_path(self, folder: Path, index: int) -> Path:
        """The file whose presence says that a shard is complete."""
        raise NotImplementedError

    def shared_files(self, folder: Path, index: int) -> Sequence[Path]:
        """All files of a shard, `shard_path` last."""
        return [self.shard_path(folder, index)]

    def compute_shard(self, index: int, shard: Any, folder: Path, device: torch.device) -> None:
        """Compute a shard and write its files."""
        raise NotImplementedError

    def finish(self, folder: Path) -> None:
        """Write what sums up all shards, if anything does."""


_kept: dict[object, Any] = {}


def kept(key: object, load: Callable[[], T]) -> T:
    """Return what was loaded in this process for a key: shards share their models. Only the last one is kept."""
    if key not in _kept:
        _kept.clear()
        _kept[key] = load()
    return _kept[key]


def keep_nothing() -> None:
    """Release the memory of what is `kept`."""
    _kept.clear()


def read_job(text: str) -> Any:
    """A job that travelled as JSON."""
    fields = json.loads(text)
    module, name = fields.pop("class")
    found = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, Job)):
        raise SettingError(f"`{module}.{name}` is not a class of jobs.")
    return found.model_validate(fields)


def identity_of(value: Any) -> Any:
    """What a value contributes to a job's identity, JSON-able."""
    if isinstance(value, BaseModel):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(key): identity_of(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [identity_of(item) for item in value]
    if isinstance(value, Path):
        raise TypeError(f"a path ({value}) has no identity: make the field an Artifact, or annotate it")
    return value


def _fields(settings: BaseModel) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        named = [mark for mark in field.metadata if isinstance(mark, ByContent)]
        if NOT_IN_DIGEST not in field.metadata:
            kept[name] = named[0].digest(value) if named else identity_of(value)
    return {"target": _target(settings), **kept} if isinstance(settings, ComponentConfig) else kept


def _target(config: ComponentConfig) -> str:
    """A component's name: without its module, if it is ours, so that moving a file keeps cached results; else with its
    module and the digest of the module's file, so that an edit doesn't.
    """
    owner = config.owner
    return owner.__qualname__ if is_ours(owner) else f"{import_path(owner)}@{edition(owner)}"


def from_outside(value: Any) -> dict[str, str]:
    """Return the components from outside that a value has, with the digests of their files."""
    found: dict[str, str] = {}
    if isinstance(value, ComponentConfig) and not is_ours(value.owner):
        found[import_path(value.owner)] = edition(value.owner)
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            found |= from_outside(getattr(value, name))
    return found


def _artifacts(value: Any) -> Iterator[Artifact]:
    if isinstance(value, Artifact):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _artifacts(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _artifacts(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _artifacts(item)
