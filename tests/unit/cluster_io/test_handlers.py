"""The glue to kopf: who is woken by what, when a loop ends, and what an exit leaves alone."""

import asyncio
from types import SimpleNamespace
from typing import Any

import kopf
import pytest
from shadowrun_operator import handlers
from shadowrun_operator.cluster.runs import Outcome
from shadowrun_operator.manifests import names

pytestmark = pytest.mark.operator

glue: Any = handlers
"""The handlers as plain functions: kopf's decorators type them by what kopf passes."""


class Stopped:
    """What kopf gives a daemon: false until it has a reason."""

    def __init__(self, reason: kopf.DaemonStoppingReason | None = None) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return self.reason is not None

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Loops:
    """Stands for `Runs`: counts passes, and releases or stops after some of them."""

    def __init__(self, stopped: Stopped | None = None, *, released_after: int = 99, stop_after: int = 99) -> None:
        self.stopped, self.released_after, self.stop_after = stopped, released_after, stop_after
        self.passes = 0
        self.woken_names: list[tuple[str, str]] = []
        self.stamp: tuple[object, ...] = ()
        self.forgotten: list[tuple[str, str]] = []
        self.driven: list[bool] = []
        self.event = asyncio.Event()

    async def pass_once(self, namespace: str, name: str) -> Outcome:
        self.passes += 1
        if self.stopped is not None and self.passes >= self.stop_after:
            self.stopped.reason = kopf.DaemonStoppingReason.OPERATOR_EXITING
        return Outcome(0.01, released=self.passes >= self.released_after)

    def woken(self, namespace: str, name: str) -> asyncio.Event:
        return self.event

    def changed(self, namespace: str, name: str, stamp: tuple[object, ...]) -> bool:
        before, self.stamp = self.stamp, stamp
        return before != stamp

    def forget(self, namespace: str, name: str) -> None:
        self.forgotten.append((namespace, name))

    def wake(self, namespace: str, name: str) -> None:
        self.woken_names.append((namespace, name))

    def driving(self, namespace: str, name: str, *, driven: bool) -> None:
        self.driven.append(driven)

    def stale(self) -> str:
        return "no sweep for 400 s" if self.passes else ""


async def _drive(loops: Loops, stopped: Stopped) -> None:
    memo: Any = SimpleNamespace(runs=loops)
    await asyncio.wait_for(glue.drive(stopped=stopped, namespace="n", name="x", memo=memo), 5)


async def test_the_loop_of_a_deleted_run_goes_on_until_everything_of_it_is_gone() -> None:
    loops = Loops(released_after=4)
    await _drive(loops, Stopped(kopf.DaemonStoppingReason.RESOURCE_DELETED))
    assert loops.passes == 4
    assert loops.driven == [True, False]


@pytest.mark.parametrize(
    "reason", [kopf.DaemonStoppingReason.OPERATOR_EXITING, kopf.DaemonStoppingReason.FILTERS_MISMATCH]
)
async def test_an_exiting_operator_and_a_finished_run_make_no_further_pass(reason: kopf.DaemonStoppingReason) -> None:
    loops = Loops()
    await _drive(loops, Stopped(reason))
    assert loops.passes == 0


async def test_a_loop_that_is_told_to_end_ends_after_its_pass() -> None:
    stopped = Stopped()
    loops = Loops(stopped, stop_after=3)
    await _drive(loops, stopped)
    assert loops.passes == 3


async def test_a_child_wakes_the_run_in_its_label_and_nobody_else() -> None:
    loops = Loops()
    memo: Any = SimpleNamespace(runs=loops)
    await glue.child_changed(namespace="n", labels={names.RUN_LABEL: "x"}, memo=memo)
    await glue.child_changed(namespace="n", labels={}, memo=memo)
    assert loops.woken_names == [("n", "x")]


async def test_our_own_status_writes_wake_nobody_but_a_finalizer_a_new_generation_and_a_deletion_do() -> None:
    loops = Loops()
    memo: Any = SimpleNamespace(runs=loops)

    async def event(kind: str = "MODIFIED", **meta: Any) -> None:
        known = {"phase": "Running", "observedGeneration": 0}
        await glue.run_changed(type=kind, namespace="n", name="x", meta={"uid": "u", **meta}, status=known, memo=memo)

    await event(generation=1)
    await event(generation=1)
    assert len(loops.woken_names) == 1
    await event(generation=2)
    assert len(loops.woken_names) == 2
    await event(generation=2, finalizers=["somebody.else/s"])
    assert len(loops.woken_names) == 2
    for _ in range(2):
        await event(generation=2, finalizers=["somebody.else/s", names.FINALIZER])
        assert len(loops.woken_names) == 3, "nothing is made before it is there"
    await event(generation=2, finalizers=[names.FINALIZER], deletionTimestamp="now")
    assert len(loops.woken_names) == 4
    await event("DELETED", generation=2)
    assert len(loops.woken_names) == 4
    assert loops.forgotten == [("n", "x")]


def test_a_complete_run_has_no_loop() -> None:
    assert handlers.has_loop(status={})
    assert handlers.has_loop(status={"phase": "Finishing"})
    assert not handlers.has_loop(status={"phase": "Complete"})


def test_a_complete_run_keeps_its_loop_as_long_as_its_arms_are_kept() -> None:
    assert handlers.has_loop(status={"phase": "Complete", "armsKeptUntil": "2027-01-15T08:00:00Z"})


async def test_a_stale_process_is_unhealthy_for_good() -> None:
    loops = Loops()
    memo: Any = SimpleNamespace(runs=loops)
    assert await glue.loops(memo=memo) == "fresh"
    loops.passes = 1
    with pytest.raises(kopf.PermanentError, match="no sweep"):
        await glue.loops(memo=memo)


def test_images_and_how_they_are_pulled_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_IMAGE", "m:1")
    monkeypatch.setenv("CAPTURE_IMAGE", "c:1")
    usual = handlers.own_settings()
    assert (usual.mirror_image, usual.capture_image) == ("m:1", "c:1")
    assert (usual.pull_policy, usual.pull_secrets) == ("IfNotPresent", ())
    monkeypatch.setenv("IMAGE_PULL_POLICY", "Always")
    monkeypatch.setenv("IMAGE_PULL_SECRETS", "a,b")
    told = handlers.own_settings()
    assert (told.pull_policy, told.pull_secrets) == ("Always", ("a", "b"))


@pytest.mark.parametrize(
    ("watch", "exclude", "covered", "left_alone"),
    [
        ("", "", ["a", "kube-system"], []),
        ("a", "", ["a"], ["b", "a-b"]),
        ("a, b,", "", ["a", "b"], ["c"]),
        ("", "own-1, x", ["a", "own-10"], ["own-1", "x"]),
    ],
)
def test_the_namespaces_to_look_after_come_from_the_environment(
    watch: str, exclude: str, covered: list[str], left_alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCH_NAMESPACES", watch)
    monkeypatch.setenv("EXCLUDE_NAMESPACES", exclude)
    ours = handlers.namespaces()
    assert all(name in ours for name in covered)
    assert not any(name in ours for name in left_alone)


async def test_kopf_never_sees_an_object_of_an_excluded_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler's own filter would not do: kopf takes its finalizer off a run that no handler wants."""
    monkeypatch.setenv("EXCLUDE_NAMESPACES", "theirs,too")
    settings = kopf.OperatorSettings()
    handlers._leave_alone(handlers.namespaces(), settings)
    registry: Any = kopf.get_default_registry()
    watched = {
        handler.selector for kind in (registry._watching, registry._spawning) for handler in kind.get_all_handlers()
    }
    assert watched
    for selector in watched:
        resource = kopf.Resource(selector.group or "", selector.version, selector.plural or selector.any_name)
        told = settings.watching.field_selectors.collect(resource)
        assert set(told) == {"metadata.namespace!=theirs,metadata.namespace!=too"}, selector


def test_no_handler_takes_kopf_s_patch() -> None:
    for name in ("startup", "cleanup", "loops", "child_changed", "run_changed", "drive"):
        code = getattr(handlers, name).__code__
        assert "patch" not in code.co_varnames


async def test_a_new_generation_of_a_complete_run_is_looked_at_once() -> None:
    loops = Loops()
    memo: Any = SimpleNamespace(runs=loops)
    for generation, passes in ((1, 0), (2, 1), (1, 1)):
        status = {"phase": "Complete", "observedGeneration": 1}
        meta = {"uid": "u", "generation": generation}
        await glue.run_changed(type="MODIFIED", namespace="n", name="x", meta=meta, status=status, memo=memo)
        assert loops.passes == passes
