"""What a strategic-merge patch does to an arm on a real API server is what we say of it, defaults included.

No pod is started: the arms have no replicas, and nothing runs that would fill them.
"""

import json
from typing import Any

import pytest
import yaml
from shadowrun_operator.api.arms import Candidate
from shadowrun_operator.manifests.arms import arm_deployment
from shadowrun_operator.manifests.candidate import candidate_patch, change_of, change_problem
from shadowrun_operator.manifests.difference import beyond, pod_spec_diff
from shadowrun_operator.manifests.names import Manifest, RunRef

from tests.integration.api.conftest import NAMESPACE, HasApi, Runs

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

ENGINE = {
    "name": "engine",
    "image": "engine:1",
    "args": ["--port=8000"],
    "env": [{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "ports": [{"name": "http", "containerPort": 8000}],
    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
}
SOURCE: Manifest = {
    "kind": "PodTemplate",
    "metadata": {"name": "podTemplate"},
    "spec": {
        "template": {
            "spec": {
                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                "containers": [ENGINE, {"name": "side", "image": "side:1"}],
            }
        }
    },
}


def containers(*changed: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A candidate with a patch of these containers."""
    return {"patch": {"spec": {"containers": list(changed), **spec}}}


CANDIDATES: dict[str, dict[str, Any]] = {
    "equal arms": {},
    "an image": {"image": "engine:2"},
    "args, and none": {"args": []},
    "a value instead of a reference": {"env": [{"name": "NODE", "value": "x"}]},
    "a new variable": {"env": [{"name": "Z", "value": "1"}]},
    "everything at once": {
        "image": "engine:latest",
        "args": ["-x"],
        "env": [{"name": "A", "value": "2"}],
        **containers({"name": "engine", "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}}}),
    },
    "the other container": {"image": "side:2", "container": "side"},
    "a container left out": containers({"name": "side", "$patch": "delete"}),
    "resources and volumes": containers(
        {
            "name": "engine",
            "resources": {"limits": {"nvidia.com/gpu": 2}},
            "volumeMounts": [{"name": "cfg", "mountPath": "/cfg"}],
        },
        volumes=[{"name": "cfg", "configMap": {"name": "cfg"}}],
        tolerations=[{"key": "gpu", "operator": "Exists"}],
    ),
}


class Arms:
    """A baseline and a candidate, as the API server stored them."""

    def __init__(self, server: HasApi, name: str, candidate: Candidate) -> None:
        self._server, self._name = server, name
        self.change = change_of(candidate, SOURCE)
        for arm in ("baseline", "candidate"):
            made = arm_deployment(RunRef(name=name, namespace=NAMESPACE, uid="u"), arm, SOURCE, replicas=0)
            del made["metadata"]["ownerReferences"]
            server.kubectl("create", "-f", "-", input=yaml.safe_dump(made))
        self.patch("candidate", candidate_patch(self.change, replicas=0, spec_hash="h"))

    def patch(self, arm: str, body: Manifest) -> None:
        """A strategic-merge patch, as the operator sends it."""
        line = ("-n", NAMESPACE, "patch", "deployment", f"{self._name}-{arm}", "--type=strategic", "-p")
        self._server.kubectl(*line, json.dumps(body))

    def stored(self, arm: str) -> Manifest:
        """The Deployment now."""
        line = ("-n", NAMESPACE, "get", "deployment", f"{self._name}-{arm}", "-o", "json")
        found: Manifest = json.loads(self._server.kubectl(*line))
        return found


@pytest.mark.parametrize("number", range(len(CANDIDATES)), ids=CANDIDATES.keys())
def test_a_change_accounts_for_all_that_the_api_server_makes_of_it(server: HasApi, runs: Runs, number: int) -> None:
    candidate = Candidate.model_validate(list(CANDIDATES.values())[number])
    assert change_problem(candidate, SOURCE, selectors=()) is None
    arms = Arms(server, f"patched-{number}", candidate)
    baseline, changed = arms.stored("baseline"), arms.stored("candidate")
    assert beyond(baseline, changed, arms.change) == []
    assert (pod_spec_diff(baseline, changed) == []) is (number == 0), "a change changes something"


def test_what_somebody_else_changes_is_found_among_what_the_patch_changed(server: HasApi, runs: Runs) -> None:
    candidate = Candidate.model_validate({"image": "engine:2", "env": [{"name": "A", "value": "2"}]})
    arms = Arms(server, "meddled", candidate)
    env = [{"name": "HTTP_PROXY", "value": "http://p"}]
    arms.patch("candidate", {"spec": {"template": {"spec": {"containers": [{"name": "engine", "env": env}]}}}})
    arms.patch("baseline", {"spec": {"template": {"metadata": {"annotations": {"mesh": "on"}}}}})
    assert beyond(arms.stored("baseline"), arms.stored("candidate"), arms.change) == [
        "metadata.annotations.mesh",
        "spec.containers[engine].env[HTTP_PROXY].name",
        "spec.containers[engine].env[HTTP_PROXY].value",
    ]
