"""Jobs on a cluster, by Ray's job client: submitted once, followed, listed and stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from icalib.core.cluster_job import ClusterJob, JobFile, JobState
from icalib.core.errors import ClusterError, SettingError
from icalib.distributed.session import DRIVER_CPUS

if TYPE_CHECKING:
    from ray.job_submission import JobDetails

Outcome: TypeAlias = Literal["submitted", "running", "finished"]

_INSTALLED = Path(__file__).resolve().parents[2]  # a checkout, or where pip puts packages
_PACKAGES = ("icalib", "tune_spaces")
_NO_CODE = (
    *(".?*", "node_modules", "site-packages", "/env", "/venv*", "/runs", "/pools", "/checkpoints", "/build", "/dist"),
    *("/mlruns", "/wandb"),
    *("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.onnx", "*.gguf", "*.h5", "*.pkl", "*.npy", "*.npz"),
    *("*.parquet", "*.arrow", "*.feather", "*.jsonl", "*.csv", "*.tsv", "*.db", "*.sqlite", "*.journal", "*.whl"),
    *("*.gz", "*.bz2", "*.xz", "*.zst", "*.zip", "*.tar", "*.tgz", "*.7z", "*.so", "*.pyc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*.env", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    *("token", "*token.txt", "*.token", "*_token", "*-token", "*kubeconfig*", "*credentials*.json"),
    *("credentials", "service*account*.json", "secrets.json", "secrets.toml", "*secret*.y*ml", "*api_key*"),
    "!*.js.gz",  # the reports' plot library
)
"""What Ray leaves out of the code that it uploads, as lines of a .gitignore, besides what git ignores: hidden files,
data, weights, runs, and what is named as keys, tokens and other secrets often are."""
_PYTHON = "python -m "  # puts the working directory, where the code is unpacked, first on the path
_API_ADDRESS = "RAY_API_SERVER_ADDRESS"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")  # it becomes a part of a URL
_POLL_S = 1.0
_DELAY_S = 20.0
_WORK = "icalib_work"  # key in a job's metadata: digest of what it computes


class JobServer:
    """The job server on the head of a cluster.

    `address` is its dashboard's URL; default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or the cluster on this machine.
    """

    def __init__(self, address: str | None = None) -> None:
        _prepare_environment(address)
        from ray.job_submission import JobSubmissionClient

        for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
            logging.getLogger(name).setLevel(logging.ERROR)
        with _explained_errors(address or os.environ.get(_API_ADDRESS) or os.environ.get("RAY_ADDRESS")):
            self._client = JobSubmissionClient(address)
        self.address: str = self._client.get_address()

    @property
    def is_exposed(self) -> bool:
        """Whether token and logs are sent over a network unencrypted."""
        parts = urlsplit(self.address)
        return parts.scheme == "http" and parts.hostname not in _LOOPBACK

    def jobs(self) -> list[ClusterJob]:
        """Return all jobs that were submitted to the cluster since it started, oldest first."""
        with _explained_errors(self.address):
            found = self._client.list_jobs()
        return sorted((_job(details) for details in found if details.submission_id), key=lambda job: job.started)

    def job(self, job_id: str) -> ClusterJob:
        """Return a job with its current state; a SettingError if the cluster has none of that id."""
        with self._errors_about(job_id):
            return _job(self._client.get_job_info(job_id))

    def logs(self, job_id: str) -> str:
        """Return what a job has printed so far."""
        with self._errors_about(job_id):
            return self._client.get_job_logs(job_id)

    def stop(self, job_id: str) -> bool:
        """Stop a job, a pending one as soon as it starts; return False if it was over already."""
        with self._errors_about(job_id):
            return self._client.stop_job(job_id)

    def submit(
        self, job: JobFile, command: list[str], folder: Path, *, again: bool = False
    ) -> tuple[ClusterJob, Outcome]:
        """Submit a job with the code of the project around `folder`, unless it is in progress or done.

        `command` are the words of the icalib command; `again` submits a job that has succeeded or is pending once more.
        """
        missing = [name for name in job.pass_environment if name not in os.environ]
        if missing:
            raise SettingError(
                f"`pass_environment` names variables that are not set here: {', '.join(missing)}. Set them, or remove "
                "them from `pass_environment`."
            )
        environment = {**job.environment, **{name: os.environ[name] for name in job.pass_environment}}
        same = [other for other in self.jobs() if other.work == job.work]
        last = same[-1] if same else None
        if last and not last.is_over and not (again and last.state == "pending"):
            return last, "running"
        if last and last.state == "succeeded" and not again:
            return last, "finished"
        job_id = "-".join([job.title, job.work, *([str(len(same) + 1)] if same else [])])
        with _explained_errors(self.address):
            self._client.submit_job(
                entrypoint=_PYTHON + shlex.join(command),
                submission_id=job_id,
                runtime_env={
                    **uploaded_code(folder),
                    "env_vars": {**environment, DRIVER_CPUS: str(job.resources.num_cpus)},
                },
                metadata={_WORK: job.work},
                entrypoint_num_cpus=job.resources.num_cpus,
                entrypoint_num_gpus=job.resources.num_gpus,
                entrypoint_memory=int(job.resources.memory),
                entrypoint_resources=dict(job.resources.custom),
            )
        return self.job(job_id), "submitted"

    def follow(
        self,
        job_id: str,
        on_line: Callable[[str], None],
        on_state: Callable[[ClusterJob], None],
        on_delay: Callable[[], None],
    ) -> ClusterJob:
        """Stream a job's log from its start until it is over, and return it in its final state.

        `on_state` receives the job as it is now, when it starts and when it ends; `on_delay` is called once if it
        doesn't start for a while.
        """
        job = self.job(job_id)
        on_state(job)
        if job.state == "pending":
            delayed = time.monotonic() + _DELAY_S
            while (job := self.job(job_id)).state == "pending":
                if time.monotonic() > delayed:
                    on_delay()
                    delayed = float("inf")
                time.sleep(_POLL_S)
            on_state(job)
        with self._errors_about(job_id):
            asyncio.run(self._tail(job_id, on_line))
        while not (ended := self.job(job_id)).is_over:
            time.sleep(_POLL_S)
        if not job.is_over:
            on_state(ended)
        return ended

    async def _tail(self, job_id: str, on_line: Callable[[str], None]) -> None:
        rest = ""
        async for chunk in self._client.tail_job_logs(job_id):
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                on_line(line)
        if rest:
            on_line(rest)

    @contextmanager
    def _errors_about(self, job_id: str) -> Generator[None, None, None]:
        if not _ID.fullmatch(job_id):
            raise SettingError(
                f"`{job_id}` is not a valid job id: expected letters, digits, '_', '-' and '.'. "
                "`icalib jobs` lists the ids."
            )
        with _explained_errors(self.address, job_id):
            yield


def uploaded_code(folder: Path) -> dict[str, Any]:
    """Return the part of a runtime environment that has Ray upload code.

    That is the project around `folder`, and icalib and tune_spaces as installed here where it isn't their checkout.
    """
    above = (folder.resolve(), *folder.resolve().parents)
    project = next((each for each in above if (each / "pyproject.toml").is_file()), None)
    packages = [] if project == _INSTALLED else [str(_INSTALLED / name) for name in _PACKAGES]
    return {
        "excludes": list(_NO_CODE),
        **({"working_dir": str(project)} if project else {}),
        **({"py_modules": packages} if packages else {}),
    }


def _prepare_environment(address: str | None) -> None:
    if address is not None:
        try:
            parts = urlsplit(address)
        except ValueError:  # e.g. half of an IPv6 address
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            shown = re.sub("//.*@", "//", address)  # without a password
            raise SettingError(
                f"--address {shown} is not the address of a job server. Expected the URL of the head's dashboard, "
                "e.g. http://127.0.0.1:8265."
            )
        os.environ[_API_ADDRESS] = address  # takes precedence over the argument in Ray's client
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # without it Ray's client ignores the token
    found = os.environ.get(_API_ADDRESS) or os.environ.get("RAY_ADDRESS")
    if not found or found.startswith(_LOOPBACK):
        # Without this Ray replaces 127.0.0.1 by another address and misses a cluster that listens on loopback.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _job(details: JobDetails) -> ClusterJob:
    return ClusterJob(
        id=details.submission_id or "",
        command=details.entrypoint.removeprefix(_PYTHON),
        work=(details.metadata or {}).get(_WORK, ""),
        state=cast("JobState", details.status.value.lower()),
        started=(details.start_time or 0) / 1000,
        ended=details.end_time / 1000 if details.end_time else None,
        message=details.message or "",
        exit_code=details.driver_exit_code,
    )


@contextmanager
def _explained_errors(address: str | None, job_id: str = "") -> Generator[None, None, None]:
    import aiohttp
    import requests
    from ray.exceptions import AuthenticationError, RayError

    where = address or "the cluster on this machine"
    try:
        yield
    except AuthenticationError as error:
        raise ClusterError(
            f"{where} requires a token, and none or another was sent: {' '.join(str(error).split())} Copy the "
            "head's token file to this machine (readable only by you), set RAY_AUTH_TOKEN_PATH to it, and run the same "
            "command again."
        ) from error
    except (ConnectionError, RayError, requests.RequestException, aiohttp.ClientError) as error:
        if not address:
            raise ClusterError(
                "no Ray cluster is running on this machine. Start one with `cluster/local.sh up`, or pass the address "
                "of another: --address http://HEAD:8265."
            ) from error
        raise ClusterError(
            f"no job server answers at {address}. Check host and port of the head's dashboard. If it listens on the "
            "head's loopback only, open a tunnel (`ssh -L 8265:127.0.0.1:8265 HEAD`) and use http://127.0.0.1:8265."
        ) from error
    except (RuntimeError, ValueError) as error:
        text = str(error)
        if job_id and "does not exist" in text:
            raise SettingError(f"{where} has no job {job_id}. `icalib jobs` lists its jobs.") from error
        if "WebSocket" in text:
            raise ClusterError(
                f"the connection to {where} broke. The job continues as long as its nodes run; `icalib jobs logs "
                f"{job_id} --follow` rejoins it."
            ) from error
        if "status code 413" in text or "exceeds the maximum size" in text:  # of an upload: 100 MiB
            text = "the project's code is too large. Move what isn't code out of it, or have git ignore it."
        raise ClusterError(f"{where} refused the request: {text}") from error
