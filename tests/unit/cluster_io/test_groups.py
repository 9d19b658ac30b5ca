"""Runs of groups in clusters where LeaderWorkerSets are, are not, or are no more; and what others made there."""

from collections.abc import Callable
from typing import Any

import pytest
from shadowrun_operator.cluster.client import ApiRefusal
from shadowrun_operator.cluster.memory import Memory
from shadowrun_operator.cluster.observe import observe
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile import times

from tests.unit.cluster_io.api_server import Fault, InMemory
from tests.unit.cluster_io.lives import OWN, RUN, Life, begun
from tests.unit.cluster_io.wire import answering, nobody

pytestmark = pytest.mark.operator

PATH = "/apis/leaderworkerset.x-k8s.io/"


class Definition:
    """Whether the cluster has the kind; a request for one that it has not is answered as an API server does."""

    def __init__(self, *, there: bool) -> None:
        self.there, self.asked = there, 0

    def __call__(self, method: str, path: str) -> Fault | None:
        if not path.startswith(PATH):
            return None
        self.asked += 1
        return None if self.there else Fault(ApiRefusal(404, "Unknown", "404 page not found"))


async def _turns(life: Life, count: int) -> None:
    for _ in range(count):
        await life.turn()


def _accepted(life: Life) -> tuple[str, str]:
    return next((c["reason"], c["message"]) for c in life.status["conditions"] if c["type"] == "Accepted")


async def test_a_run_waits_for_the_definition_and_begins_when_it_is_installed() -> None:
    definition = Definition(there=False)
    with begun("groups", definition) as life:
        await _turns(life, 3)
        reason, message = _accepted(life)
        assert (life.status["phase"], reason) == ("Pending", "LeaderWorkerSetNotFound")
        assert "This cluster has no leaderworkerset.x-k8s.io/v1" in message
        definition.there = True
        await life.until_phase("Running")


async def test_other_runs_never_ask_for_the_kind() -> None:
    definition = Definition(there=False)
    with begun("proxy", definition) as life:
        await life.until_over()
        assert life.status["endReason"] == "DurationReached"
        assert definition.asked == 0


async def test_a_run_whose_sets_go_with_their_definition_ends_and_leaves_nothing() -> None:
    definition = Definition(there=True)
    with begun("groups", definition) as life:
        await life.until_phase("Running")
        definition.there = False
        for key in [key for key in life.server.objects if key[0] == groups.KIND]:
            life.server.remove(key)
        await life.until_over()
        assert life.status["endReason"] == "ArmChanged"
        assert {kind for kind, _ in life.left} == {"ConfigMap", "Service"}


def _owned(by: str) -> Manifest:
    owner = {"apiVersion": groups.API_VERSION, "kind": groups.KIND, "name": by, "uid": "u", "controller": True}
    return {"ownerReferences": [owner]}


@pytest.mark.parametrize(
    ("kind", "name", "meta", "free"),
    [
        ("StatefulSet", "x-candidate-set", {}, False),
        ("StatefulSet", "x-candidate-set", _owned("x-candidate-set"), True),  # of an earlier run, on its way out
        ("StatefulSet", "x-candidate-set", _owned("another"), False),
        ("Service", "x-baseline-set", {}, False),
        (groups.KIND, "x-baseline-set", {}, False),
        ("Deployment", "x-candidate-worker", {}, False),
        ("Deployment", "x-control-worker", {}, True),  # the run has no control
    ],
)
async def test_what_others_have_under_the_names_of_a_set_is_not_taken_from_them(
    kind: str, name: str, meta: Manifest, free: bool
) -> None:
    with begun("groups") as life:
        theirs = {"kind": kind, "metadata": {"name": name, "namespace": "inference", **meta}, "spec": {"theirs": True}}
        life.server.put(theirs)
        await _turns(life, 4)
        assert (_accepted(life)[0] == "Accepted") is free
        if not free:
            assert f"{kind} '{name}' exists" in _accepted(life)[1]
        assert life.server.objects[kind, "inference", name]["spec"] == {"theirs": True}


def _made_unreadable(body: Manifest) -> None:
    body["spec"] |= {"duration": "a while", "stop": {"reason": "enough"}}


def _another_template(body: Manifest) -> None:
    body["spec"]["arms"]["template"] = {"deploymentRef": {"name": "chat"}}


def _long_over(body: Manifest) -> None:
    body["spec"]["duration"] = "a while"
    body["status"]["expiryTime"] = times.written(times.seconds(body["status"]["expiryTime"]) - 90 * 24 * 3600)


@pytest.mark.parametrize("change", [_made_unreadable, _another_template, _long_over])
async def test_sets_go_whatever_becomes_of_the_spec(change: Callable[[Any], None]) -> None:
    with begun("groups") as life:
        await life.until_phase("Running")
        assert {name for kind, name in life.left if kind == groups.KIND} == {"x-baseline-set", "x-candidate-set"}
        change(life.server.objects[RUN])
        life.server.objects[RUN]["metadata"]["generation"] += 1
        for _ in range(60):
            if (life.body or {}).get("status", {}).get("phase") == "Complete":
                break
            await life.turn()
        assert life.body is not None
        assert life.body["status"]["phase"] == "Complete", life.body["status"]
        assert not {kind for kind, _ in life.left} & {groups.KIND, "Deployment", "NetworkPolicy"}


async def test_pods_of_workers_are_told_from_leaders() -> None:
    with begun("groups") as life:
        await life.until_phase("Running")
        seen = await observe(InMemory(life.server), answering(nobody), OWN, life.body or {}, Memory())
    assert {(pod.name, pod.follows) for pod in seen.pods_of(names.CANDIDATE, names.MIRROR)} == {
        ("candidate-0-0", False),
        ("candidate-0-1", True),
        ("mirror-0", False),
    }
