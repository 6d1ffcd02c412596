"""Spaces and sweep folders for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icalib.sweeps.folder import SweepFolder, SweepSettings
from icalib.sweeps.space import Space, load_space

GRID = '''"""Three values of λʰ."""

METHOD = "icast"
METRICS = {"F1": "maximize"}
NAME = "regime.rule.confidence_threshold"


def suggest(trial):
    return {NAME: trial.suggest_categorical(NAME, [0.1, 0.2, 0.3])}


def grid():
    return [{NAME: value} for value in (0.1, 0.2, 0.3)]
'''


def write_space(folder: Path, text: str = GRID, name: str = "idea") -> Space:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(text)
    return load_space(str(path))


def made_folder(path: Path, space: Space, **changes: Any) -> SweepFolder:
    folder = SweepFolder(path / "sweep-idea-pools-0.1")
    settings: dict[str, Any] = {
        "space": space.name,
        "space_digest": space.digest,
        "method": space.method,
        "data": Path("/pools"),
        "data_digest": "9a3f",
        "labelled": 0.1,
        "seeds": 1,
        "backbone": "minilm",
        "experiment": "test",
        "sampler": space.sampler,
        "metrics": dict(space.metrics),
        "pruner": space.pruner,
        "command": "icalib sweep idea",
    }
    folder.write_settings(SweepSettings(**{**settings, **changes}))
    return folder
