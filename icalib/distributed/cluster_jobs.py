"""Jobs on a cluster, through its head's job server: submitted, found again, followed, stopped."""

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
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, final
from urllib.parse import urlsplit

from icalib.core.cluster_job import ClusterJob, JobState
from icalib.core.errors import ClusterError, SettingError
from icalib.core.job_file import JobFile
from icalib.distributed.session import DRIVER_CPUS
from icalib.distributed.upload import Upload, pack

if TYPE_CHECKING:
    from ray.job_submission import JobDetails

Outcome: TypeAlias = Literal["submitted", "running", "finished"]

_PYTHON = "python -m "  # the folder it runs in, the unpacked code, comes first on its path
_API_ADDRESS = "RAY_API_SERVER_ADDRESS"
_TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_POLL_S = 1.0
_WORK = "icalib_work"  # a job's metadata: digest of what it computes


@final
class JobServer:
    """The job server of a cluster's head.

    Ray's client sends the token of RAY_AUTH_TOKEN or of the file RAY_AUTH_TOKEN_PATH; with RAY_AUTH_MODE=token alone
    that of ~/.ray/auth_token.

    Args:
        address: http://HOST:PORT of the head's dashboard, or https; without one that of RAY_API_SERVER_ADDRESS or
            RAY_ADDRESS, else that of the cluster that runs on this machine.

    Raises:
        SettingError: the address is none.
        ClusterError: nobody answers there, or the token is missing or wrong.
    """

    def __init__(self, address: str | None = None) -> None:
        if address is not None:
            _check_address(address)
            os.environ[_API_ADDRESS] = address  # which Ray's client prefers to its argument
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if _TOKENS & os.environ.keys():
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # else Ray's client doesn't look at them
        found = address or os.environ.get(_API_ADDRESS) or os.environ.get("RAY_ADDRESS")
        if not found or found.startswith(_LOOPBACK):
            # A cluster that listens on loopback is found by this alone; Ray turns 127.0.0.1 into another address else.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        from ray.job_submission import JobSubmissionClient

        for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
            logging.getLogger(name).setLevel(logging.ERROR)
        with _faults_told(found):
            self._client = JobSubmissionClient(address)
        self.address: str = self._client.get_address()

    @property
    def is_exposed(self) -> bool:
        """Whether token and logs travel unencrypted over a network."""
        parts = urlsplit(self.address)
        return parts.scheme == "http" and parts.hostname not in _LOOPBACK

    def jobs(self) -> list[ClusterJob]:
        """All jobs that were submitted to the cluster since it started, oldest first."""
        with _faults_told(self.address):
            found = self._client.list_jobs()
        return sorted((_job(details) for details in found if details.submission_id), key=lambda job: job.started)

    def job(self, job_id: str) -> ClusterJob:
        """A job as it stands now.

        Raises:
            SettingError: the id is none, or unknown here.
        """
        with self._about(job_id):
            return _job(self._client.get_job_info(job_id))

    def logs(self, job_id: str) -> str:
        """What a job has printed so far."""
        with self._about(job_id):
            return self._client.get_job_logs(job_id)

    def stop(self, job_id: str) -> bool:
        """Ask a job to end; False if it was over already. One that waits for room ends once it has got some."""
        with self._about(job_id):
            return self._client.stop_job(job_id)

    def submit(
        self,
        job: JobFile,
        command: list[str],
        folder: Path,
        on_upload: Callable[[Upload], None],
        *,
        again: bool = False,
    ) -> tuple[ClusterJob, Outcome]:
        """Submit a job, unless the same work is under way or done.

        Args:
            job: what the job file says.
            command: the words of the icalib command.
            folder: the code of the project around it travels.
            on_upload: hears what is uploaded.
            again: submit it anew although it has succeeded, or still waits for room.

        Returns:
            The job, new or found, and whether it was submitted, is running, or had finished.

        Raises:
            SettingError: the code is too large, or a variable that should be passed on isn't set.
            ClusterError: the cluster refuses.
        """
        environment = {**job.environment, **_passed(job.pass_environment)}
        same = [other for other in self.jobs() if other.work == job.work]
        waits = bool(same) and same[-1].state == "pending"
        if same and not same[-1].is_over and not (again and waits):
            return same[-1], "running"
        if same and same[-1].state == "succeeded" and not again:
            return same[-1], "finished"
        job_id = "-".join([job.title, job.work, *([str(len(same) + 1)] if same else [])])
        try:
            self._submit(job_id, job, command, environment, folder, on_upload)
        except ClusterError:
            # Somebody else submitted the same at the same moment, and an id is given once.
            if not any(other.id == job_id for other in self.jobs()):
                raise
            return self.job(job_id), "running"
        return self.job(job_id), "submitted"

    def _submit(
        self,
        job_id: str,
        job: JobFile,
        command: list[str],
        environment: dict[str, str],
        folder: Path,
        on_upload: Callable[[Upload], None],
    ) -> None:
        with TemporaryDirectory(prefix="icalib-") as temporary:
            upload = pack(folder, Path(temporary) / "code.zip")
            on_upload(upload)
            with _faults_told(self.address):
                self._client.submit_job(
                    entrypoint=_PYTHON + shlex.join(command),
                    submission_id=job_id,
                    runtime_env={
                        "working_dir": str(upload.path),
                        "env_vars": {**environment, DRIVER_CPUS: str(job.resources.num_cpus)},
                    },
                    metadata={_WORK: job.work},
                    entrypoint_num_cpus=job.resources.num_cpus,
                    entrypoint_num_gpus=job.resources.num_gpus,
                    entrypoint_memory=int(job.resources.memory),
                    entrypoint_resources=dict(job.resources.custom),
                )

    def follow(self, job_id: str, on_line: Callable[[str], None], on_state: Callable[[ClusterJob], None]) -> ClusterJob:
        """Hand on a job's log line by line, from its start, until the job is over.

        Args:
            job_id: the job.
            on_line: hears each line.
            on_state: hears how the job stands, about once a second until it runs and when it ends.

        Raises:
            ClusterError: the connection broke; the job goes on.
        """
        while (job := self.job(job_id)).state == "pending":
            on_state(job)
            time.sleep(_POLL_S)
        on_state(job)
        with self._about(job_id):
            asyncio.run(self._tail(job_id, on_line))
        while not (job := self.job(job_id)).is_over:
            time.sleep(_POLL_S)
        on_state(job)
        return job

    async def _tail(self, job_id: str, on_line: Callable[[str], None]) -> None:
        rest = ""
        async for chunk in self._client.tail_job_logs(job_id):
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                on_line(line)
        if rest:
            on_line(rest)

    @contextmanager
    def _about(self, job_id: str) -> Generator[None, None, None]:
        if not _ID.fullmatch(job_id):
            raise SettingError(f"`{job_id}` is no job id; `icalib jobs` lists them.")
        with _faults_told(self.address, job_id):
            yield


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise SettingError(
            f"--address {address} is no address of a job server. Give that of the head's dashboard, such as "
            "http://127.0.0.1:8265."
        )


def _passed(names: list[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise SettingError(
            f"the job passes {', '.join(missing)} on, and the environment here has no such variable. Set it, or take "
            "it out of pass_environment."
        )
    return {name: os.environ[name] for name in names}


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
def _faults_told(address: str | None, job_id: str = "") -> Generator[None, None, None]:
    """What Ray's client raises, as errors that say what to do."""
    import aiohttp
    import requests
    from ray.exceptions import AuthenticationError, RayError

    where = address or "the cluster on this machine"
    try:
        yield
    except AuthenticationError as error:
        raise ClusterError(_about_token(where, str(error))) from error
    except (ConnectionError, RayError, requests.RequestException, aiohttp.ClientError) as error:
        raise ClusterError(_about_connection(address)) from error
    except (RuntimeError, ValueError) as error:
        text = str(error)
        if job_id and "does not exist" in text:
            raise SettingError(f"{where} knows no job {job_id}; `icalib jobs` lists those it has.") from error
        if "WebSocket" in text:
            raise ClusterError(
                f"the connection to {where} broke. The job goes on as long as its nodes do; `icalib logs {job_id} "
                "--follow` rejoins it."
            ) from error
        raise ClusterError(f"{where} refuses: {text}") from error


def _about_token(where: str, error: str) -> str:
    if "cannot be opened" in error:
        found = f"asks for a token, and RAY_AUTH_TOKEN_PATH={os.environ.get('RAY_AUTH_TOKEN_PATH')} holds none"
    elif "Authentication failed" in error:
        found = "doesn't accept the token it got"
    else:
        found = "asks for a token and got none"
    return (
        f"{where} {found}. Copy the head's token file to this machine (readable for you alone), set "
        "RAY_AUTH_TOKEN_PATH to it, then give the same command again."
    )


def _about_connection(address: str | None) -> str:
    if address:
        return (
            f"no job server answers at {address}. Check host and port of the head's dashboard; one that listens on "
            "its own loopback only is reached through `ssh -L 8265:127.0.0.1:8265 HEAD`, as http://127.0.0.1:8265."
        )
    return (
        "no Ray cluster runs on this machine. Start one with `cluster/local.sh up`, or give the address of another: "
        "--address http://HEAD:8265."
    )
