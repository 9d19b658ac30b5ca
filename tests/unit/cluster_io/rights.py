"""The rights that the operator's code needs: what every kind of life of a run asks an API server for."""

import asyncio
from functools import cache

from shadowrun_operator.cluster.lease import Lease

from tests.unit.cluster_io.api_server import ApiServer, InMemory, Right
from tests.unit.cluster_io.lives import MODES, RUN, begun, candidate_is_wrong

FRAMEWORK: frozenset[Right] = frozenset(
    {("shadowrun.dev", "shadowruns", verb) for verb in ("list", "watch", "patch")}
    | {(group, plural, verb) for group, plural in (("apps", "deployments"), ("", "pods")) for verb in ("list", "watch")}
)
"""What kopf does: it watches what has handlers, and keeps its finalizer and its notes on the runs."""
OWNERSHIP: frozenset[Right] = frozenset({("shadowrun.dev", "shadowruns/finalizers", "update")})
"""Some API servers ask for it of whoever makes an object that blocks its owner's deletion."""
GATEWAY_API = "gateway.networking.k8s.io"


@cache
def of_the_code() -> frozenset[Right]:
    """Of the operator with the Gateway API, without a Lease. Runs in every mode end; others vanish or are refused."""
    return frozenset(asyncio.run(_of_lives()))


def of_the_lease() -> frozenset[Right]:
    """Of one that is taken, renewed and given up."""
    return frozenset(asyncio.run(_of_a_lease()))


async def _of_lives() -> set[Right]:
    used = set(FRAMEWORK | OWNERSHIP)
    for mode in MODES:
        with begun(mode) as life:
            await life.until_over()
            used |= life.server.used
    for changes in (
        {},
        {"arms": {"credentialsSecretRef": {"name": "key", "key": "token"}}},
        {"arms": {"template": {"deploymentRef": None, "statefulSetRef": {"name": "set"}}}},
    ):
        with begun("proxy") as life:
            life.edit(**changes)
            for _ in range(12):
                await life.turn()
            life.server.objects.pop(RUN)
            for _ in range(20):
                await life.turn()
            used |= life.server.used
    with begun("proxy", candidate_is_wrong) as life:
        for _ in range(12):
            await life.turn()
        used |= life.server.used
    return used


async def _of_a_lease() -> set[Right]:
    server = ApiServer()
    lease = Lease(InMemory(server), "system", "operator", "a")
    await lease.acquired()
    assert await lease._tried()
    await lease.give_up()
    return server.used
