"""The LeaderWorkerSet of an arm is the primary's in all that its pods are, and ours in all that picks them."""

import copy

import pytest
from shadowrun_operator.api.run import GROUPED_NAME_LENGTH
from shadowrun_operator.manifests import groups, names
from shadowrun_operator.manifests.arms import arm_deployment
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.workload import parts_of

from tests.unit.reconcile.world import leader_worker_set

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")


def _set(source: Manifest, arm: str = "candidate", **draft_labels: str) -> Manifest:
    drafts = {}
    for part in parts_of(source):
        name = groups.draft_of(arm, part.field)
        drafts[part.field] = arm_deployment(RUN, name, {"spec": {"template": part.template}}, replicas=0)
        drafts[part.field]["spec"]["template"]["metadata"]["labels"] |= draft_labels
    frozen = groups.taken(source)
    kept = {"metadata": {"annotations": frozen["annotations"]}, "spec": frozen["spec"]}
    return groups.arm_set(RUN, arm, kept, drafts, replicas=2, patched="abc" if arm == "candidate" else "")


@pytest.mark.parametrize("leader", [False, True])
def test_it_has_the_pods_of_its_drafts_and_the_labels_of_the_arm(leader: bool) -> None:
    made = _set(leader_worker_set(leader=leader), mesh="on")
    for part in parts_of(made):
        assert part.template["metadata"]["labels"] == {**names.labels(RUN, "candidate"), "mesh": "on"}
        assert "serviceAccountName" not in part.template["spec"]
        assert part.template["spec"]["automountServiceAccountToken"] is False
    assert [part.field for part in parts_of(made)] == (["leaderTemplate"] if leader else []) + ["workerTemplate"]


def test_how_a_group_stands_together_is_copied_and_how_many_there_are_and_how_they_roll_is_not() -> None:
    source = leader_worker_set(size=5)
    source["spec"]["leaderWorkerTemplate"] |= {
        "subGroupPolicy": {"subGroupSize": 2},
        "volumeClaimTemplates": [{"metadata": {"name": "cache"}}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    source["spec"]["networkConfig"] = {"subdomainPolicy": "UniquePerReplica"}
    spec = _set(source)["spec"]
    group = spec.pop("leaderWorkerTemplate")
    assert spec == {
        "replicas": 2,
        "startupPolicy": "LeaderCreated",
        "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
    }
    del group["workerTemplate"]
    policy = "RecreateGroupOnPodRestart"
    assert group == {"size": 5, "restartPolicy": policy, "subGroupPolicy": {"subGroupSize": 2}}


def test_annotations_that_place_groups_come_along_and_the_user_s_others_do_not() -> None:
    annotations = _set(leader_worker_set())["metadata"]["annotations"]
    placed = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    assert annotations == placed | {names.PATCHED_ANNOTATION: "abc"}
    assert _set(leader_worker_set(), "baseline")["metadata"]["annotations"] == placed
    bare = leader_worker_set()
    del bare["metadata"]["annotations"]
    assert "annotations" not in _set(bare, "baseline")["metadata"]


def test_its_controller_finds_another_name_for_its_service_than_that_of_the_arm() -> None:
    made = _set(leader_worker_set())
    assert made["metadata"]["name"] == "x-candidate-set"
    assert made["metadata"]["ownerReferences"] == [names.owner_reference(RUN)]


def test_the_longest_name_fits_the_label_that_a_controller_makes_of_it() -> None:
    longest = names.object_name("r" * GROUPED_NAME_LENGTH, groups.set_of(names.CANDIDATE))
    revision = f"{longest}-63-{'f' * 10}"  # of the workers of the last of 64 groups
    assert len(revision) == 63


def test_nothing_of_the_source_is_changed_by_it() -> None:
    source = leader_worker_set(leader=True)
    before = copy.deepcopy(source)
    _set(source)["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"].clear()
    assert source == before


def test_pods_of_an_arm_reach_each_other_and_no_other_arm() -> None:
    policy = groups.arm_group_policy(RUN, "baseline")["spec"]
    own = [{"podSelector": {"matchLabels": names.selector(RUN, "baseline")}}]
    assert policy["podSelector"] == own[0]["podSelector"]
    assert (policy["ingress"], policy["egress"]) == ([{"from": own}], [{"to": own}])


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({"app": "big", groups.INDEX_LABEL: "0"}, {"app": "big"}),
        ({groups.INDEX_LABEL: "0"}, {}),
        ({groups.NAME_LABEL: "big", groups.INDEX_LABEL: "0"}, {groups.NAME_LABEL: "big"}),
        ({groups.NAME_LABEL: "x-candidate-set"}, {}),
    ],
)
def test_labels_that_every_set_gives_its_pods_tell_nothing_apart(
    selector: dict[str, str], left: dict[str, str]
) -> None:
    assert groups.told_apart(selector, ("x-candidate-set",)) == left
