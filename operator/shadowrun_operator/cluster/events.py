"""Events on a ShadowRun: one POST each, and only for what the plan calls a transition. Never stops anything."""

import logging

from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.manifests.names import API_VERSION, KIND, RunRef
from shadowrun_operator.reconcile.plan import Event

COMPONENT = "shadowrun-operator"
_LONGEST = 1000  # the API server refuses messages above 1024 characters

log = logging.getLogger(__name__)


async def record(cluster: Cluster, run: RunRef, event: Event, *, at: str, instance: str) -> None:
    """Write one event at `at` (RFC 3339); a refusal is logged, since an event is news and not state."""
    message = event.message if len(event.message) <= _LONGEST else event.message[: _LONGEST - 1] + "…"
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{run.name[:50]}.", "namespace": run.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": run.name,
            "namespace": run.namespace,
            "uid": run.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "action": event.reason,
        "message": message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
    }
    try:
        await cluster.create(body)
    except (ApiRefusal, ApiUnreachable) as error:
        log.warning("Event %s of %s/%s was not written: %s", event.reason, run.namespace, run.name, error)
