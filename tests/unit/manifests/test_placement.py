"""Where pods of arms that change places may stand, beside whatever the template says; a pin is no difference."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadowrun_operator.manifests.arms import arm_deployment
from shadowrun_operator.manifests.difference import beyond, pod_spec_diff
from shadowrun_operator.manifests.names import Manifest, RunRef
from shadowrun_operator.manifests.placement import apart, pinned, pinned_to, unpinned

from tests.unit.reconcile.world import deployment

pytestmark = pytest.mark.operator

RUN = RunRef(name="x", namespace="inference", uid="u")
ARMS = ("baseline", "candidate")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONES = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]
AFFINITIES: dict[str, Manifest | None] = {
    "none": None,
    "nodes": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ZONES}}},
    "a wish": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}},
    "others": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "rack"}]}},
}


def _arm(arm: str, affinity: Any = None, nodes: tuple[str, ...] = ()) -> Manifest:
    source = deployment()
    if affinity is not None:
        source["spec"]["template"]["spec"]["affinity"] = copy.deepcopy(affinity)
    return arm_deployment(RUN, arm, source, replicas=len(nodes) or 1, apart_from=ARMS, nodes=nodes)


def _allows(affinity: Manifest, node: str, zone: str) -> bool:
    """As the scheduler reads it: one term of which everything holds."""
    terms = affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    values = {"zone": zone, "metadata.name": node}
    return any(
        all(values[e["key"]] in e["values"] for e in [*t.get("matchExpressions", []), *t.get("matchFields", [])])
        for t in terms
    )


@pytest.mark.parametrize("affinity", AFFINITIES.values(), ids=AFFINITIES.keys())
def test_pins_are_no_difference_between_arms_and_all_else_is(affinity: Any) -> None:
    baseline, candidate = _arm("baseline", affinity, ("n2", "n3")), _arm("candidate", affinity, ("n0", "n1"))
    control = _arm("control", affinity)
    assert pinned_to(baseline["spec"]["template"]["spec"]) == {"n2", "n3"}
    control["spec"]["replicas"] = 2
    for other in (candidate, control):
        assert pod_spec_diff(baseline, other) == []
        assert beyond(baseline, other, {}) == []
    candidate["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][REQUIRED][0]["topologyKey"] = "elsewhere"
    assert pod_spec_diff(baseline, candidate) == [f"spec.affinity.podAntiAffinity.{REQUIRED}"]


@pytest.mark.parametrize("affinity", AFFINITIES.values(), ids=AFFINITIES.keys())
def test_without_its_pin_a_pod_is_what_it_was(affinity: Any) -> None:
    before: Manifest = {"containers": [], "affinity": apart(affinity, RUN, ARMS)}
    after = {**before, "affinity": pinned(before["affinity"], ["n1", "n2", "n3"])}
    assert unpinned(after) == before
    assert unpinned(before) is before


def test_a_pin_narrows_what_the_template_allows_and_never_widens_it() -> None:
    affinity = pinned(AFFINITIES["nodes"], ["n1", "n2"])
    allowed = {(n, z) for n in ("n1", "n2", "n3") for z in ("a", "b", "c") if _allows(affinity, n, z)}
    assert allowed == {("n1", "a"), ("n1", "b"), ("n2", "a"), ("n2", "b")}


@given(nodes=st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), unique=True, min_size=1))
def test_pods_go_to_any_of_the_named_nodes_and_to_no_other(nodes: list[str]) -> None:
    affinity = pinned(None, nodes)
    assert {n for n in ("n1", "n2", "n3", "n4") if _allows(affinity, n, "a")} == set(nodes)
    assert pinned_to({"affinity": affinity}) == set(nodes)


def test_every_pod_of_an_arm_keeps_away_from_all_of_them_and_the_template_from_what_it_did() -> None:
    (theirs, ours) = apart(AFFINITIES["others"], RUN, ARMS)["podAntiAffinity"][REQUIRED]
    assert theirs == {"topologyKey": "rack"}
    assert ours["topologyKey"] == "kubernetes.io/hostname"
    assert ours["labelSelector"]["matchLabels"] == {"shadowrun.dev/run": "x"}
    assert ours["labelSelector"]["matchExpressions"][0]["values"] == ["baseline", "candidate"]


def test_the_template_is_never_written_to() -> None:
    affinity = copy.deepcopy(AFFINITIES["nodes"])
    pinned(apart(affinity, RUN, ARMS), ["n1"])
    assert affinity == AFFINITIES["nodes"]
