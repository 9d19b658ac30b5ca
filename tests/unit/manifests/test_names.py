"""Names fit, hashes follow from content alone, and a current object is recognised."""

import pytest
from shadowrun_operator.api.run import NAME_LENGTH
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.given_back import given_back, given_back_at, is_given_back
from shadowrun_operator.manifests.names import Manifest, RunRef

pytestmark = pytest.mark.operator

ARM_NAMES = (names.BASELINE, names.CANDIDATE, names.CONTROL)
RUN = RunRef(name="x", namespace="inference", uid="u")


@pytest.mark.parametrize("component", [*ARM_NAMES, names.CAPTURE, names.MIRROR, names.EVIDENCE, names.REPORT])
def test_the_longest_name_the_resource_allows_still_fits_a_service_and_a_label(component: str) -> None:
    assert len(names.object_name("a" * NAME_LENGTH, component)) <= 63


def test_a_stamp_follows_from_content_and_not_from_the_order_of_keys() -> None:
    left = names.stamped({"metadata": {"name": "a"}, "spec": {"b": 1, "c": 2}})
    right = names.stamped({"spec": {"c": 2, "b": 1}, "metadata": {"name": "a"}})
    other = names.stamped({"metadata": {"name": "a"}, "spec": {"b": 1, "c": 3}})
    assert names.is_current(left, right)
    assert not names.is_current(other, right)
    assert not names.is_current(left, None)


def test_a_service_given_back_selects_the_primary_again_and_keeps_its_ports() -> None:
    service: Manifest = {
        "metadata": {
            "name": "chat-shadowed",
            "namespace": "inference",
            "labels": names.labels(RUN, names.CAPTURE),
            "annotations": {names.PRIMARY_ANNOTATION: '{"app": "chat"}', names.MANIFEST_ANNOTATION: "old"},
            "resourceVersion": "7",
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7"],
            "ports": [{"port": 8000, "targetPort": "http", "protocol": "TCP"}],
            "selector": names.selector(RUN, names.CAPTURE),
        },
    }
    assert not is_given_back(service)
    back = given_back(service, 5.0)
    assert back is not None
    assert is_given_back(back)
    assert back["spec"] == {"type": "ClusterIP", "ports": service["spec"]["ports"], "selector": {"app": "chat"}}
    assert names.MANIFEST_ANNOTATION not in back["metadata"]["annotations"]
    assert given_back_at(back) == 5.0
    assert given_back_at(service) is None


def test_a_service_that_does_not_say_whom_it_stood_for_cannot_be_given_back() -> None:
    assert given_back({"metadata": {"name": "a", "namespace": "b"}, "spec": {}}, 1.0) is None
