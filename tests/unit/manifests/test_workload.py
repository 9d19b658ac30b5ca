"""A workload has pods of one template, or groups of leaders and workers; a change reaches those it is about."""

from typing import Any

import pytest
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.manifests.workload import (
    beside_templates,
    containers_of,
    is_grouped,
    part_of_change,
    parts_of,
    pods_each,
    serving_template,
)

from tests.unit.reconcile.world import deployment, leader_worker_set

pytestmark = pytest.mark.operator


@pytest.mark.parametrize(
    ("workload", "parts", "each"),
    [
        (deployment(), [("", 1)], 1),
        (leader_worker_set(size=4), [("workerTemplate", 4)], 4),
        (leader_worker_set(size=4, leader=True), [("leaderTemplate", 1), ("workerTemplate", 3)], 4),
        (leader_worker_set(size=1, leader=True), [("leaderTemplate", 1), ("workerTemplate", 0)], 1),
    ],
)
def test_the_pods_of_a_replica_are_those_of_its_parts(
    workload: Manifest, parts: list[tuple[str, int]], each: int
) -> None:
    assert [(part.field, part.count) for part in parts_of(workload)] == parts
    assert pods_each(workload) == each
    assert is_grouped(workload) is (parts[0][0] != "")


def test_a_set_that_says_no_size_has_groups_of_one() -> None:
    workload = leader_worker_set()
    del workload["spec"]["leaderWorkerTemplate"]["size"]
    assert pods_each(workload) == 1


def test_leaders_serve() -> None:
    assert serving_template(leader_worker_set(leader=True))["spec"]["containers"][0]["name"] == "engine"
    assert containers_of(leader_worker_set(leader=True)) == ["engine", "worker"]
    assert containers_of(leader_worker_set()) == ["engine"]
    assert containers_of(deployment(), "initContainers") == []


def test_what_is_said_beside_the_templates_is_kept_apart_from_them() -> None:
    found = beside_templates(leader_worker_set(leader=True, size=4))
    assert (found["size"], found["replicas"], found["startupPolicy"]) == (4, 3, "LeaderCreated")
    assert not {"leaderTemplate", "workerTemplate", "leaderWorkerTemplate"} & found.keys()
    assert beside_templates(deployment()) == {"replicas": 4}


ENGINE: Any = {"name": "engine", "args": ["-x"]}
WORKER: Any = {"name": "worker", "args": ["-y"]}
REST: Any = {"volumes": [{"name": "v", "emptyDir": {}}]}


@pytest.mark.parametrize(
    ("entries", "of_leader", "of_worker"),
    [
        ([ENGINE, WORKER], {"containers": [ENGINE]}, {"containers": [WORKER]}),
        ([ENGINE], {"containers": [ENGINE]}, {}),
        ([{"$patch": "replace"}], {"containers": [{"$patch": "replace"}]}, {"containers": [{"$patch": "replace"}]}),
    ],
)
def test_containers_are_changed_where_they_are_and_all_else_in_both(
    entries: list[Any], of_leader: Manifest, of_worker: Manifest
) -> None:
    workload = leader_worker_set(leader=True)
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {**REST, "containers": entries}}
    leader, worker = (part_of_change(change, part, workload) for part in parts_of(workload))
    assert leader == {"metadata": {"labels": {"a": "b"}}, "spec": REST | of_leader}
    assert worker == {"metadata": {"labels": {"a": "b"}}, "spec": REST | of_worker}


def test_a_change_of_the_only_template_is_whole() -> None:
    for workload in (deployment(), leader_worker_set()):
        (part,) = parts_of(workload)
        assert part_of_change({"spec": {"containers": [WORKER]}}, part, workload) == {"spec": {"containers": [WORKER]}}
