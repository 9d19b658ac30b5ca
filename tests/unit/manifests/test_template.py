"""Arms start from what the spec names or writes out, unless two arms beside a primary could not have it."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from shadowrun_operator.api.arms import ArmTemplate
from shadowrun_operator.manifests.arms import arm_deployment
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.requests import requests
from shadowrun_operator.manifests.template import inline_source, named, template_problem, wanted_source
from shadowrun_operator.reconcile.primary import primary_port
from shadowrun_operator.reconcile.room import pool_of

from tests.unit.reconcile.world import deployment

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="n", uid="u")
CONTAINER = {"name": "engine", "image": "e:1"}


def _template(**fields: Any) -> ArmTemplate:
    return ArmTemplate.model_validate(fields)


def _stateful_set(*claims: str, **spec: Any) -> Manifest:
    source = deployment()
    source["kind"] = "StatefulSet"
    source["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": claim}} for claim in claims]
    source["spec"]["template"]["spec"].update(spec)
    return source


def _inline(**spec: Any) -> Manifest:
    return inline_source(_template(podTemplate={"spec": {"containers": [CONTAINER], **spec}}))


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ({"deploymentRef": {"name": "chat"}}, ("Deployment", "chat")),
        ({"statefulSetRef": {"name": "chat"}}, ("StatefulSet", "chat")),
        ({"podTemplate": {"spec": {}}}, None),
        ({"external": {"baselineURL": "http://a", "candidateURL": "http://b"}}, None),
    ],
)
def test_an_object_is_read_only_where_one_is_named(template: dict[str, Any], wanted: tuple[str, str] | None) -> None:
    assert wanted_source(_template(**template)) == wanted


def test_sources_are_named_as_a_user_knows_them() -> None:
    assert named(_stateful_set()) == "StatefulSet 'chat'"
    assert named(_inline()) == "spec.arms.template.podTemplate"


@pytest.mark.parametrize(
    "source",
    [
        deployment(),
        _stateful_set(),
        _stateful_set("cache", volumes=[{"name": "cache", "emptyDir": {}}]),
        _inline(),
        _inline(hostNetwork=False),
        _inline(volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}]),
        _inline(
            volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}],
            containers=[{**CONTAINER, "volumeMounts": [{"name": "w", "mountPath": "/w", "readOnly": True}]}],
        ),
        _inline(
            volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}],
            containers=[{**CONTAINER, "volumeMounts": [{"name": "w", "mountPath": "/w"}]}],
        ),
        _inline(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]),
    ],
)
def test_a_template_that_two_arms_can_have_has_no_problem(source: Manifest) -> None:
    assert template_problem(source) is None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (_inline(hostNetwork=True), "hostNetwork"),
        (_inline(hostPID=True), "hostPID"),
        (_inline(hostIPC=True), "hostIPC"),
        (_stateful_set("cache"), "volumeClaimTemplates (cache)"),
        (
            _inline(
                volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}],
                containers=[{**CONTAINER, "volumeMounts": [{"name": "w", "mountPath": "/w"}]}],
            ),
            "write to the claim 'weights'",
        ),
        (
            _inline(
                volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}],
                initContainers=[{"name": "i", "volumeDevices": [{"name": "w", "devicePath": "/dev/w"}]}],
            ),
            "container 'i'",
        ),
        (_inline(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]), "ResourceClaim 'mine'"),
        (_inline(containers=[]), "no container"),
        (_inline(containers=[{"image": "e:1"}]), "spec.containers"),
        (_inline(initContainers={"name": "a"}), "spec.initContainers"),
        (_inline(volumes=["a"]), "spec.volumes"),
        (_inline(nodeSelector=["gpu"]), "spec.nodeSelector to be a mapping"),
        (_inline(nodeSelector={"gpu": "a b"}), "spec.nodeSelector.gpu to be the value of a label"),
        (_inline(nodeSelector={"g pu": "a"}), "'g pu'"),
        (_inline(nodeSelector={"gpu": 8}), "spec.nodeSelector.gpu"),
        (_inline(containers=[{**CONTAINER, "volumeMounts": {"name": "w"}}]), "volumeMounts to be a list"),
        (_inline(containers=[{**CONTAINER, "ports": [8000]}]), "spec.containers[0].ports[0] to be a mapping"),
        (_inline(containers=[{**CONTAINER, "ports": [{"name": "http"}]}]), "to have containerPort"),
        (_inline(containers=[{**CONTAINER, "ports": [{"containerPort": "8000"}]}]), "a port number"),
        (_inline(containers=[{**CONTAINER, "resources": {"limits": ["gpu"]}}]), "resources.limits to be a mapping"),
        (_inline(containers=[{**CONTAINER, "resources": {"limits": {"cpu": {}}}}]), "limits.cpu to be a quantity"),
        (_inline(volumes=[{"name": "w", "persistentVolumeClaim": {}}]), "to have claimName"),
        (_inline(volumes=[{"name": "w", "projected": {"sources": ["a"]}}]), "sources[0] to be a mapping"),
        (_inline(volumes=[{"name": "w", "projected": True}]), "volumes[0].projected to be a mapping"),
        (_inline(resourceClaims=["x"]), "spec.resourceClaims[0] to be a mapping"),
        (_inline(tolerations=["x"]), "spec.tolerations[0] to be a mapping"),
        (_inline(overhead="x"), "spec.overhead to be a mapping"),
        (inline_source(_template(podTemplate={})), "mapping spec"),
        (inline_source(_template(podTemplate={"containers": []})), "'containers'"),
    ],
)
def test_a_template_that_two_arms_cannot_have_is_explained(source: Manifest, says: str) -> None:
    problem = template_problem(source)
    assert problem is not None
    assert problem.startswith(named(source))
    assert says in problem


def test_what_is_null_in_a_template_is_not_there() -> None:
    source = _inline(
        volumes=[{"name": "w", "projected": {"sources": None}}, {"name": "x", "projected": None, "emptyDir": {}}],
        containers=[{**CONTAINER, "ports": None}],
        nodeSelector=None,
    )
    assert template_problem(source) is None
    arm = arm_deployment(RUN, "baseline", source, replicas=1, node_selector={"pool": "a"})
    pods = arm["spec"]["template"]["spec"]
    assert pods["volumes"] == [{"name": "w", "projected": {"sources": []}}, {"name": "x", "emptyDir": {}}]
    assert pods["nodeSelector"] == {"pool": "a"}
    port = {"port": 80, "targetPort": "http"}
    assert primary_port({"spec": {"ports": [port]}}, source, 80) is None


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | st.text(max_size=3),
    lambda below: (
        st.lists(below, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "ports",
                    "containerPort",
                    "resources",
                    "limits",
                    "cpu",
                    "sources",
                    "projected",
                    "volumeMounts",
                    "claimName",
                    "readOnly",
                    "persistentVolumeClaim",
                    "volumes",
                    "containers",
                    "resourceClaimName",
                    "key",
                ]
            ),
            below,
            max_size=4,
        )
    ),
    max_leaves=12,
)
FIELDS = ("containers", "initContainers", "volumes", "nodeSelector", "resourceClaims", "tolerations", "overhead")


@given(field=st.sampled_from(FIELDS), whole=SHAPES, entry=SHAPES, named_entry=st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_template_of_any_shape_is_more_than_refused(field: str, whole: Any, entry: Any, named_entry: bool) -> None:
    given_to_it: Any = [{"name": "a", **entry}] if named_entry and isinstance(entry, dict) else whole
    source = _inline(**{field: given_to_it})
    if template_problem(source) is None:
        template = source["spec"]["template"]
        arm_deployment(RUN, "baseline", source, replicas=1, node_selector={"pool": "a"})
        primary_port({"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}, source, 80)
        requests(template["spec"])
        assert pool_of({}, template["spec"]) == template["spec"].get("nodeSelector", {})
