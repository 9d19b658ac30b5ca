"""A newer definition, and a newer release with other images, in the middle of a run: it goes on, and nobody notices.

The namespace has an operator of its own: only that one is upgraded.
"""

import json
from collections.abc import Iterator

import pytest

from examples.demo.scenarios import PRODUCT
from tests.cluster.base import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.plugin import RunOnce
from tests.e2e.conftest import for_one_namespace, helm_install, own_namespaces, until_rolled_out, world_with_operator
from tests.e2e.funnel import assert_status_adds_up
from tests.e2e.world import Manifest, World, capture_before, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

RUN = "upgraded"
NEXT = "next"
"""The tag of the newer images; what is in them is the same."""
DEFINITION = "shadowruns.shadowrun.dev"
ADDED = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/note"


@pytest.fixture(scope="module", autouse=True)
def world(installed: Cluster, once: RunOnce) -> Iterator[World]:
    with world_with_operator(installed, own_namespaces(once)[2]) as one:
        one.apply(shadow_run(RUN, duration="10m", capture=capture_before("chat", 2)))
        one.serve_customers()
        yield one


@pytest.fixture(scope="module")
def newer_images(installed: Cluster, world: World) -> None:
    """Made while the run warms up."""
    for image in PRODUCT:
        tag = f"{image.tag.partition(':')[0]}:{NEXT}"
        installed.build_image(tag, REPOSITORY / image.dockerfile, REPOSITORY, image.target)
        installed.load_docker_image(tag)


@pytest.fixture
def newer_definition(installed: Cluster, world: World) -> Iterator[None]:
    """One more optional field; taken back afterwards, for the definition is everybody's."""

    def patch(*operations: Manifest) -> None:
        installed.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", json.dumps(operations))

    world.running(RUN)
    patch({"op": "add", "path": ADDED, "value": {"type": "string", "maxLength": 64, "description": "A note."}})
    try:
        yield
    finally:
        patch({"op": "remove", "path": ADDED})


def count_on(world: World) -> Manifest:
    """The status once more has been counted than now."""
    before = world.status(RUN).get("pairs", 0)
    return world.running(RUN, pairs=before + 10)


def test_a_newer_definition_changes_nothing_for_a_run_that_counts(world: World, newer_definition: None) -> None:
    before = world.status(RUN)

    def noted() -> bool:
        """The API server takes a moment to know the field."""
        world.kubectl("patch", "shadowrun", RUN, "--type=merge", "-p", '{"spec": {"note": "of a newer version"}}')
        return "note" in (world.get("shadowrun", RUN) or {})["spec"]

    world.until("a field of the newer definition", noted, 30)
    status = count_on(world)
    for field in ("startTime", "expiryTime", "attempt"):
        assert status[field] == before[field]
    assert status["provenance"]["specHash"] == before["provenance"]["specHash"]
    assert_status_adds_up(status)


def test_a_newer_release_replaces_what_is_ours_and_the_run_goes_on(
    installed: Cluster, world: World, newer_images: None
) -> None:
    before, arms = world.running(RUN), world.pod_names(RUN, "baseline", "candidate")
    mirrors = world.pod_names(RUN, "mirror")
    tags = [f"--set=image.{image.target}.tag={NEXT}" for image in PRODUCT]
    helm_install(installed, world.release, *for_one_namespace(world.namespace), *tags)
    until_rolled_out(installed, world.release)

    def replaced() -> bool:
        pods = world.all("pods", f"shadowrun.dev/run={RUN},shadowrun.dev/component in (capture,mirror)")
        images = [container["image"] for pod in pods for container in pod["spec"]["containers"]]
        return len(pods) == 3 and all(image.endswith(f":{NEXT}") for image in images)

    world.until("capture and mirror of the newer images", replaced, 150)
    assert world.pod_names(RUN, "mirror").isdisjoint(mirrors)
    count_on(world)
    assert world.pod_names(RUN, "baseline", "candidate") == arms, "arms are never touched"
    world.kubectl("patch", "shadowrun", RUN, "--type=merge", "-p", '{"spec": {"duration": "11s"}}')
    status = world.wait_complete(RUN, 150)
    assert status["endReason"] == "DurationReached", status["message"]
    assert status["verdict"] != "Fail", "an upgrade says nothing about the candidate"
    assert status["startTime"] == before["startTime"]
    assert status["pairs"] > before["pairs"]
    assert_status_adds_up(status)
    assert status["funnel"]["requests"]["seen"] <= world.customers().sent, "counted twice"


def test_no_customer_noticed_any_of_it(world: World) -> None:
    seen = world.customers()
    assert seen.failed == 0, seen.failures
    assert seen.ok > 100, seen
