"""The Kubernetes manifests: pods fit Kubernetes' published schema, KubeRay's kinds the keys that KubeRay knows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import kubernetes_validate
import pytest
import typer.main
from helpers.manifests import CLUSTER, NO_TELEMETRY, documents
from pydantic import BaseModel, ConfigDict, ValidationError

from icalib.cli.app import app
from icalib.methods.catalogue import method_names

KUBERNETES = "1.34"
TUNE_SPACES = CLUSTER.parent / "tune_spaces"
JOBS = [CLUSTER / "kuberay" / f"rayjob-{name}.yaml" for name in ("train", "sweep")]


class Strict(BaseModel):
    """A part of KubeRay's ray.io/v1 API, as far as the manifests use it; other keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: str
    namespace: Literal["icalib"]


class AuthOptions(Strict):
    mode: Literal["token"]


class AutoscalerOptions(Strict):
    idleTimeoutSeconds: int
    securityContext: dict[str, Any]


class HeadGroup(Strict):
    rayStartParams: dict[str, str]
    template: dict[str, Any]


class WorkerGroup(HeadGroup):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int


class ClusterSpec(Strict):
    rayVersion: str
    authOptions: AuthOptions
    enableInTreeAutoscaling: bool = False
    autoscalerOptions: AutoscalerOptions | None = None
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]


class JobSpec(Strict):
    entrypoint: str
    entrypointNumCpus: int
    runtimeEnvYAML: str
    backoffLimit: int
    activeDeadlineSeconds: int
    shutdownAfterJobFinishes: bool
    ttlSecondsAfterFinished: int
    rayClusterSpec: ClusterSpec
    submitterPodTemplate: dict[str, Any]


class RayCluster(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: ClusterSpec


class RayJob(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: JobSpec


class ServiceSpec(Strict):
    serveConfigV2: str
    rayClusterConfig: ClusterSpec


class RayService(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayService"]
    metadata: Metadata
    spec: ServiceSpec


def ray_service() -> tuple[RayService, dict[str, Any]]:
    """The service, and the network policy of its HTTP port."""
    service, policy = documents((CLUSTER / "kuberay" / "rayservice.yaml").read_text())
    return RayService.model_validate(service), policy


def ray_cluster() -> RayCluster:
    (document,) = documents((CLUSTER / "kuberay" / "raycluster.yaml").read_text())
    return RayCluster.model_validate(document)


def ray_job(path: Path) -> RayJob:
    (document,) = documents(path.read_text())
    return RayJob.model_validate(document)


def clusters() -> list[ClusterSpec]:
    jobs = [ray_job(path).spec.rayClusterSpec for path in JOBS]
    return [ray_cluster().spec, *jobs, ray_service()[0].spec.rayClusterConfig]


def ray_pods() -> list[dict[str, Any]]:
    return [group.template for spec in clusters() for group in (spec.headGroupSpec, *spec.workerGroupSpecs)]


def pods() -> list[dict[str, Any]]:
    return [*ray_pods(), *(ray_job(path).spec.submitterPodTemplate for path in JOBS)]


def containers() -> Iterator[dict[str, Any]]:
    for pod in pods():
        yield from pod["spec"]["containers"]


def shared(kind: str) -> dict[str, Any]:
    (found,) = [
        document
        for document in documents((CLUSTER / "kuberay" / "namespace.yaml").read_text())
        if document["kind"] == kind
    ]
    return found


def validate(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("kind", ["Namespace", "PersistentVolumeClaim", "NetworkPolicy"])
def test_the_namespace_fits_kubernetes_schema(kind: str) -> None:
    validate(shared(kind))


def test_pods_fit_kubernetes_schema() -> None:
    for pod in pods():
        validate({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": pod})


def test_nothing_is_scheduled_on_the_head() -> None:
    assert all(spec.headGroupSpec.rayStartParams["num-cpus"] == "0" for spec in clusters())
    for spec in clusters():
        assert "nvidia.com/gpu" not in spec.headGroupSpec.template["spec"]["containers"][0]["resources"]["limits"]
        assert [
            group.groupName
            for group in spec.workerGroupSpecs
            if "nvidia.com/gpu" in group.template["spec"]["containers"][0]["resources"]["limits"]
        ] == ["gpu"]


def test_containers_have_no_privileges_and_send_no_telemetry() -> None:
    for container in containers():
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert {variable["name"]: variable["value"] for variable in container["env"]} == NO_TELEMETRY
        assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
    for pod in pods():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 1000  # the image's user
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_an_autoscaling_head_may_talk_to_kubernetes() -> None:
    for spec in clusters():
        assert all(group.template["spec"]["automountServiceAccountToken"] is False for group in spec.workerGroupSpecs)
        head = spec.headGroupSpec.template["spec"].get("automountServiceAccountToken", True)
        assert head == spec.enableInTreeAutoscaling


def test_all_ray_pods_see_the_shared_storage_at_one_path() -> None:
    claim = shared("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in ray_pods():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts["/mnt/icalib"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
        assert mounts["/dev/shm"]["emptyDir"] == {"medium": "Memory"}


def test_the_network_policy_guards_every_dashboard_that_is_not_on_loopback() -> None:
    policy = shared("NetworkPolicy")["spec"]
    assert all(spec.headGroupSpec.rayStartParams["dashboard-host"] == "0.0.0.0" for spec in clusters())
    for pod in ray_pods():
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    among_themselves, others = policy["ingress"]
    assert among_themselves == {"from": [{"podSelector": policy["podSelector"]}]}
    assert others["ports"] == [{"protocol": "TCP", "port": 8265}]
    assert all("ipBlock" not in peer for peer in others["from"])


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_ends_and_may_be_tried_again(path: Path) -> None:
    spec = ray_job(path).spec
    assert spec.shutdownAfterJobFinishes
    assert spec.backoffLimit > 0
    assert spec.activeDeadlineSeconds > spec.ttlSecondsAfterFinished > 0
    (environment,) = documents(spec.runtimeEnvYAML)
    assert environment == {"env_vars": {"ICALIB_DRIVER_CPUS": str(spec.entrypointNumCpus)}}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_entrypoint_is_a_command_of_ours_on_the_shared_storage(path: Path) -> None:
    program, verb, *arguments = shlex.split(ray_job(path).spec.entrypoint)
    command = typer.main.get_command(app)
    assert program == "icalib"
    given = command.commands[verb].make_context(verb, arguments).params
    assert given["data"].is_relative_to("/mnt/icalib")
    assert given["runs"].is_relative_to("/mnt/icalib")
    if verb == "sweep":
        assert (TUNE_SPACES / f"{given['space']}.py").exists()
    else:
        assert given["method"] in method_names()


def test_a_service_serves_the_application_of_serve_yaml() -> None:
    service, policy = ray_service()
    assert documents(service.spec.serveConfigV2) == documents((CLUSTER / "serve.yaml").read_text())
    (config,) = documents(service.spec.serveConfigV2)
    validate(policy)
    assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": config["http_options"]["port"]}]
    token = Path(config["applications"][0]["args"]["token_file"])
    for group in (service.spec.rayClusterConfig.headGroupSpec, *service.spec.rayClusterConfig.workerGroupSpecs):
        mounts = group.template["spec"]["containers"][0]["volumeMounts"]
        assert str(token.parent) in {mount["mountPath"] for mount in mounts}


def test_the_serve_file_fits_ray_and_our_application() -> None:
    pytest.importorskip("starlette", reason="needs ray[serve]")
    from ray.serve.schema import ServeDeploySchema

    from icalib.distributed.serving import ServeArguments, build

    (config,) = documents((CLUSTER / "serve.yaml").read_text())
    (application,) = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"
    assert ServeArguments.model_validate(application.args).token_file
    assert [deployment.name for deployment in application.deployments] == ["Gateway", "Ranker"]
    with pytest.raises(ValidationError, match="tokenfile"):
        ServeArguments.model_validate({**application.args, "tokenfile": "x"})
