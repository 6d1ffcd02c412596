"""Write cluster/requirements.lock: what icalib needs from PyPI, in the versions of constraints.txt, with SHA-256.

    make lock

uv resolves for Linux and the image's version of Python. torch and what only it needs (NVIDIA's libraries) are left out:
they come from PyTorch's index, in the build that a machine needs, and other builds are other files.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "cluster/requirements.lock"
EXTRAS = ("minilm", "serve", "external")
_FROM_PYTORCH = re.compile(r"torch|triton|(nvidia|cuda)-.*")
_HEAD = """\
# What the image installs from PyPI, without torch and what only torch needs. `make lock` writes this file.
#   pip install --no-deps --require-hashes --requirement cluster/requirements.lock
"""


def main() -> None:
    """Resolve, leave out what is PyTorch's, and write."""
    entries = re.split(r"^(?=\S)", resolved(), flags=re.MULTILINE)
    kept = [entry for entry in entries if entry and not _FROM_PYTORCH.fullmatch(entry.partition("==")[0])]
    LOCK.write_text(_HEAD + "".join(kept))
    print(f"{LOCK}: {len(kept)} packages")


def resolved() -> str:
    """Return uv's list: a line for each package, each followed by the hashes of its files."""
    (version,) = re.findall(r"^ARG PYTHON_VERSION=(\S+)$", (ROOT / "cluster/Dockerfile").read_text(), re.MULTILINE)
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--no-header", "--no-annotate"),
        *("--constraints", "constraints.txt", "--generate-hashes"),
        *("--python-version", version, "--python-platform", "x86_64-manylinux_2_28"),
        *(word for extra in EXTRAS for word in ("--extra", extra)),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
