"""Mode HTTPRoute: when our mirror filter should be in the user's route, and the steps that bring it there. Pure.

The Service that the filter names says so before the filter is there and until it is gone, so that whoever comes next
knows where to look. Every step is an edit of the route as it is at that moment, and may be repeated.
"""

from collections.abc import Iterable

from shadowrun_operator.manifests import names
from shadowrun_operator.manifests.names import Manifest, of_version
from shadowrun_operator.manifests.route import (
    claim_of,
    copied_share,
    filters_of,
    mirror_filter,
    named_rules,
    released,
    routed_service,
    says_the_same,
)
from shadowrun_operator.reconcile import times
from shadowrun_operator.reconcile.gateway import route_trouble
from shadowrun_operator.reconcile.observation import Observation
from shadowrun_operator.reconcile.plan import Apply, EditRoute, Event, Step

SETTLE_S = 10.0
"""After the filter was taken out: until no gateway sends copies any more, so that the mirror may go."""
PUT_BACK_S = 30.0
"""A filter that somebody else takes out is put back no sooner: a tool that takes it out again must not flap it."""
LEFT_S = 120.0
"""After the end, or the deletion, of a run: how long a filter that the API server lets nobody take out holds it up."""


def filter_steps(seen: Observation, *, copying: bool, at_once: bool = False) -> list[Step]:
    """The filter is there while copies are taken, with the share that holds now, and is not there otherwise."""
    wanted = seen.run.spec.capture.http_route
    if wanted is None or seen.route is None or seen.route.route is None:
        return []
    present = filters_of(seen.route.route, wanted.service_name)
    if not copying:
        return [EditRoute(wanted.name, wanted.service_name)] if present else []
    ours = mirror_filter(wanted.service_name, copied_share(seen.run.spec))
    if len(present) == 1 and says_the_same(present[0], ours):
        return []
    if not present and not (at_once or _may_be_put_back(seen)):
        return []
    if not present and len(named_rules(seen.route.route, wanted.rule)) != 1:
        return []
    return [EditRoute(wanted.name, wanted.service_name, wanted.rule, ours)]


def removal_steps(seen: Observation) -> list[Step]:
    """Take the filter out; once that is seen, the Service speaks of it no more, and says since when."""
    if filter_is_left(seen):
        return []
    steps = filter_steps(seen, copying=False)
    service = seen.capture_service
    if steps or service is None or not holds_claim(seen):
        return steps
    return [Apply(released(service, seen.now))]


def route_is_free(seen: Observation) -> bool:
    """Whether no gateway sends copies any more, as far as this can be told: the mirror may go then.

    A route that is gone, or can't be read or edited any more, keeps nobody waiting; the sweeper looks for the filter
    later.
    """
    if seen.run.spec.capture.http_route is None or seen.route is None or seen.route.route is None:
        return True
    if filter_is_there(seen):
        return filter_is_left(seen)
    return seen.given_back_since is not None and seen.now >= seen.given_back_since + SETTLE_S


def holds_claim(seen: Observation) -> bool:
    """Whether the Service for copies says that a route may hold its filter, and this run is the one to look."""
    service = seen.capture_service
    if service is None or service["metadata"].get("labels", {}).get(names.RUN_LABEL) != seen.run.name:
        return False
    refused = seen.route is not None and bool(seen.route.refused)
    return bool(claim_of(service)) and not refused and not filter_is_left(seen)


def filter_is_left(seen: Observation) -> bool:
    """Whether the run goes without its filter, which is still there so long after the end: the sweep looks after it.

    Its Service keeps the claim, so that it is found.
    """
    deleted = seen.run.metadata.deletion_timestamp
    ended = seen.record.ended_at if seen.record is not None else 0.0
    since = [at for at in (ended, times.seconds(deleted) if deleted else 0.0) if at]
    return bool(since) and seen.now >= min(since) + _longest(seen) and filter_is_there(seen)


def _longest(seen: Observation) -> float:
    """No shorter than the last evidence may take: the filter goes after it."""
    return LEFT_S + seen.run.spec.admission.timeout.seconds


def left_filter_event(seen: Observation) -> tuple[Event, ...]:
    """What to tell whoever can edit the route, if a filter is left in it."""
    wanted = seen.run.spec.capture.http_route
    if wanted is None or not filter_is_left(seen):
        return ()
    said = (
        f"HTTPRoute {wanted.name!r} still holds the filter for Service {wanted.service_name!r}: the API server refuses"
        " to have it taken out. It is tried again every minute; nobody takes its copies any more."
    )
    return (Event("Warning", "FilterLeft", said),)


def filter_is_there(seen: Observation) -> bool:
    """Whether the route holds a filter for this run's Service."""
    route = seen.route.route if seen.route is not None else None
    return route is not None and bool(filters_of(route, seen.run.spec.capture.service_name))


def wanted_service(seen: Observation) -> Manifest | None:
    """The Service that the filter names; None in any other mode."""
    wanted = seen.run.spec.capture.http_route
    return None if wanted is None else routed_service(seen.ref, wanted.service_name, route=wanted.name)


def no_copies_message(seen: Observation) -> str:
    """What to look at when the filter should be at work and no copy has been answered."""
    wanted = seen.run.spec.capture.http_route
    if wanted is None or seen.route is None:
        return ""
    rule = f"rule {wanted.rule!r} of HTTPRoute {wanted.name!r}"
    if seen.route.refused or seen.route.route is None or not filter_is_there(seen):
        return f"No copy has been answered yet: the filter is not in {rule}. {seen.route.refused}".strip()
    said = route_trouble(seen.route.route)
    if said:
        return f"No copy has been answered yet: the gateway says of HTTPRoute {wanted.name!r}: {said}"
    return (
        f"No copy has been answered yet: do customers' requests meet {rule}, with POST to spec.capture.paths? Does its"
        f" gateway reach Service {wanted.service_name!r}, port 8080?"
    )


def unclaimed_steps(services: Iterable[Manifest], now: float) -> list[Step]:
    """For Services of runs that are over: take their filter out, and then let the Service say no more of it.

    It does so only while it is the version that was seen: a run that takes it over meanwhile has a claim of its own.
    """
    steps: list[Step] = []
    for service in services:
        route = claim_of(service)
        if route:
            steps += [EditRoute(route, service["metadata"]["name"]), Apply(of_version(released(service, now), service))]
    return steps


def _may_be_put_back(seen: Observation) -> bool:
    return seen.given_back_since is None or seen.now >= seen.given_back_since + PUT_BACK_S
