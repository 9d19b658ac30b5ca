"""`python -m shadowrun_operator`: the operator, with its liveness endpoint. Watches some namespaces, or all.

Environment, beside that of `handlers`: LOG_LEVEL, LIVENESS, METRICS_PORT (9090), and LEASE_NAME where there are several
replicas: the one that holds the Lease of that name in POD_NAMESPACE acts, the others stand by.
"""

import asyncio
import contextlib
import gc
import logging
import os
from typing import Any

import kopf
from prometheus_client import start_http_server

from shadowrun_operator import handlers
from shadowrun_operator.cluster.client import Cluster
from shadowrun_operator.cluster.lease import Lease
from shadowrun_operator.standby import run_with

LIVENESS = "http://0.0.0.0:8080/healthz"
_COLLECT_AFTER = 50_000
"""So many new objects are worth a look for cycles. By Python's own 700 every pass is looked through while it works, and
what it is about to drop is taken for lasting, so that all that the process holds is looked through every few seconds.
"""


def main() -> None:
    """Run until told to stop."""
    logging.basicConfig(
        level=os.environ.get("LOG_LEVEL", "INFO"), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    gc.set_threshold(_COLLECT_AFTER)
    start_http_server(int(os.environ.get("METRICS_PORT", "9090")))
    name = os.environ.get("LEASE_NAME", "")
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_one_of_several(name) if name else _operator(kopf.Memo()))


async def _one_of_several(name: str) -> None:
    own = await Cluster.connect()
    try:
        lease = Lease(own, os.environ["POD_NAMESPACE"], name, _identity())
        await run_with(lease, lambda: _operator(kopf.Memo(lease=lease)), liveness=_liveness())
    finally:
        await own.close()


async def _operator(memo: kopf.Memo) -> None:
    named = handlers.namespaces().named
    # kopf would ask the system for the user's name, and a container's user has none.
    identity: Any = _identity()
    await kopf.operator(
        identity=identity,
        standalone=True,
        clusterwide=not named,
        namespaces=named,
        liveness_endpoint=_liveness(),
        memo=memo,
    )


def _identity() -> str:
    return os.environ.get("POD_NAME", "shadowrun-operator")


def _liveness() -> str:
    return os.environ.get("LIVENESS", LIVENESS)


if __name__ == "__main__":
    main()
