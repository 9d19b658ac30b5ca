"""Arms are the template's pods under our labels, without its identity."""

import copy
from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.arms import arm_deployment, arm_network_policy, arm_service, host_and_port
from shadowrun_operator.manifests.difference import pod_spec_diff
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


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://old.models.svc:8000", ("old.models.svc", 8000)), ("http://10.0.0.7", ("10.0.0.7", 80))],
)
def test_an_arm_behind_a_url_listens_at_its_port_or_at_that_of_http(url: str, address: tuple[str, int]) -> None:
    assert host_and_port(url) == address


PASSED = {
    "priorityClassName": "low",
    "runtimeClassName": "nvidia",
    "schedulerName": "kai",
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}],
    "initContainers": [{"name": "fetch", "image": "fetch:1"}],
}


@pytest.mark.parametrize("field", PASSED)
def test_what_decides_where_and_how_pods_run_reaches_every_arm_as_it_is(field: str) -> None:
    source = deployment()
    source["spec"]["template"]["spec"][field] = PASSED[field]
    for arm in ("baseline", "candidate", "control"):
        assert arm_deployment(RUN, arm, source, replicas=1)["spec"]["template"]["spec"][field] == PASSED[field]
