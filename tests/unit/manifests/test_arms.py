"""Arms are the primary's pods under our labels, without its identity; the candidate differs by its patch alone."""

import copy
from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.arms import (
    arm_deployment,
    arm_network_policy,
    arm_service,
    candidate_patch,
    carries_patch,
    patch_problem,
    pod_spec_diff,
)
from shadowrun_operator.manifests.names import Manifest, RunRef

from tests.unit.reconcile.world import deployment

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")


def _arm(arm: str = "baseline", **changes: Any) -> Manifest:
    return arm_deployment(RUN, arm, deployment(), replicas=2, **changes)


def test_no_label_and_no_annotation_of_the_template_survives() -> None:
    meta = _arm()["spec"]["template"]["metadata"]
    assert meta == {"labels": names.labels(RUN, "baseline")}


def test_pods_of_an_arm_have_no_token_and_not_the_primary_s_account() -> None:
    pods = _arm()["spec"]["template"]["spec"]
    assert pods["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pods


def test_a_token_that_the_template_projects_into_a_volume_is_left_out_of_every_arm() -> None:
    source = deployment()
    kept = {"configMap": {"name": "settings"}}
    source["spec"]["template"]["spec"]["volumes"] = [
        {"name": "identity", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, kept]}},
        {"name": "cache", "emptyDir": {}},
    ]
    for arm in ("baseline", "candidate", "control"):
        volumes = arm_deployment(RUN, arm, source, replicas=1)["spec"]["template"]["spec"]["volumes"]
        assert volumes == [{"name": "identity", "projected": {"sources": [kept]}}, {"name": "cache", "emptyDir": {}}]


def test_the_pool_is_laid_over_the_template_s_node_selector() -> None:
    source = deployment()
    source["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd", "pool": "old"}
    built = arm_deployment(RUN, "baseline", source, replicas=1, node_selector={"pool": "a"})
    assert built["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "a"}


def test_two_arms_differ_in_name_and_labels_only() -> None:
    assert pod_spec_diff(_arm("baseline"), _arm("candidate")) == []
    assert _arm("baseline")["spec"]["strategy"] == {"type": "Recreate"}


def test_building_an_arm_leaves_the_source_as_it_was() -> None:
    source = deployment()
    before = copy.deepcopy(source)
    arm_deployment(RUN, "baseline", source, replicas=1, node_selector={"pool": "a"})
    assert source == before


def test_the_candidate_s_patch_is_marked_with_the_spec_it_belongs_to() -> None:
    patch = {"spec": {"hostname": "a"}}
    body = candidate_patch(patch, replicas=3, spec_hash="abc")
    assert body["spec"] == {"replicas": 3, "template": {"spec": {"hostname": "a"}}}
    candidate = _arm("candidate")
    assert not carries_patch(candidate, "abc")
    candidate["metadata"]["annotations"] = body["metadata"]["annotations"]
    assert carries_patch(candidate, "abc")
    assert not carries_patch(candidate, "other")


def test_an_empty_patch_is_a_test_of_equal_arms() -> None:
    assert patch_problem({}, deployment(), service_selector={"app": "chat"}) is None


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (None, "must be a mapping"),
        ([], "must be a mapping"),
        ({"kind": "Deployment"}, "'kind'"),
        ({"spec": {"replicas": 2, "template": {"spec": {}}}}, "one of a Deployment"),
        ({"metadata": {"labels": {"app": "chat", "x": "y"}}}, "app=chat"),
        ({"metadata": {"labels": {names.COMPONENT_LABEL: "baseline"}}}, names.COMPONENT_LABEL),
        ({"metadata": []}, "must be mappings"),
        ({"metadata": {"labels": ["app"]}}, "must be a mapping"),
        ({"spec": {"containers": {"name": "engine"}}}, "must be a list"),
        ({"spec": {"containers": [{"name": "other"}]}}, "are: engine"),
        ({"spec": {"initContainers": [{"name": "engine"}]}}, "are: none"),
        ({"spec": {"containers": [{"args": []}]}}, "needs a name"),
        ({"spec": {"automountServiceAccountToken": True}}, "automountServiceAccountToken"),
        ({"spec": {"automountServiceAccountToken": None}}, "automountServiceAccountToken"),
        ({"spec": {"$patch": "replace", "containers": []}}, "'$patch'"),
        ({"spec": {"$retainKeys": ["containers"]}}, "'$retainKeys'"),
        ({"metadata": {"$patch": "replace"}}, "'$patch'"),
        ({"spec": {"hostNetwork": True}}, "hostNetwork"),
        ({"spec": {"hostPID": True}}, "hostPID"),
        ({"spec": {"hostIPC": True}}, "hostIPC"),
        ({"spec": {"nodeName": "node1"}}, "nodeName"),
        ({"spec": {"volumes": {"name": "a"}}}, "must be a list"),
        (
            {"spec": {"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}},
            "volumes[0]",
        ),
    ],
)
def test_a_patch_that_cannot_be_meant_is_explained(patch: Any, says: str) -> None:
    problem = patch_problem(patch, deployment(), service_selector={"app": "chat"})
    assert problem is not None
    assert says in problem
    assert problem.startswith("spec.arms.candidate.patch")


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"name": "engine", "args": ["-x"]}]}},
        {"spec": {"containers": [{"name": "engine", "image": "e:2"}], "nodeSelector": {"a": "b"}}},
        {"metadata": {"labels": {"app": "other"}}},
        {"spec": {"containers": [{"$patch": "delete", "name": "engine"}]}},
        {"spec": {"volumes": [{"name": "a", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]}},
    ],
)
def test_a_sound_patch_has_no_problem(patch: Any) -> None:
    assert patch_problem(patch, deployment(), service_selector={"app": "chat"}) is None


def test_differences_are_named_by_path_and_by_the_names_of_list_entries() -> None:
    candidate = _arm("candidate")
    container = candidate["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["-x"]
    container["env"] = [{"name": "CACHE", "value": "1"}]
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


def test_arms_reach_only_dns_and_what_the_spec_allows_and_are_reached_by_the_mirror_only() -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    spec = arm_network_policy(RUN, ("baseline", "candidate"), egress=[rule])["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"][1:] == [rule]
    assert {p["port"] for p in spec["egress"][0]["ports"]} == {53}
    assert spec["ingress"] == [{"from": [{"podSelector": {"matchLabels": names.selector(RUN, "mirror")}}]}]


def test_the_service_of_an_arm_picks_only_its_pods() -> None:
    built = arm_service(RUN, "candidate", port=8000, target_port="http")
    assert built["spec"]["selector"] == names.selector(RUN, "candidate")
    assert built["spec"]["ports"][0]["targetPort"] == "http"
