"""What a node is: its software, GPUs, memory, disk and clock."""

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
_LEAST_BYTES = {"memory": (1 * _GIB, 3 * _GIB), "disk": (1 * _GIB, 10 * _GIB), "/dev/shm": (64 * 2**20, 1 * _GIB)}
"""Free bytes below which a run fails, and below which it may."""
_ROOM_CURES = {
    "memory": "End what else runs there, or take nodes with more.",
    "disk": "Free some space where temporary files go (TMPDIR), which is where Ray keeps its session, too.",
    "/dev/shm": "Give the container more shared memory (docker run --shm-size=8g; an emptyDir of medium Memory).",
}
_CLOCK_WARN_S, _CLOCK_FAIL_S = 2.0, 300.0


def check_versions(nodes: Sequence[Node]) -> tuple[Check, Answers[dict[str, str]]]:
    """Whether all nodes have the software of this process; and who answered at all."""
    answers = ask(nodes, versions)
    return judge_versions({_HERE: versions(), **answers.given}), answers


def versions() -> dict[str, str]:
    """Versions here; icalib's is followed by a digest of its files."""
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
        return version(package).partition("+")[0]  # torch says after it what it was built for
    except PackageNotFoundError:
        return "missing"


def judge_versions(found: Mapping[str, Mapping[str, str]]) -> Check:
    """Alike, or which differ where."""
    packages = next(iter(found.values()))
    by_package = {name: {node: has[name] for node, has in found.items()} for name in packages}
    different = {name: values for name, values in by_package.items() if len(alike(values)) > 1}
    if different:
        return Check(
            "versions",
            "fail",
            "; ".join(f"{name} is {by_node(values).replace('; ', ', ')}" for name, values in different.items()),
            "Give all nodes the same image, or install with the same constraints file there and restart their Ray. "
            "`icalib submit` brings icalib's own code along.",
        )
    return Check("versions", "ok", ", ".join(f"{name} {value}" for name, value in packages.items()))


@dataclass(frozen=True)
class Gpus:
    """The GPUs that torch uses on a node.

    Args:
        number: how many multiply matrices.
        name: of the first.
        bf16: whether all compute in bfloat16.
        fault: what CUDA complained of.
    """

    number: int
    name: str = ""
    bf16: bool = False
    fault: str = ""


def check_gpus(nodes: Sequence[Node]) -> Check:
    """Whether torch can use the GPUs that Ray counts."""
    answers = ask(nodes, gpus)
    return refusal("GPUs", answers, "See the message.") or judge_gpus(nodes, answers.given)


def gpus() -> Gpus:
    """Try every GPU of this machine, in a process of its own: Ray hides them from a task that asks for none."""
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
        return Gpus(0, fault=(tried.stderr.strip().splitlines() or ["no message"])[-1])
    return Gpus(**json.loads(tried.stdout))


def print_gpus() -> None:
    """A small product on every GPU, in bfloat16 where it has that; then the facts as JSON."""
    import torch

    number = torch.cuda.device_count()
    bf16 = number > 0 and torch.cuda.is_bf16_supported(including_emulation=False)
    for place in range(number):
        ones = torch.ones(64, 64, device=f"cuda:{place}", dtype=torch.bfloat16 if bf16 else torch.float32)
        if float((ones @ ones)[0, 0]) != 64.0:
            raise SystemExit(f"GPU {place} can't multiply")
    name = torch.cuda.get_device_name(0) if number else ""
    print(json.dumps({"number": number, "name": name, "bf16": bf16}))


def judge_gpus(nodes: Sequence[Node], found: Mapping[str, Gpus]) -> Check:
    """Ray's count against torch's."""
    pairs = [(node, found[node.name]) for node in nodes]
    broken = {node.name: _differs(node, seen) for node, seen in pairs if seen.fault or seen.number < node.gpus}
    if broken:
        return Check(
            "GPUs",
            "fail",
            by_node(broken),
            "Install a torch that was built for the node's driver (nvidia-smi names the CUDA version), pass the GPUs "
            "to the container (--gpus all), or start Ray there with the right --num-gpus.",
        )
    unused = {node.name: _differs(node, seen) for node, seen in pairs if seen.number > node.gpus}
    if unused:
        return Check("GPUs", "warn", by_node(unused), "Start Ray there with --num-gpus, unless others use them.")
    if not any(node.gpus for node in nodes):
        return Check("GPUs", "ok", "none, all runs on CPUs")
    text = by_node({node.name: f"{seen.number} × {seen.name}" for node, seen in pairs if seen.number})
    if not all(seen.bf16 for _, seen in pairs if seen.number):
        return Check("GPUs", "warn", f"{text}, without bfloat16", "Nothing must be done; training in fp32 is slower.")
    return Check("GPUs", "ok", f"{text}, bfloat16")


def _differs(node: Node, seen: Gpus) -> str:
    return f"Ray counts {node.gpus}, torch uses {seen.number}{f' ({seen.fault})' if seen.fault else ''}"


def check_room(nodes: Sequence[Node]) -> Check:
    """Whether memory and disk leave some room."""
    answers = ask(nodes, free_bytes)
    return refusal("memory and disk", answers, "See the message.") or judge_room(answers.given)


def free_bytes() -> dict[str, int]:
    """Free memory, disk for temporary files, and shared memory, in bytes."""
    import psutil

    free = {"memory": psutil.virtual_memory().available, "disk": shutil.disk_usage(gettempdir()).free}
    shared = Path("/dev/shm")
    return {**free, str(shared): shutil.disk_usage(shared).free} if shared.is_dir() else free


def judge_room(found: Mapping[str, Mapping[str, int]]) -> Check:
    """The least of all nodes."""
    short: dict[str, str] = {}
    fails, cures = False, dict[str, str]()
    for node, free in found.items():
        for kind, number in free.items():
            least, enough = _LEAST_BYTES[kind]
            if number < enough:
                short[node] = f"{short[node]} and " if node in short else ""
                short[node] += f"{number / _GIB:.1f} GiB of {kind}"
                fails, cures[kind] = fails or number < least, _ROOM_CURES[kind]
    if short:
        return Check("memory and disk", "fail" if fails else "warn", f"only {by_node(short)}", " ".join(cures.values()))
    kinds = list(dict.fromkeys(kind for free in found.values() for kind in free))
    least_of = {kind: min(free.get(kind, 2**62) for free in found.values()) / _GIB for kind in kinds}
    text = ", ".join(f"{number:.0f} GiB of {kind}" for kind, number in least_of.items())
    return Check("memory and disk", "ok", f"at least {text} free")


def check_clocks(nodes: Sequence[Node]) -> Check:
    """Whether the nodes' clocks agree with this one."""
    before = time.time()
    answers = ask(nodes, now)
    after = time.time()
    ahead = {name: _outside(there, before, after) for name, there in answers.given.items()}
    return refusal("clocks", answers, "See the message.") or judge_clocks(ahead)


def now() -> float:
    """Seconds since the epoch, by this node's clock."""
    return time.time()


def _outside(there: float, before: float, after: float) -> float:
    """Seconds that a clock is off for sure, when it was read between two readings of ours."""
    return max(before - there, there - after, 0.0)


def judge_clocks(off: Mapping[str, float]) -> Check:
    """The worst clock."""
    worst = max(off.values(), default=0.0)
    if worst < _CLOCK_WARN_S:
        return Check("clocks", "ok", "alike")
    wrong = [node for node, seconds in off.items() if seconds >= _CLOCK_WARN_S]
    return Check(
        "clocks",
        "fail" if worst >= _CLOCK_FAIL_S else "warn",
        f"up to {worst:.0f} s off on {listed(wrong)}",
        "Let them follow a time server (chrony, systemd-timesyncd): object stores refuse wrong clocks, and time tells "
        "which of two files is newer.",
    )
