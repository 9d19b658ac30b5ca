"""Arms start from what the spec names or writes out, unless two arms beside a primary could not have it."""

from typing import Any

import pytest
from shadowrun_operator.api.arms import ArmTemplate
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.template import inline_source, named, template_problem, wanted_source

from tests.unit.reconcile.world import deployment

pytestmark = pytest.mark.operator

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
        (inline_source(_template(podTemplate={})), "mapping spec"),
        (inline_source(_template(podTemplate={"containers": []})), "'containers'"),
    ],
)
def test_a_template_that_two_arms_cannot_have_is_explained(source: Manifest, says: str) -> None:
    problem = template_problem(source)
    assert problem is not None
    assert problem.startswith(named(source))
    assert says in problem
