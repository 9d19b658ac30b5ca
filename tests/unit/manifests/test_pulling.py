"""Our own pods are pulled as the chart says; nothing else about them changes."""

import pytest
from shadowrun_operator.manifests.mirror import mirror_deployment
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.pulling import pulled

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")


def _pods(deployment: Manifest) -> Manifest:
    pods: Manifest = deployment["spec"]["template"]["spec"]
    return pods


def test_every_container_gets_the_policy_and_the_pods_get_the_secrets() -> None:
    deployment = mirror_deployment(RUN, image="m:1", token="t")
    _pods(deployment)["initContainers"] = [{"name": "first", "image": "m:1"}]
    pods = _pods(pulled(deployment, policy="Always", secrets=("a", "b")))
    assert [c["imagePullPolicy"] for kind in ("initContainers", "containers") for c in pods[kind]] == ["Always"] * 2
    assert pods["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_without_secrets_none_are_named_and_all_else_stays() -> None:
    deployment = mirror_deployment(RUN, image="m:1", token="t")
    assert pulled(deployment, policy="IfNotPresent", secrets=()) == deployment
