"""Create, resume or reject a run directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icalib.core.errors import DamagedFileError, RunFolderError, SettingError
from icalib.core.events import Emit, Message
from icalib.core.files import is_unused
from icalib.core.job import from_outside
from icalib.core.run_folder import RunFolder
from icalib.core.storage import is_mirrored, push, remove
from icalib.data.pools import read_pool_set

if TYPE_CHECKING:
    from icalib.pipeline.config import RunConfig

_CURE = "Use --fresh to replace it, or another --experiment to keep both."


def claim(folder: RunFolder, config: RunConfig) -> bool:
    """Write the config of a new run, or check that the folder's is the same; return whether it is finished."""
    wanted = config.model_dump(mode="json")
    if not is_started(folder, config):
        folder.write_config(wanted)
        push(folder.path / "config.yaml")  # without it, what an interrupted upload leaves in a store isn't a run's
    elif folder.config.get("data") != wanted["data"]:
        _follow(folder, wanted)
    return folder.is_finished


def _follow(folder: RunFolder, wanted: dict[str, Any]) -> None:
    """Record where a run's pools are now, which have been moved or copied."""
    is_whole = folder.is_finished and not list(folder.damages(checkpoints=not is_mirrored(folder.path)))
    folder.write_config(wanted)
    if is_whole:
        folder.finish({**folder.result, "data": wanted["data"]})
    push(folder.path)


def is_started(folder: RunFolder, config: RunConfig) -> bool:
    """Return whether a folder has this run, finished or not.

    A SettingError says that it has a run with other settings or pools, or a finished one of a component that was
    edited since, a RunFolderError that it has another version or no run.
    """
    if (folder.path / "config.yaml").is_file():
        folder.check_version()
        found = {name: value for name, value in folder.config.items() if name != "version"}
        different = sorted(differences(found, config.model_dump(mode="json")))
        is_of_other_pools = _is_of_other_pools(folder, config)
        if different and (different != ["data"] or is_of_other_pools is not False):
            raise SettingError(f"{folder.path} has a run with other settings ({', '.join(different[:5])}). {_CURE}")
        if is_of_other_pools:
            raise SettingError(
                f"{folder.path} has a run on other pools: {config.data} was prepared again since. {_CURE}"
            )
        if folder.is_finished and (edited := _edited(folder, config)):
            raise SettingError(
                f"{folder.path} has a run of earlier code: the file of {', '.join(edited)} was edited since. {_CURE}"
            )
        return True
    if not is_unused(folder.path):
        raise RunFolderError(f"{folder.path} exists and is not a run folder. Choose another --experiment or remove it.")
    return False


def _is_of_other_pools(folder: RunFolder, config: RunConfig) -> bool | None:
    """Whether a run's pools were others than now; None if that isn't known, since the record is written again."""
    if (folder.path / "provenance.json").is_file():
        with suppress(DamagedFileError):
            return folder.data_digest != read_pool_set(config.data).digest
    return None


def _edited(folder: RunFolder, config: RunConfig) -> list[str]:
    """The components from outside whose files were others in the run."""
    with suppress(DamagedFileError):
        before = folder.from_outside
        return [name for name, digest in from_outside(config).items() if before.get(name, digest) != digest]
    return []


def repair(folder: RunFolder, config: RunConfig, emit: Emit) -> bool:
    """Make a finished run that was damaged unfinished again; return whether it was damaged."""
    damages = list(folder.damages(checkpoints=not is_mirrored(folder.path)))  # a store's models are not downloaded
    if not damages:
        return False
    remove(folder.path / "result.json")
    for damage in damages:
        emit(Message(f"{damage.path} {damage.found}: writing it again from the cached stages"))
        remove(Path(damage.path))
    folder.write_config(config.model_dump(mode="json"))
    return True


def differences(found: Any, wanted: Any, path: str = "") -> set[str]:
    """Return the dotted names of the settings that differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {
            name
            for key in found.keys() | wanted.keys()
            for name in differences(found.get(key), wanted.get(key), f"{path}.{key}".lstrip("."))
        }
    return set() if found == wanted else {path}
