"""Job files (see `jobs/`): what to run on a cluster, with which resources and environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, final

from pydantic import ByteSize, ConfigDict, Field, StringConstraints

from icalib.core.component import Settings, place_value, validated
from icalib.core.errors import SettingError
from icalib.core.files import content_digest
from icalib.core.yaml_text import read_mapping

JOB_NAME = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
_SECRET = re.compile(
    r"(((^|_)(TOKEN|SECRET|KEY|CREDENTIALS?)|PASSWORD|PASSWD|[A-Z]{3}(TOKEN|SECRET|KEY))(_|$)"
    r"|(^|_)(PASS|PWD|PAT|AUTH|CONNECTION_STRING|WEBHOOK(_URL)?)$)"
    r"(?!(.*_)?(PATH|FILE|DIR)$)"
)
_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")

Name: TypeAlias = Annotated[str, StringConstraints(pattern=f"^{JOB_NAME}$")]
Variable: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Value: TypeAlias = str | bool | int | float


class JobResources(Settings):
    """Resources of the job's driver process; its trainings and scoring tasks request their own.

    A driver that reserves anything is placed wherever there is room; one that reserves nothing runs on the head.
    """

    num_cpus: float = Field(default=0, ge=0)
    """CPU cores. The driver mostly waits. On a small cluster, a core that it reserves may be the one that the training
    of another job waits for, without an end."""
    num_gpus: float = Field(default=0, ge=0)
    """GPUs: only for `predict`, which works in the driver itself."""
    memory: ByteSize = Field(default=ByteSize(2 * 2**30), ge=0)
    """Memory, e.g. 4GiB: pools and metrics pass through the driver."""
    custom: dict[str, float] = Field(default={})
    """Custom resources of the nodes that may run the driver, e.g. {on_demand: 0.01}."""


class JobFile(Settings):
    """The contents of a job file."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: Name | None = None
    """Prefix of the job's id; default: verb and first argument. At most 40 lower-case letters, digits and hyphens."""
    verb: str
    """Any verb that `icalib --help` lists, except those about jobs."""
    arguments: list[str] = Field(default=[])
    """The verb's arguments."""
    options: dict[str, Value | list[Value] | dict[str, Any]] = Field(default={})
    """The verb's options by name, without --. A flag is true or false, a list gives an option several times, and
    `set: {regime.num_rounds: 2}` means --set regime.num_rounds=2."""
    resources: JobResources = JobResources()
    """Resources of the driver."""
    environment: dict[Variable, str] = Field(default={})
    """Environment variables of driver and workers; no secrets."""
    pass_environment: list[Variable] = Field(default=[])
    """Names of variables to pass on from the environment of `icalib submit`: the only way for secrets."""

    @property
    def title(self) -> str:
        """The job's name, or one made of verb and first argument."""
        words = "-".join([self.verb, *(Path(argument).stem for argument in self.arguments[:1])])
        return self.name or re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:40].strip("-")

    @property
    def work(self) -> str:
        """Digest of what is computed: two jobs with the same digest must not run at the same time."""
        return content_digest([self.verb, self.arguments, self.options])[:8]


def read_job_file(path: Path, changes: Mapping[str, Any]) -> JobFile:
    """Read a YAML job file, or raise a SettingError.

    `changes` replace or add values by dotted key, such as options.data; after `options.set.` the rest is one key.
    """
    try:
        values = read_mapping(path)
    except ValueError as error:
        raise SettingError(f"{path} is not a job file: {error}. Examples are in jobs/.") from error
    for key, value in changes.items():
        place_value(values, key.split(".", 2), value)
    try:
        job = validated(JobFile, values)
    except SettingError as error:
        raise SettingError(f"{path}: {error}. A job file's keys are {', '.join(JobFile.model_fields)}.") from error
    named = job.environment.items()
    if secrets := ", ".join(name for name, value in named if _SECRET.search(name.upper()) or _IN_URL.search(value)):
        raise SettingError(
            f"{path}: `environment` has {secrets}, and secrets don't belong in files. Write `pass_environment: "
            f"[{secrets}]` and set the variable where you submit."
        )
    return job


JobState: TypeAlias = Literal["pending", "running", "succeeded", "failed", "stopped"]


@final
@dataclass(frozen=True)
class ClusterJob:
    """A submitted job; times are Unix times in seconds, `ended` and `exit_code` are None while it runs.

    `work` is the digest of what it computes, empty if icalib did not submit it; `message` explains the state.
    """

    id: str
    command: str
    work: str
    state: JobState
    started: float
    ended: float | None
    message: str
    exit_code: int | None

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self.state in ("succeeded", "failed", "stopped")
