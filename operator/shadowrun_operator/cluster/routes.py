"""Read a user's HTTPRoute and the gateways that serve it. Decides nothing; a right that is lacking is said, not raised.

The Gateway API may not be installed, and the operator may have no right to it: both are ordinary.
"""

import asyncio

from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.cluster.client import ApiRefusal, Cluster
from shadowrun_operator.manifests.names import Manifest
from shadowrun_operator.reconcile.gateway import GatewaySeen, RouteSeen, gateway_seen, parents_of

_FORBIDDEN = "The operator has no right to HTTPRoutes: install its chart with gatewayAPI.enabled."


async def route_seen(cluster: Cluster, run: ShadowRun, *, with_gateways: bool) -> RouteSeen | None:
    """The route that the run names, and its gateways where they matter; None in any other mode."""
    wanted = run.spec.capture.http_route
    if wanted is None:
        return None
    try:
        route = await cluster.get("HTTPRoute", run.namespace, wanted.name)
    except ApiRefusal as refusal:
        if refusal.status != 403:
            raise
        return RouteSeen(refused=_FORBIDDEN)
    if route is None or not with_gateways:
        return RouteSeen(route=route)
    gateways = await asyncio.gather(*(_gateway(cluster, *parent) for parent in parents_of(route)))
    return RouteSeen(route=route, gateways=tuple(gateways))


async def _gateway(cluster: Cluster, namespace: str, name: str) -> GatewaySeen:
    gateway = await _allowed(cluster, "Gateway", namespace, name)
    class_name = (gateway or {}).get("spec", {}).get("gatewayClassName", "")
    gateway_class = await _allowed(cluster, "GatewayClass", "", class_name) if class_name else None
    return gateway_seen(f"{namespace}/{name}", gateway, gateway_class)


async def _allowed(cluster: Cluster, kind: str, namespace: str, name: str) -> Manifest | None:
    """None also where it may not be read: then nothing is known of it."""
    try:
        return await cluster.get(kind, namespace, name)
    except ApiRefusal as refusal:
        if refusal.status != 403:
            raise
        return None
