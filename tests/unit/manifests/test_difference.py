"""What tells two arms apart is named by path, and what no patch accounts for is found."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_operator.manifests.arms import arm_deployment
from shadowrun_operator.manifests.difference import beyond, pod_spec_diff
from shadowrun_operator.manifests.names import Manifest, RunRef

from tests.unit.reconcile.world import deployment, leader_worker_set

pytestmark = pytest.mark.operator

MOUNT = {"name": "v", "mountPath": "/a"}
RUN = RunRef(name="x", namespace="inference", uid="u")


def _arm(arm: str = "baseline") -> Manifest:
    built = arm_deployment(RUN, arm, deployment(), replicas=2)
    built["spec"]["template"]["spec"]["containers"][0] |= {
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [MOUNT, {"name": "v", "mountPath": "/b"}],
    }
    return built


def _engine(arm: Manifest) -> dict[str, Any]:
    container: dict[str, Any] = arm["spec"]["template"]["spec"]["containers"][0]
    return container


def test_differences_are_named_by_path_and_by_the_names_of_list_entries() -> None:
    candidate = _arm("candidate")
    container = candidate["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["-x"]
    del container["env"]
    candidate["spec"]["template"]["metadata"]["annotations"] = {"a": "b"}
    candidate["spec"]["replicas"] = 1
    assert pod_spec_diff(_arm(), candidate) == [
        "metadata.annotations.a",
        "replicas",
        "spec.containers[engine].args",
        "spec.containers[engine].env",
    ]


def test_the_order_of_containers_is_a_difference() -> None:
    left, right = _arm(), _arm()
    containers = [{"name": "a"}, {"name": "b"}]
    left["spec"]["template"]["spec"]["containers"] = containers
    right["spec"]["template"]["spec"]["containers"] = containers[::-1]
    assert pod_spec_diff(left, right) == ["spec.containers"]


def _patched(patch: dict[str, Any], **fields: Any) -> list[str]:
    """What is beyond a patch of the engine, where the candidate's engine has these fields."""
    candidate = _arm("candidate")
    _engine(candidate).update(fields)
    return beyond(_arm(), candidate, {"spec": {"containers": [{"name": "engine", **patch}]}} if patch else {})


PROBE = {"httpGet": {"path": "/health", "port": 8080}}
HTTP = {"containerPort": 8080, "name": "http"}
A, B = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}


@pytest.mark.parametrize(
    ("patch", "candidate"),
    [
        ({}, {}),
        ({"args": ["-x"]}, {"args": ["-x"]}),
        ({"env": [B]}, {"env": [A, B]}),
        ({"env": [B]}, {"env": [B, A]}),
        ({"env": [B, A]}, {"env": [B, A]}),
        ({"env": [{"name": "A", "value": None}]}, {"env": [{"name": "A"}]}),
        ({"env": None}, {"env": None}),
        ({"env": [{"$patch": "delete", "name": "A"}]}, {"env": None}),
        ({"env": [{"$patch": "replace"}, B]}, {"env": [B]}),
        ({"readinessProbe": PROBE}, {"readinessProbe": PROBE | {"timeoutSeconds": 1}}),
        ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 1, "protocol": "TCP"}, HTTP]}),
    ],
)  # fmt: skip
def test_a_patch_accounts_for_what_it_says_and_for_the_defaults_below_it(
    patch: dict[str, Any], candidate: dict[str, Any]
) -> None:
    assert _patched(patch, **candidate) == []


@pytest.mark.parametrize(
    ("patch", "candidate", "found"),
    [
        ({}, {"args": ["-x"]}, ["args"]),
        ({"args": ["-x"]}, {"args": ["-x"], "image": "e:2"}, ["image"]),
        ({"env": [B]}, {"env": [A, B, {"name": "C", "value": "3"}]}, ["env[C].name", "env[C].value"]),
        ({"env": [B]}, {"env": [{"name": "A", "value": "9"}, B]}, ["env[A].value"]),
        ({"args": ["-x"]}, {"env": None}, ["env[A].name", "env[A].value"]),
        ({}, {"volumeMounts": [MOUNT]}, ["volumeMounts[/b].mountPath", "volumeMounts[/b].name"]),
        ({}, {"securityContext": {}}, ["securityContext"]),
    ],
)  # fmt: skip
def test_what_somebody_else_changed_is_named(
    patch: dict[str, Any], candidate: dict[str, Any], found: list[str]
) -> None:
    assert _patched(patch, **candidate) == [f"spec.containers[engine].{path}" for path in found]


def test_a_sidecar_that_only_one_arm_has_is_beyond_any_patch_of_the_engine() -> None:
    candidate = _arm("candidate")
    candidate["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "p:1"})
    patch = {"spec": {"containers": [{"name": "engine", "args": ["-x"]}]}}
    assert beyond(_arm(), candidate, patch) == ["spec.containers[proxy].image", "spec.containers[proxy].name"]


def test_labels_of_others_and_the_number_of_pods_are_differences_too() -> None:
    candidate = _arm("candidate")
    candidate["spec"]["template"]["metadata"]["labels"]["mesh"] = "on"
    candidate["spec"]["replicas"] = 3
    assert beyond(_arm(), candidate, {}) == ["metadata.labels.mesh", "replicas"]
    assert beyond(_arm(), candidate, {"metadata": {"labels": {"mesh": "on"}}}) == ["replicas"]


FIELDS = st.dictionaries(st.sampled_from(["image", "workingDir", "args", "command"]), st.text(max_size=3), max_size=4)


@given(patch=FIELDS, other=FIELDS)
def test_whatever_is_changed_beside_the_patch_and_nothing_else_is_found(
    patch: dict[str, str], other: dict[str, str]
) -> None:
    candidate = _arm("candidate")
    before = copy.deepcopy(_engine(candidate))
    _engine(candidate).update({**other, **patch})
    expected = {key for key in other.keys() - patch.keys() if other[key] != before.get(key)}
    found = beyond(_arm(), candidate, {"spec": {"containers": [{"name": "engine", **patch}]}})
    assert found == sorted(f"spec.containers[engine].{key}" for key in expected)


def test_a_patch_of_the_workers_container_accounts_for_none_of_that_name_among_the_leaders() -> None:
    baseline, candidate = leader_worker_set(leader=True), leader_worker_set(leader=True)
    group = candidate["spec"]["leaderWorkerTemplate"]
    group["workerTemplate"]["spec"]["containers"][0]["image"] = "w:2"
    patch = {"spec": {"containers": [{"name": "worker", "image": "w:2"}]}}
    assert beyond(baseline, candidate, patch) == []
    assert pod_spec_diff(baseline, candidate) == ["workerTemplate.spec.containers[worker].image"]
    group["leaderTemplate"]["spec"]["containers"].append({"name": "worker", "image": "w:2"})
    assert beyond(baseline, candidate, patch) == [
        "leaderTemplate.spec.containers[worker].image",
        "leaderTemplate.spec.containers[worker].name",
    ]
