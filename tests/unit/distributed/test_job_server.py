"""Submitting jobs, also when the same work exists; a job server in memory replaces the cluster's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

import icalib
from icalib.core.cluster_job import ClusterJob, JobFile
from icalib.core.errors import ClusterError, SettingError
from icalib.distributed import job_server
from icalib.distributed.job_server import JobServer, uploaded_code

CHECKOUT = Path(icalib.__file__).parents[1]
ADDRESS = "http://127.0.0.1:8265"
RUN = JobFile(verb="run", arguments=["icast"], options={"data": "/pools", "runs": "/runs"})


class MemoryServer:
    """The part of Ray's client that icalib uses."""

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.states: dict[str, str] = {}

    def get_address(self) -> str:
        return ADDRESS

    def list_jobs(self) -> list[Any]:
        return [self.get_job_info(one["submission_id"]) for one in self.submitted]

    def get_job_info(self, job_id: str) -> Any:
        for index, one in enumerate(self.submitted):
            if one["submission_id"] == job_id:
                return SimpleNamespace(
                    submission_id=job_id, entrypoint=one["entrypoint"], metadata=one["metadata"], message=None,
                    status=SimpleNamespace(value=self.states[job_id].upper()), start_time=1000 * index, end_time=None,
                    driver_exit_code=None,
                )  # fmt: skip
        raise RuntimeError(f"Request failed with status code 404: Job {job_id} does not exist.")

    def submit_job(self, **wanted: Any) -> None:
        self.submitted.append(wanted)
        self.states[wanted["submission_id"]] = "pending"

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        yield "done\n"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryServer:
    import ray.job_submission

    server = MemoryServer()
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")
    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", lambda address: server)
    return server


def submit(job: JobFile, folder: Path, *, again: bool = False) -> tuple[ClusterJob, str]:
    return JobServer(ADDRESS).submit(job, ["icalib", "run", "icast"], folder, again=again)


def test_a_job_reserves_what_its_file_says(
    memory: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hidden")
    wanted = JobFile(
        verb="run", environment={"A": "1"}, pass_environment=["HF_TOKEN"],
        resources={"num_cpus": 2, "memory": "4GiB", "custom": {"spot": 1}},
    )  # fmt: skip
    job, outcome = submit(wanted, tmp_path)
    (sent,) = memory.submitted
    assert outcome == "submitted"
    assert job.id == sent["submission_id"] == f"run-{wanted.work}"
    assert (sent["entrypoint"], job.command) == ("python -m icalib run icast", "icalib run icast")
    assert (sent["entrypoint_num_cpus"], sent["entrypoint_memory"]) == (2, 4 * 2**30)
    assert sent["entrypoint_resources"] == {"spot": 1}
    assert sent["runtime_env"]["env_vars"] == {"A": "1", "HF_TOKEN": "hidden", "ICALIB_DRIVER_CPUS": "2.0"}
    assert "hidden" not in str([sent["metadata"], sent["entrypoint"], sent["submission_id"]])


def test_the_code_of_the_project_and_of_icalib_is_uploaded(tmp_path: Path) -> None:
    (tmp_path / "lab/spaces").mkdir(parents=True)
    (tmp_path / "lab/pyproject.toml").touch()
    code = uploaded_code(tmp_path / "lab/spaces")
    assert code["working_dir"] == str(tmp_path / "lab")
    assert code["py_modules"] == [str(CHECKOUT / "icalib"), str(CHECKOUT / "tune_spaces")]
    assert "working_dir" not in uploaded_code(tmp_path)
    own = uploaded_code(CHECKOUT / "icalib")
    assert (own["working_dir"], "py_modules" in own) == (str(CHECKOUT), False)


def test_data_weights_runs_and_secrets_stay_here(tmp_path: Path) -> None:
    kept = {"pyproject.toml", "lab/__init__.py", "lab/pools/words.txt", "lab/tokens.py"}
    secrets = {
        *("token", "lab/token", "hf_token", "hf-token.txt", "id_rsa", "lab/id_ed25519.pub", "kubeconfig"),
        *("kubeconfig.yaml", "k.p12", "k.pem", "k.key", "prod.env", "credentials", "gcp-credentials.json"),
        *("service-account.json", "service_account_2.json", "secrets.yaml", "lab/my_secret.yml", "api_key.txt"),
    }
    others = {".env", ".git/config", "env/lib/big.py", "runs/r/result.json", "lab/train.parquet", "m.safetensors"}
    others |= {"venv2/lib/q.py", "other/site-packages/q.py", "wandb/run.py", "mlruns/0/meta.yaml"}
    for name in kept | others | secrets:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert uploaded(tmp_path, tmp_path) == kept


def test_all_of_icalibs_own_files_are_uploaded(tmp_path: Path) -> None:
    folder = CHECKOUT / "icalib"
    own = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert uploaded(folder, tmp_path) == own


def uploaded(folder: Path, scratch: Path) -> set[str]:
    """The files of a folder that Ray uploads."""
    from ray._private.runtime_env.packaging import create_package

    package = scratch / "code.zip"
    create_package(str(folder), package, include_gitignore=True, excludes=uploaded_code(folder)["excludes"])
    return {name for name in ZipFile(package).namelist() if not name.endswith("/")}


def test_a_variable_to_pass_on_must_be_set(memory: MemoryServer, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="ICALIB_NO_SUCH"):
        submit(JobFile(verb="run", pass_environment=["ICALIB_NO_SUCH"]), tmp_path)
    assert memory.submitted == []


def test_a_job_that_does_not_start_is_explained_once(
    memory: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_server, "_DELAY_S", -1.0)
    job, _ = submit(RUN, tmp_path)
    told: list[str] = []

    def waits(seconds: float) -> None:
        told.append("waits")
        if len(told) > 3:
            memory.states[job.id] = "succeeded"

    monkeypatch.setattr(job_server.time, "sleep", waits)
    JobServer().follow(job.id, told.append, lambda now: told.append(now.state), lambda: told.append("why"))
    assert told == ["pending", "why", "waits", "waits", "succeeded", "done"]


@pytest.mark.parametrize(
    ("state", "again", "outcome"),
    [
        ("pending", False, "running"),
        ("pending", True, "submitted"),
        ("running", False, "running"),
        ("running", True, "running"),
        ("succeeded", False, "finished"),
        ("succeeded", True, "submitted"),
        ("failed", False, "submitted"),
        ("stopped", False, "submitted"),
    ],
)
def test_submitting_the_same_job_twice(
    memory: MemoryServer, tmp_path: Path, state: str, again: bool, outcome: str
) -> None:
    first, _ = submit(RUN, tmp_path)
    memory.states[first.id] = state
    job, found = submit(RUN.model_copy(update={"name": "renamed"}), tmp_path, again=again)
    assert found == outcome
    assert job.id == (f"renamed-{RUN.work}-2" if outcome == "submitted" else first.id)


@pytest.mark.parametrize(
    "address", ["http://me:pw@[::1", "head:8265", "ray://head:10001", "os://x", "http://", "http://me:pw@head:8265"]
)
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(SettingError, match=r"http://127\.0\.0\.1:8265") as refused:
        JobServer(address)
    assert ":pw" not in str(refused.value)


@pytest.mark.parametrize("job_id", ["", "../../api/version", "a b", "x" * 200])
def test_invalid_ids_are_refused(memory: MemoryServer, job_id: str) -> None:
    with pytest.raises(SettingError, match="is not a valid job id"):
        JobServer(ADDRESS).stop(job_id)


def test_a_server_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")
    with pytest.raises(ClusterError, match=r"no job server answers at http://127\.0\.0\.1:9.*ssh -L"):
        JobServer("http://127.0.0.1:9")
