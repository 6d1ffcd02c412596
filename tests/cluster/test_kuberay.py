"""The Kubernetes manifests: pods fit Kubernetes' published schema, KubeRay's kinds the keys that KubeRay knows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
from helpers.manifests import CLUSTER, NO_TELEMETRY, documents
from pydantic import ValidationError

from icalib.cli.app import app
from icalib.methods.catalogue import method_names

KUBERNETES = "1.34"

GROUP = {"rayStartParams", "template"}
KEYS = {
    "spec": {
        "rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec",
        "workerGroupSpecs", "entrypoint", "entrypointNumCpus", "runtimeEnvYAML", "backoffLimit",
        "activeDeadlineSeconds", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec",
        "submitterPodTemplate", "serveConfigV2", "rayClusterConfig",
    },
    "authOptions": {"mode"},
    "autoscalerOptions": {"idleTimeoutSeconds", "securityContext", "volumeMounts"},
    "headGroupSpec": GROUP,
    "workerGroupSpecs": {*GROUP, "groupName", "replicas", "minReplicas", "maxReplicas"},
}  # fmt: skip
"""Keys of KubeRay's ray.io/v1 API that the manifests use: it ignores others, so a misspelt one would have no effect."""


def manifest(name: str) -> list[dict[str, Any]]:
    return documents((CLUSTER / "kuberay" / f"{name}.yaml").read_text())


def job() -> dict[str, Any]:
    (document,) = manifest("rayjob")
    return document["spec"]


def clusters() -> list[dict[str, Any]]:
    (cluster,), (service, _) = manifest("raycluster"), manifest("rayservice")
    return [cluster["spec"], job()["rayClusterSpec"], service["spec"]["rayClusterConfig"]]


def groups(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def ray_pods() -> list[dict[str, Any]]:
    return [group["template"] for spec in clusters() for group in groups(spec)]


def pods() -> list[dict[str, Any]]:
    return [*ray_pods(), job()["submitterPodTemplate"]]


def shared(kind: str) -> dict[str, Any]:
    (found,) = [document for document in manifest("namespace") if document["kind"] == kind]
    return found


def validate(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["raycluster", "rayservice", "rayjob"])
def test_kuberay_knows_each_key(name: str) -> None:
    document = manifest(name)[0]
    assert (document["apiVersion"], document["metadata"]["namespace"]) == ("ray.io/v1", "icalib")
    assert document["spec"].keys() <= KEYS["spec"]
    for spec in clusters():
        assert spec["authOptions"] == {"mode": "token"}
        for key, value in spec.items():
            for part in value if isinstance(value, list) else [value]:
                assert key not in KEYS or part.keys() <= KEYS[key]


def test_each_resource_has_a_head_service_of_its_own() -> None:
    """KubeRay calls it NAME-head-svc for clusters, services and jobs alike."""
    names = [manifest(name)[0]["metadata"]["name"] for name in ("raycluster", "rayservice", "rayjob")]
    assert len(set(names)) == len(names)


def test_gpus_are_there_before_a_run_counts_them() -> None:
    """A run asks for no more GPUs than it finds, so that an autoscaler would never start pods that have them."""
    for spec in (manifest("raycluster")[0]["spec"], job()["rayClusterSpec"]):
        (gpu,) = [group for group in spec["workerGroupSpecs"] if group["groupName"] == "gpu"]
        assert gpu["replicas"] == gpu["minReplicas"] == gpu["maxReplicas"] > 0


def test_kueue_can_queue_jobs() -> None:
    """It takes RayJobs of at most eight groups of pods, whose clusters have fixed sizes and end with the job."""
    (document,) = manifest("rayjob")
    assert document["metadata"]["labels"].keys() == {"kueue.x-k8s.io/queue-name"}
    spec = document["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert not spec["rayClusterSpec"].get("enableInTreeAutoscaling", False)
    assert 1 + len(groups(spec["rayClusterSpec"])) <= 8  # with the submitter


@pytest.mark.parametrize("kind", ["Namespace", "PersistentVolumeClaim", "NetworkPolicy"])
def test_the_namespace_fits_kubernetes_schema(kind: str) -> None:
    validate(shared(kind))


def test_pods_fit_kubernetes_schema() -> None:
    for pod in pods():
        validate({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": pod})


def test_nothing_is_scheduled_on_the_head() -> None:
    heads = [spec["headGroupSpec"]["rayStartParams"] for spec in clusters()]
    assert all((head["num-cpus"], head["memory"]) == ("0", "1048576") for head in heads)
    for spec in clusters():
        assert "nvidia.com/gpu" not in spec["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert [
            group["groupName"]
            for group in spec["workerGroupSpecs"]
            if "nvidia.com/gpu" in group["template"]["spec"]["containers"][0]["resources"]["limits"]
        ] == ["gpu"]


def test_containers_have_no_privileges_and_send_no_telemetry() -> None:
    for container in (container for pod in pods() for container in pod["spec"]["containers"]):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert {variable["name"]: variable["value"] for variable in container["env"]} == NO_TELEMETRY
        assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
    for pod in pods():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 1000  # the image's user
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_autoscalers_have_a_token_of_kubernetes() -> None:
    assert shared("Namespace")["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    for pod in pods():
        assert pod["spec"]["automountServiceAccountToken"] is False
        mounts = pod["spec"]["containers"][0].get("volumeMounts", [])
        assert not any("serviceaccount" in mount["mountPath"] for mount in mounts)
    for spec in clusters():
        head, *workers = ({volume["name"] for volume in group["template"]["spec"]["volumes"]} for group in groups(spec))
        mounts = spec.get("autoscalerOptions", {}).get("volumeMounts", [])
        assert {mount["name"] for mount in mounts} == head & {"kubernetes"}
        assert bool(mounts) == spec.get("enableInTreeAutoscaling", False)
        assert all("kubernetes" not in volumes for volumes in workers)


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
    assert all(spec["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "0.0.0.0" for spec in clusters())
    for pod in ray_pods():
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    among_themselves, others = policy["ingress"]
    assert among_themselves == {"from": [{"podSelector": policy["podSelector"]}]}
    assert others["ports"] == [{"protocol": "TCP", "port": 8265}]
    assert all("ipBlock" not in peer for peer in others["from"])
    _, serving = manifest("rayservice")  # whose clients get nothing else
    operator = {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}}
    clients = [peer for peer in serving["spec"]["ingress"][0]["from"] if peer.get("namespaceSelector")]
    assert clients
    assert not any(peer in others["from"] for peer in clients)
    for peers in (others["from"], serving["spec"]["ingress"][0]["from"]):
        assert {"namespaceSelector": {}, "podSelector": operator} in peers


def test_the_entrypoint_is_a_command_of_ours_on_the_shared_storage() -> None:
    program, verb, *arguments = shlex.split(job()["entrypoint"])
    command = typer.main.get_command(app)
    assert program == "icalib"
    given = command.commands[verb].make_context(verb, arguments).params
    assert given["data"].is_relative_to("/mnt/icalib")
    assert given["runs"].is_relative_to("/mnt/icalib")
    assert given["labelled"]  # pools need not have a fraction of their own, and each retry would start a cluster
    assert given["method"] in method_names()


def test_a_service_serves_the_application_of_serve_yaml() -> None:
    service, policy = manifest("rayservice")
    (config,) = documents(service["spec"]["serveConfigV2"])
    assert [config] == documents((CLUSTER / "serve.yaml").read_text())
    validate(policy)
    assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": config["http_options"]["port"]}]
    token = Path(config["applications"][0]["args"]["token_file"])
    for group in groups(service["spec"]["rayClusterConfig"]):
        mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
        read_only = {mount["mountPath"] for mount in mounts if mount.get("readOnly")}
        assert read_only == {str(token.parent), "/mnt/icalib"}


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
