"""The candidate is the template and one change, made of a patch and shortcuts that never speak of one field twice."""

import copy
from typing import Any

import pytest
from shadowrun_operator.api.arms import Candidate
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.arms import arm_deployment
from shadowrun_operator.manifests.candidate import candidate_patch, carries_patch, change_of, change_problem
from shadowrun_operator.manifests.names import RunRef

from tests.unit.reconcile.world import deployment

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")
SELECTORS = ({"app": "chat"}, {"role": "server"})


def _candidate(**fields: Any) -> Candidate:
    return Candidate.model_validate(fields)


def _problem(**fields: Any) -> str | None:
    return change_problem(_candidate(**fields), deployment(), selectors=SELECTORS)


def test_the_candidate_s_patch_is_marked_with_the_spec_it_belongs_to() -> None:
    patch = {"spec": {"hostname": "a"}}
    body = candidate_patch(patch, replicas=3, spec_hash="abc")
    assert body["spec"] == {"replicas": 3, "template": {"spec": {"hostname": "a"}}}
    candidate = arm_deployment(RUN, "candidate", deployment(), replicas=2)
    assert not carries_patch(candidate, "abc")
    candidate["metadata"]["annotations"] = body["metadata"]["annotations"]
    assert carries_patch(candidate, "abc")
    assert not carries_patch(candidate, "other")


def test_an_empty_patch_is_a_test_of_equal_arms() -> None:
    assert _problem() is None


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ({"kind": "Deployment"}, "'kind'"),
        ({"spec": {"replicas": 2, "template": {"spec": {}}}}, "one of a whole workload"),
        ({"spec": {"leaderWorkerTemplate": {}}}, "one of a whole workload"),
        ({"metadata": {"labels": {"app": "chat", "x": "y"}}}, "app=chat"),
        ({"metadata": {"labels": {"role": "server"}}}, "autoscaler"),
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
        ({"spec": {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}]}}, "write to"),
    ],
)
def test_a_patch_that_cannot_be_meant_is_explained(patch: Any, says: str) -> None:
    problem = _problem(patch=patch)
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
        {"spec": {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}]}},
    ],
)
def test_a_sound_patch_has_no_problem(patch: Any) -> None:
    assert _problem(patch=patch) is None


def _engine(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


CACHE = {"name": "CACHE", "value": "1", "valueFrom": None}


@pytest.mark.parametrize(
    ("candidate", "change"),
    [
        ({}, {}),
        ({"patch": _engine(args=["-x"])}, _engine(args=["-x"])),
        ({"image": "e:2"}, _engine(image="e:2")),
        ({"args": []}, _engine(args=[])),
        ({"env": [{"name": "CACHE", "value": "1"}]}, _engine(env=[CACHE])),
        ({"image": "e:2", "args": ["-x"], "container": "engine"}, _engine(image="e:2", args=["-x"])),
        ({"image": "e:2", "patch": _engine(args=["-x"])}, _engine(args=["-x"], image="e:2")),
        (
            {"env": [{"name": "CACHE", "value": "1"}], "patch": _engine(env=[{"name": "B", "value": "2"}])},
            _engine(env=[{"name": "B", "value": "2"}, CACHE]),
        ),
        (
            {"image": "e:2", "patch": {"spec": {"hostname": "a"}}},
            {"spec": {"hostname": "a", "containers": [{"name": "engine", "image": "e:2"}]}},
        ),
    ],
)
def test_shortcuts_and_patch_are_one_patch(candidate: dict[str, Any], change: dict[str, Any]) -> None:
    before = copy.deepcopy(candidate)
    assert change_problem(_candidate(**candidate), deployment(), selectors=SELECTORS) is None
    assert change_of(_candidate(**candidate), deployment()) == change
    assert candidate == before


def test_shortcuts_are_of_the_first_container_unless_one_is_named() -> None:
    source = deployment()
    source["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "s:1"})
    first, second = _candidate(image="e:2"), _candidate(image="s:2", container="side")
    assert change_of(first, source)["spec"]["containers"] == [{"name": "engine", "image": "e:2"}]
    assert change_of(second, source)["spec"]["containers"] == [{"name": "side", "image": "s:2"}]


@pytest.mark.parametrize(
    ("candidate", "says"),
    [
        ({"image": "e:2", "patch": _engine(image="e:3")}, "both set image"),
        ({"args": ["-x"], "patch": _engine(args=["-y"])}, "both set args"),
        (
            {"env": [{"name": "A", "value": "1"}], "patch": _engine(env=[{"name": "A", "value": "2"}])},
            "both set 'A'",
        ),
        ({"image": "e:2", "patch": _engine(**{"$patch": "delete"})}, "directive"),
        ({"image": "e:2", "patch": {"spec": {"containers": [{"$patch": "replace"}]}}}, "directive"),
        ({"env": [{"name": "A"}], "patch": _engine(env={"A": "2"})}, "by name"),
        ({"env": [{"name": "A"}], "patch": _engine(env=[{"$patch": "replace"}])}, "by name"),
        ({"image": "e:2", "container": "other"}, "containers are: engine"),
    ],
)
def test_a_field_is_set_in_one_place_only(candidate: dict[str, Any], says: str) -> None:
    problem = _problem(**candidate)
    assert problem is not None
    assert says in problem
