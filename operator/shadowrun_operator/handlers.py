"""kopf glue: watches wake loops, one loop per run calls `Runs`. No decision is taken here, and kopf patches no status.

Environment: MIRROR_IMAGE and CAPTURE_IMAGE (required), IMAGE_PULL_POLICY and IMAGE_PULL_SECRETS (for their pods),
POD_NAMESPACE and POD_NAME (in a cluster), WATCH_NAMESPACES and EXCLUDE_NAMESPACES.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

import kopf

from shadowrun_operator.api.run import GROUP, PLURAL, VERSION
from shadowrun_operator.cluster.client import ApiRefusal, ApiUnreachable, Cluster
from shadowrun_operator.cluster.lease import Lease
from shadowrun_operator.cluster.namespaces import Namespaces
from shadowrun_operator.cluster.replicas import Replicas
from shadowrun_operator.cluster.runs import FOLLOW_S, SWEEP_S, Runs
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile.observation import Settings

_OURS = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"

log = logging.getLogger(__name__)


def namespaces() -> Namespaces:
    """Those of WATCH_NAMESPACES, empty means all, without those of EXCLUDE_NAMESPACES."""
    return Namespaces(_listed("WATCH_NAMESPACES"), _listed("EXCLUDE_NAMESPACES"))


def own_settings(*, kubernetes: str = "") -> Settings:
    """The operator's surroundings, as its environment tells them. Raises `KeyError` without the images."""
    return Settings(
        mirror_image=os.environ["MIRROR_IMAGE"],
        capture_image=os.environ["CAPTURE_IMAGE"],
        namespace=os.environ.get("POD_NAMESPACE", ""),
        version=version("shadowrun"),
        kubernetes=kubernetes,
        pull_policy=os.environ.get("IMAGE_PULL_POLICY", "IfNotPresent"),
        pull_secrets=_listed("IMAGE_PULL_SECRETS"),
    )


def _listed(variable: str) -> tuple[str, ...]:
    """The names in an environment variable, separated by commas."""
    return tuple(name.strip() for name in os.environ.get(variable, "").split(",") if name.strip())


@kopf.on.startup()
async def startup(settings: kopf.OperatorSettings, memo: Any, **_: Any) -> None:
    """Settle kopf, connect, and start the sweeper."""
    for chatty in ("kopf.objects", "kopf.activities.probe", "aiohttp.access"):  # they tell of every event and probe
        logging.getLogger(chatty).setLevel(logging.WARNING)
    instance = os.environ.get("POD_NAME", "shadowrun-operator")
    settings.persistence.finalizer = names.FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, v1=False)
    settings.posting.enabled = False  # events are written by `cluster.events`, on transitions only
    settings.scanning.disabled = True
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.label_selectors["apps", "v1", "deployments"] = _OURS
    settings.watching.label_selectors["", "v1", "pods"] = _OURS
    _leave_alone(namespaces(), settings)
    settings.background.cancellation_polling = 1
    settings.background.instant_exit_timeout = 0.5
    settings.process.ultimate_exiting_timeout = 25
    lease: Lease | None = memo.get("lease")
    cluster = await Cluster.connect() if lease is None else await Cluster.connect(lease.is_held)
    settings_now = own_settings(kubernetes=await _kubernetes_version(cluster))
    memo.runs = Runs(cluster, Replicas(), settings_now, instance=instance, namespaces=namespaces())
    memo.tasks = [
        asyncio.create_task(_for_ever(memo.runs.sweep, SWEEP_S, "The sweep")),
        asyncio.create_task(_for_ever(memo.runs.follow, FOLLOW_S, "Following the primaries")),
    ]


def _leave_alone(ours: Namespaces, settings: kopf.OperatorSettings) -> None:
    """kopf must not even see another operator's runs: it takes its finalizer off what no handler here needs."""
    if ours.field_selector:
        for group, version, plural in ((GROUP, VERSION, PLURAL), ("apps", "v1", "deployments"), ("", "v1", "pods")):
            settings.watching.field_selectors[group, version, plural] = ours.field_selector


async def _kubernetes_version(cluster: Cluster) -> str:
    """For the provenance of runs; an API server that does not say it is no reason not to start."""
    try:
        return await cluster.version()
    except (ApiRefusal, ApiUnreachable) as error:
        log.warning("The API server does not say its version: %s", error)
        return ""


@kopf.on.cleanup()
async def cleanup(memo: Any, **_: Any) -> None:
    """Leave every run as it is."""
    for task in memo.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await memo.runs.close()


@kopf.on.probe(id="loops", errors=kopf.ErrorsMode.PERMANENT)
async def loops(memo: Any, **_: Any) -> str:
    """Unhealthy when the sweeper or a run's loop has not passed for too long."""
    problem: str = memo.runs.stale()
    if problem:
        raise kopf.PermanentError(problem)
    return "fresh"


@kopf.on.event("apps", "v1", "deployments", labels={names.MANAGED_BY_LABEL: names.MANAGED_BY})
@kopf.on.event("", "v1", "pods", labels={names.MANAGED_BY_LABEL: names.MANAGED_BY})
async def child_changed(namespace: str | None, labels: Mapping[str, str], memo: Any, **_: Any) -> None:
    """Something of a run has changed: its loop looks now."""
    run = labels.get(names.RUN_LABEL)
    if run:
        memo.runs.wake(namespace or "", run)


@kopf.on.event(GROUP, VERSION, PLURAL)
async def run_changed(
    type: str,  # noqa: A002  the name kopf gives it
    namespace: str | None,
    name: str,
    meta: Any,
    status: Any,
    memo: Any,
    **_: Any,
) -> None:
    """A new generation, the finalizer, or a deletion; our own status writes change none of them and wake nobody.

    A complete run has no loop that could be woken: one pass says that its new generation was seen.
    """
    key = (namespace or "", name)
    if type == "DELETED":
        memo.runs.forget(*key)
    elif not has_loop(status) and status.get("observedGeneration") != meta.get("generation"):
        await memo.runs.pass_once(*key)
    else:
        held = names.FINALIZER in (meta.get("finalizers") or ())
        if memo.runs.changed(*key, (meta.get("uid"), meta.get("generation"), meta.get("deletionTimestamp"), held)):
            memo.runs.wake(*key)


def has_loop(status: Any, **_: Any) -> bool:
    """Finished runs have no loop and no finalizer of ours, but for those whose arms are kept for a while."""
    return bool(status.get("phase") != "Complete" or status.get("armsKeptUntil"))


@kopf.daemon(GROUP, VERSION, PLURAL, id="drive", when=has_loop, backoff=5)
async def drive(stopped: kopf.DaemonStopped, namespace: str | None, name: str, memo: Any, **_: Any) -> None:
    """The loop of one run. A deleted one is taken down before its finalizer goes; an exiting operator leaves all be."""
    runs: Runs = memo.runs
    key = (namespace or "", name)
    runs.driving(*key, driven=True)
    try:
        while True:
            if stopped and not _deleted(stopped):
                return
            outcome = await runs.pass_once(*key)
            if outcome.released:
                return
            await _wait(runs.woken(*key), stopped, outcome.requeue_after)
    finally:
        runs.driving(*key, driven=False)


def _deleted(stopped: kopf.DaemonStopped) -> bool:
    reason = stopped.reason
    return reason is not None and kopf.DaemonStoppingReason.RESOURCE_DELETED in reason


async def _wait(woken: asyncio.Event, stopped: kopf.DaemonStopped, seconds: float) -> None:
    """Until something changes, the time has come, or the loop must end; a deletion in progress only waits."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(woken.wait())]
    if not stopped:
        waits.append(asyncio.ensure_future(_stopped_within(stopped, seconds)))
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _stopped_within(stopped: kopf.DaemonStopped, seconds: float) -> None:
    await stopped.wait(seconds)  # awaitable, but not a coroutine


async def _for_ever(work: Callable[[], Awaitable[None]], seconds: float, called: str) -> None:
    """From the start on: a deletion that the last process did not finish has left its path to the sweeper."""
    while True:
        try:
            await work()
        except (ApiRefusal, ApiUnreachable) as error:
            log.warning("%s failed and will be repeated: %s", called, error)
        except Exception:
            log.exception("%s failed and will be repeated", called)
        await asyncio.sleep(seconds)
