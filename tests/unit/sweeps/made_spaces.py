"""Spaces and sweep folders for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unit.reports.fake_sweeps import sweep_settings

from icalib.sweeps.folder import SweepFolder
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
    own = {"space": space.name, "space_digest": space.digest, "method": space.method, "sampler": space.sampler}
    own |= {"metrics": dict(space.metrics), "pruner": space.pruner, "seeds": 1, "limit": {}, "settings": {}}
    folder.write_settings(sweep_settings(**(own | changes)))
    return folder
