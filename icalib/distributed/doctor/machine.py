"""Checks of every node's software, GPUs, memory, disk and clock."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import gettempdir

from icalib.core.check import Check, alike, by_node, listed
from icalib.core.files import content_digest, file_digest
from icalib.distributed.doctor.nodes import Answers, Node, ask, refusal

_PACKAGES = ("ray", "torch", "transformers", "deepspeed")
_HERE = "this process"
_GIB = 2**30
_MIN_FREE_BYTES = {"memory": (1 * _GIB, 3 * _GIB), "disk": (1 * _GIB, 10 * _GIB), "/dev/shm": (64 * 2**20, 1 * _GIB)}
"""Free bytes below which a run fails, and below which it may fail."""
_SPACE_CURES = {
    "memory": "Stop other processes on these nodes, or use nodes with more memory.",
    "disk": "Free some space in the folder for temporary files (TMPDIR), where Ray keeps its session, too.",
    "/dev/shm": "Give the container more shared memory (docker run --shm-size=8g; an emptyDir of medium Memory).",
}
_CLOCK_WARN_S, _CLOCK_FAIL_S = 2.0, 300.0


def check_versions(nodes: Sequence[Node]) -> tuple[Check, Answers[dict[str, str]]]:
    """Check that all nodes have the same software as this process; also return their answers."""
    answers = ask(nodes, versions)
    return judge_versions({_HERE: versions(), **answers.given}), answers


def versions() -> dict[str, str]:
    """Return the versions on this node; icalib's is followed by a digest of its files."""
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


def judge_versions(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Return the check that versions agree; it names those that differ, with their nodes."""
    packages = next(iter(found.values()))
    by_package = {name: {node: installed[name] for node, installed in found.items()} for name in packages}
    different = {name: values for name, values in by_package.items() if len(alike(values)) > 1}
    if different:
        return Check(
            "versions",
            "fail",
            "; ".join(f"{name} is {by_node(values).replace('; ', ', ')}" for name, values in different.items()),
            "Use the same image on all nodes, or install with the same constraints file and restart Ray there. "
            "`icalib submit` uploads icalib's own code.",
        )
    return Check("versions", "ok", ", ".join(f"{name} {value}" for name, value in packages.items()))


@dataclass(frozen=True)
class Gpus:
    """The GPUs that torch can use on a node.

    Args:
        number: how many work.
        name: name of the first.
        bf16: whether all of them compute in bfloat16.
        error: message of CUDA or torch if they can't be used.
    """

    number: int
    name: str = ""
    bf16: bool = False
    error: str = ""


def check_gpus(nodes: Sequence[Node]) -> Check:
    """Check that torch can use the GPUs that Ray counts."""
    answers = ask(nodes, gpus)
    return refusal("GPUs", answers, "See the message.") or judge_gpus(nodes, answers.given)


def gpus() -> Gpus:
    """Test every GPU of this machine in a new process, since Ray hides GPUs from a task that requests none."""
    if not (shutil.which("nvidia-smi") or shutil.which("rocm-smi") or Path("/proc/driver/nvidia").is_dir()):
        return Gpus(0)
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    tried = subprocess.run(
        [sys.executable, "-c", "from icalib.distributed.doctor.machine import print_gpus; print_gpus()"],
        env={name: value for name, value in os.environ.items() if name not in hidden},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if tried.returncode:
        return Gpus(0, error=(tried.stderr.strip().splitlines() or ["no message"])[-1])
    return Gpus(**json.loads(tried.stdout))


def print_gpus() -> None:
    """Multiply small matrices on every GPU, in bfloat16 if supported, and print what was found as JSON."""
    import torch

    number = torch.cuda.device_count()
    bf16 = number > 0 and torch.cuda.is_bf16_supported(including_emulation=False)
    for index in range(number):
        ones = torch.ones(64, 64, device=f"cuda:{index}", dtype=torch.bfloat16 if bf16 else torch.float32)
        if float((ones @ ones)[0, 0]) != 64.0:
            raise SystemExit(f"GPU {index} returned a wrong matrix product")
    name = torch.cuda.get_device_name(0) if number else ""
    print(json.dumps({"number": number, "name": name, "bf16": bf16}))


def judge_gpus(nodes: Sequence[Node], found: Mapping[str, Gpus]) -> Check:
    """Return the check that Ray counts the GPUs that torch can use."""
    pairs = [(node, found[node.name]) for node in nodes]
    broken = {node.name: _differs(node, seen) for node, seen in pairs if seen.error or seen.number < node.gpus}
    if broken:
        return Check(
            "GPUs",
            "fail",
            by_node(broken),
            "Install a torch that was built for the node's driver (nvidia-smi shows its CUDA version), pass the GPUs "
            "to the container (--gpus all), or start Ray there with the right --num-gpus.",
        )
    unused = {node.name: _differs(node, seen) for node, seen in pairs if seen.number > node.gpus}
    if unused:
        return Check(
            "GPUs",
            "warn",
            by_node(unused),
            "Start Ray there with --num-gpus, unless others use them.",
        )
    if not any(node.gpus for node in nodes):
        return Check("GPUs", "ok", "none; everything runs on CPUs")
    text = by_node({node.name: f"{seen.number} × {seen.name}" for node, seen in pairs if seen.number})
    if not all(seen.bf16 for _, seen in pairs if seen.number):
        return Check("GPUs", "warn", f"{text}, without bfloat16", "No action needed; training in fp32 is slower.")
    return Check("GPUs", "ok", f"{text}, bfloat16")


def _differs(node: Node, seen: Gpus) -> str:
    return f"Ray counts {node.gpus}, torch uses {seen.number}{f' ({seen.error})' if seen.error else ''}"


def check_free_space(nodes: Sequence[Node]) -> Check:
    """Check that memory and disk have enough free space."""
    answers = ask(nodes, free_bytes)
    return refusal("memory and disk", answers, "See the message.") or judge_free_space(answers.given)


def free_bytes() -> dict[str, int]:
    """Return the free memory, disk space for temporary files, and shared memory, in bytes."""
    import psutil

    free = {"memory": psutil.virtual_memory().available, "disk": shutil.disk_usage(gettempdir()).free}
    shared = Path("/dev/shm")
    return {**free, str(shared): shutil.disk_usage(shared).free} if shared.is_dir() else free


def judge_free_space(found: Mapping[str, Mapping[str, int]]) -> Check:
    """Return the check that no node is short of space."""
    short: dict[str, str] = {}
    fails, cures = False, dict[str, str]()
    for node, free in found.items():
        for kind, number in free.items():
            minimum, recommended = _MIN_FREE_BYTES[kind]
            if number < recommended:
                short[node] = f"{short[node]} and " if node in short else ""
                short[node] += f"{number / _GIB:.1f} GiB of {kind}"
                fails, cures[kind] = fails or number < minimum, _SPACE_CURES[kind]
    if short:
        return Check("memory and disk", "fail" if fails else "warn", f"only {by_node(short)}", " ".join(cures.values()))
    kinds = list(dict.fromkeys(kind for free in found.values() for kind in free))
    lowest = {kind: min(free.get(kind, 2**62) for free in found.values()) / _GIB for kind in kinds}
    text = ", ".join(f"{number:.0f} GiB of {kind}" for kind, number in lowest.items())
    return Check("memory and disk", "ok", f"at least {text} free")


def check_clocks(nodes: Sequence[Node]) -> Check:
    """Check that the nodes' clocks agree with this one."""
    before = time.time()
    answers = ask(nodes, now)
    after = time.time()
    deviations = {name: _min_deviation(remote, before, after) for name, remote in answers.given.items()}
    return refusal("clocks", answers, "See the message.") or judge_clocks(deviations)


def now() -> float:
    """Return the seconds since the epoch by this node's clock."""
    return time.time()


def _min_deviation(remote: float, before: float, after: float) -> float:
    """Return the minimum deviation, in seconds, of a clock that was read between two readings of this one."""
    return max(before - remote, remote - after, 0.0)


def judge_clocks(deviations: Mapping[str, float]) -> Check:
    """Return the check that no clock deviates by too many seconds."""
    worst = max(deviations.values(), default=0.0)
    if worst < _CLOCK_WARN_S:
        return Check("clocks", "ok", "in agreement")
    wrong = [node for node, seconds in deviations.items() if seconds >= _CLOCK_WARN_S]
    return Check(
        "clocks",
        "fail" if worst >= _CLOCK_FAIL_S else "warn",
        f"up to {worst:.0f} s off on {listed(wrong)}",
        "Synchronise the clocks with a time server (chrony, systemd-timesyncd): object stores refuse requests with a "
        "wrong time, and the newer of two files is found by their times.",
    )
