"""Print the bill of materials of the Python environment that runs it, as CycloneDX 1.6 JSON.

    python cluster/sbom.py > sbom.cdx.json

The image's is /opt/icalib/sbom.cdx.json. It lists Python packages with their versions, licences and dependencies, not
the packages of the operating system.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, distributions
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "icalib"
_LONGEST_LICENCE = 100


def bill_of_materials() -> dict[str, Any]:
    """Return the bill of the environment, with packages in the order of their names."""
    found = {canonicalize_name(one.metadata["Name"]): one for one in reversed(list(distributions()))}
    components = {name: _component(name, found[name]) for name in sorted(found)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**components[ROOT], "type": "application"}},
        "components": [component for name, component in components.items() if name != ROOT],
        "dependencies": [
            {
                "ref": component["bom-ref"],
                "dependsOn": [components[other]["bom-ref"] for other in _required(found[name]) if other in components],
            }
            for name, component in components.items()
        ],
    }


def _component(name: str, distribution: Distribution) -> dict[str, Any]:
    reference = f"pkg:pypi/{name}@{quote(distribution.version)}"
    component = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": distribution.version,
        "purl": reference,
    }
    licences = _licences(distribution)
    return {**component, "licenses": licences} if licences else component


def _licences(distribution: Distribution) -> list[dict[str, Any]]:
    facts = distribution.metadata
    if expression := facts.get("License-Expression"):
        return [{"expression": expression}]
    classified = [line.rpartition(" :: ")[2] for line in facts.get_all("Classifier", []) if line.startswith("License")]
    written = facts.get("License", "").strip()
    is_name = written and len(written) <= _LONGEST_LICENCE and "\n" not in written
    return [{"license": {"name": name}} for name in classified or ([written] if is_name else [])]


def _required(distribution: Distribution) -> list[str]:
    """Return what a distribution needs without extras, by name."""
    requirements = map(Requirement, distribution.requires or ())
    needed = [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return sorted(set(map(canonicalize_name, needed)))


if __name__ == "__main__":
    json.dump(bill_of_materials(), sys.stdout, indent=1)
