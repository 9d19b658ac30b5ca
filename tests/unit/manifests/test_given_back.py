"""The Service that a run leaves to customers leads where the primary's Service leads, for as long as it is ours."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.given_back import followed, given_back, stands_for
from shadowrun_operator.manifests.names import Manifest

from tests.unit.reconcile.world import World

pytestmark = pytest.mark.operator


@pytest.fixture(scope="module")
def ended() -> World:
    world = World.with_spec()
    world.until("Complete")
    return world


@pytest.fixture
def left(ended: World) -> Manifest:
    """The Service as an ended run leaves it."""
    service = copy.deepcopy(ended.objects["Service", "chat-shadowed"])
    service["metadata"]["resourceVersion"] = "7"
    return service


@pytest.fixture
def primary(ended: World) -> Manifest:
    return copy.deepcopy(ended.users["Service", "chat"])


def test_it_says_whom_it_stands_for_and_nothing_is_written_while_that_leads_to_the_same_pods(
    left: Manifest, primary: Manifest
) -> None:
    assert stands_for(left) == ("chat", 8000)
    assert followed(left, primary) is None


def _blue_green(primary: Manifest) -> None:
    primary["spec"]["selector"] = {"app": "chat", "color": "green"}


def _other_target(primary: Manifest) -> None:
    primary["spec"]["ports"][0]["targetPort"] = 9000


@pytest.mark.parametrize("change", [_blue_green, _other_target])
def test_a_change_of_the_primary_s_selector_or_target_is_followed_and_then_nothing_more(
    left: Manifest, primary: Manifest, change: Callable[[Manifest], None]
) -> None:
    change(primary)
    after = followed(left, primary)
    assert after is not None
    assert after["spec"]["selector"] == primary["spec"]["selector"]
    assert after["spec"]["ports"][0]["targetPort"] == primary["spec"]["ports"][0]["targetPort"]
    assert after["metadata"]["resourceVersion"] == "7", "a run that takes the Service over meanwhile is not disturbed"
    assert after["metadata"]["labels"] == left["metadata"]["labels"]
    assert followed(after, primary) is None
    kept = names.GIVEN_BACK_ANNOTATION
    assert after["metadata"]["annotations"][kept] == left["metadata"]["annotations"][kept]


def test_what_it_would_be_given_back_to_is_followed_too(left: Manifest, primary: Manifest) -> None:
    _blue_green(primary)
    after = followed(left, primary)
    assert after is not None
    again = given_back(after, 5.0)
    assert again is not None
    assert again["spec"]["selector"] == primary["spec"]["selector"]
    assert stands_for(again) == ("chat", 8000)


def _without_selector(primary: Manifest) -> None:
    primary["spec"]["selector"] = None


def _without_port(primary: Manifest) -> None:
    _blue_green(primary)
    primary["spec"]["ports"][0]["port"] = 1234


def _elsewhere(primary: Manifest) -> None:
    _blue_green(primary)
    primary["spec"]["type"] = "ExternalName"


def _ours(primary: Manifest) -> None:
    _blue_green(primary)
    primary["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}


@pytest.mark.parametrize("change", [_without_selector, _without_port, _elsewhere, _ours])
def test_a_primary_that_cannot_be_stood_for_any_more_leaves_customers_where_they_are(
    left: Manifest, primary: Manifest, change: Callable[[Manifest], None]
) -> None:
    change(primary)
    assert followed(left, primary) is None


def test_a_primary_that_somebody_else_manages_is_followed(left: Manifest, primary: Manifest) -> None:
    _blue_green(primary)
    primary["metadata"]["labels"] = {names.MANAGED_BY_LABEL: "Helm"}
    assert followed(left, primary) is not None


def test_nothing_is_followed_where_the_primary_s_service_is_gone_or_the_service_does_not_say_whose(
    left: Manifest, primary: Manifest
) -> None:
    _blue_green(primary)
    assert followed(left, None) is None
    del left["metadata"]["annotations"][names.STANDS_FOR_ANNOTATION]
    assert followed(left, primary) is None


@pytest.mark.parametrize("said", ["chat", "chat:", ":8000", "chat:http", ""])
def test_a_note_that_somebody_made_unreadable_is_none(left: Manifest, said: Any) -> None:
    left["metadata"]["annotations"][names.STANDS_FOR_ANNOTATION] = said
    assert stands_for(left) is None


def test_a_service_that_selects_capture_is_its_run_s_affair(primary: Manifest) -> None:
    world = World.with_spec()
    world.until("Running")
    service = world.objects["Service", "chat-shadowed"]
    _blue_green(primary)
    assert stands_for(service) is None
    assert followed(service, primary) is None
