"""Checks of every node's software, GPUs, disk and token."""

from __future__ import annotations

import ipaddress
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import gettempdir

from icalib.core.check import Check, by_node, listed
from icalib.core.files import content_digest, file_digest
from icalib.distributed.doctor.nodes import Node

_PACKAGES = ("ray", "torch", "transformers", "deepspeed")
_GIB = 2**30
_MIN_DISK_BYTES, _WANTED_DISK_BYTES = 1 * _GIB, 10 * _GIB  # below these a run fails, or may fail
_TRY_GPUS = """
import torch
for index in range(torch.cuda.device_count()):
    assert float(torch.ones(64, device=f"cuda:{index}").sum()) == 64.0, f"GPU {index} computes wrong sums"
print(torch.cuda.device_count())
"""


@dataclass(frozen=True)
class Machine:
    """What a node's machine has.

    Args:
        versions: of Python and packages; icalib's is followed by a digest of its files.
        num_gpus: GPUs that torch computes on.
        gpu_error: why it computes on none, if that failed.
        disk_bytes: free space for temporary files, where Ray keeps its session, too.
        needs_token: whether its Ray was started to require a token.
    """

    versions: Mapping[str, str]
    num_gpus: int
    gpu_error: str
    disk_bytes: int
    needs_token: bool


def inspect_machine() -> Machine:
    """Inspect the machine of this process."""
    num_gpus, error = _usable_gpus()
    return Machine(
        versions=versions(),
        num_gpus=num_gpus,
        gpu_error=error,
        disk_bytes=shutil.disk_usage(gettempdir()).free,
        needs_token=os.environ.get("RAY_AUTH_MODE", "").lower() not in ("", "disabled"),
    )


def versions() -> dict[str, str]:
    """Return the versions here."""
    from icalib.core.version import __version__

    folder = Path(__file__).parents[2]
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".j2", ".yaml"))
    code = content_digest({str(path.relative_to(folder)): file_digest(path) for path in files})
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "icalib": f"{__version__} (files {code[:8]})",
    }


def _version(package: str) -> str:
    try:
        return version(package).partition("+")[0]  # torch appends the platform of its build
    except PackageNotFoundError:
        return "missing"


def _usable_gpus() -> tuple[int, str]:
    """Try every GPU in a new process, since Ray hides GPUs from a task that requests none."""
    if not (shutil.which("nvidia-smi") or shutil.which("rocm-smi") or Path("/proc/driver/nvidia").is_dir()):
        return 0, ""
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [sys.executable, "-c", _TRY_GPUS]
    tried = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if tried.returncode:
        return 0, (tried.stderr.strip().splitlines() or ["no message"])[-1]
    return int(tried.stdout), ""


def check_versions(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Check that versions agree; those that differ are named with their nodes."""
    packages = next(iter(found.values()))
    by_package = {name: {node: installed[name] for node, installed in found.items()} for name in packages}
    different = {name: values for name, values in by_package.items() if len(set(values.values())) > 1}
    if different:
        return Check(
            "versions",
            "fail",
            "; ".join(f"{name} is {by_node(values).replace('; ', ', ')}" for name, values in different.items()),
            "Use the same image on all nodes, or install with the same constraints file and restart Ray there. "
            "`icalib submit` uploads icalib's own code.",
        )
    return Check("versions", "ok", ", ".join(f"{name} {value}" for name, value in packages.items()))


def check_gpus(nodes: Sequence[Node], found: Mapping[str, Machine]) -> Check:
    """Check that torch computes on the GPUs that Ray counts."""
    wrong = {
        node.name: f"Ray counts {node.gpus}, torch uses {seen.num_gpus}"
        + (f" ({seen.gpu_error})" if seen.gpu_error else "")
        for node in nodes
        if (seen := found[node.name]).gpu_error or seen.num_gpus != node.gpus
    }
    if wrong:
        unusable = any(found[node.name].gpu_error or found[node.name].num_gpus < node.gpus for node in nodes)
        return Check(
            "GPUs",
            "fail" if unusable else "warn",
            by_node(wrong),
            "Install a torch that was built for the node's driver (nvidia-smi shows its CUDA version), pass the GPUs "
            "to the container (--gpus all), or start Ray there with the right --num-gpus.",
        )
    number = sum(node.gpus for node in nodes)
    return Check("GPUs", "ok", f"torch computes on all {number}" if number else "none; everything runs on CPUs")


def check_disk(found: Mapping[str, Machine]) -> Check:
    """Check that no node is short of space for temporary files."""
    free = {node: machine.disk_bytes for node, machine in found.items()}
    lowest = min(free.values())
    if lowest < _WANTED_DISK_BYTES:
        short = {node: f"{number / _GIB:.1f} GiB" for node, number in free.items() if number < _WANTED_DISK_BYTES}
        cure = "Free some space in the folder for temporary files (TMPDIR), where Ray keeps its session, too."
        return Check("disk", "fail" if lowest < _MIN_DISK_BYTES else "warn", f"only {by_node(short)}", cure)
    return Check("disk", "ok", f"at least {lowest / _GIB:.0f} GiB free")


def check_token(nodes: Sequence[Node], found: Mapping[str, Machine]) -> Check:
    """Check that the cluster requires a token: without one, anyone who can reach it can run code on it."""
    unprotected = [node for node in nodes if not found[node.name].needs_token]
    if not unprotected:
        return Check("token", "ok", "the cluster requires a token")
    is_local = all(ipaddress.ip_address(node.address).is_loopback for node in nodes)
    return Check(
        "token",
        "warn" if is_local else "fail",
        f"the cluster requires no token ({listed([node.name for node in unprotected])}): "
        + ("any user of this machine" if is_local else "anyone who can reach its ports")
        + " can run code on it",
        "Run `umask 077; ray get-auth-token --generate` on the head, copy the token to the nodes, and restart Ray "
        "everywhere with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.",
    )
