"""The cluster folder as tests see it: strict YAML, the pinned versions, what looks like a secret."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "cluster"
LAUNCHERS = [CLUSTER / f"{name}.yaml" for name in ("aws", "gcp", "on_premise")]
KUBERAY = sorted((CLUSTER / "kuberay").glob("*.yaml"))
SCRIPTS = [CLUSTER / "local.sh", *sorted((CLUSTER / "slurm").glob("*.sbatch"))]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NO_TELEMETRY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/"}

_SECRET = re.compile(
    r"-----BEGIN|\bAKIA[0-9A-Z]{16}\b|\b[0-9a-fA-F]{32,}\b"
    r"|(?i:(?:auth_?token|password|secret)\w*)[ \"']*[:=][ \"']*(?![\"'$(])[A-Za-z0-9+/_-]{16,}"
)


class _NoDuplicates(yaml.SafeLoader):
    """YAML as PyYAML reads it, but for keys given twice, of which it keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(problem=f"given twice: {twice}", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def documents(text: str) -> list[dict[str, Any]]:
    """All documents of a YAML text.

    Raises:
        yaml.YAMLError: a key is given twice, or it is no YAML.
    """
    return list(yaml.load_all(text, _NoDuplicates))


def pin(package: str) -> str:
    """The version of a package in constraints.txt."""
    (version,) = re.findall(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    return version


def secrets(text: str) -> list[str]:
    """What looks like a key, a token or a password."""
    return [found[0] for found in _SECRET.finditer(text)]
