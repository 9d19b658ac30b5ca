"""How many requests a run costs the API server, by what it is doing: many runs share one server."""

from typing import Any

import pytest
from shadowrun_operator.api.run import ShadowRun
from shadowrun_operator.api.status import Status
from shadowrun_operator.cluster import apply
from shadowrun_operator.cluster.evidence_store import read_back
from shadowrun_operator.cluster.observe import COPYING_S, WAITING_S
from shadowrun_operator.manifests import names
from shadowrun_operator.reconcile import objects
from shadowrun_operator.reconcile.judging import with_progress
from shadowrun_operator.reconcile.progress import progress
from shadowrun_operator.reconcile.schedule import waits_until

from tests.unit.cluster_io.api_server import merged
from tests.unit.cluster_io.lives import Life, begun
from tests.unit.reconcile.world import UID, World

pytestmark = pytest.mark.operator

CONFIG_MAPS = "/api/v1/namespaces/inference/configmaps"
EVIDENCE = f"GET {CONFIG_MAPS}/x-evidence"
OTHERS = "GET /apis/shadowrun.dev/v1alpha1/namespaces/inference/shadowruns"
PODS = "GET /api/v1/namespaces/inference/pods"
POLL_S = 3.0
ALWAYS = 4
"""The run, the Services of primary and capture, and whether the evidence is still what was stored."""
OWN = 5
"""Lists of what carries the run's labels, beside ConfigMaps."""
NAMES = 11
"""Names that a run with two arms is going to need."""
LATER = {"schedule": {"startTime": "2099-01-01T00:00:00Z"}}
NOBODY = {"primary": {"service": {"name": "nobody"}}}


class Requests:
    """Counts them, and spoils none."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, method: str, path: str) -> None:
        self.made.append(f"{method} {path}")

    @property
    def writes(self) -> list[str]:
        return [request for request in self.made if not request.startswith("GET")]


async def _reads(life: Life, requests: Requests, seconds: float) -> list[int]:
    """Of each pass of so long a time, in which nothing happens to the run."""
    reads, until = [], life.world.now + seconds
    while life.world.now < until:
        requests.made.clear()
        await life.look()
        reads.append(len(requests.made) - len(requests.writes))
    return reads


@pytest.mark.parametrize(
    ("mode", "spec", "phase", "usual", "anew", "every"),
    [
        ("proxy", LATER, "Pending", ALWAYS, ALWAYS + OWN + NAMES + 4, WAITING_S),  # pods, template, ledger, other runs
        ("proxy", {}, "WarmingUp", ALWAYS + 1, ALWAYS + OWN + 4, COPYING_S),  # pods, template, ledger, node
        ("proxy", {}, "Running", ALWAYS + 1, ALWAYS + OWN + 3, COPYING_S),  # pods, template, node
        ("another proxy", {}, "Running", ALWAYS, ALWAYS + OWN + 3, COPYING_S),
        ("route", {}, "Running", ALWAYS + 1, ALWAYS + OWN + 4, COPYING_S),  # and the route
        ("several mirrors", {}, "Running", ALWAYS + 1, ALWAYS + OWN + 3, COPYING_S),
    ],
)
async def test_while_nothing_happens_a_pass_reads_what_is_decided_on_and_the_rest_now_and_then(
    mode: str, spec: dict[str, Any], phase: str, usual: int, anew: int, every: float
) -> None:
    requests = Requests()
    with begun(mode, requests) as life:
        life.world.rate = 0.0 if phase == "WarmingUp" else life.world.rate
        life.edit(**spec)
        await life.until_phase(phase)
        reads = await _reads(life, requests, 4 * every)
        assert life.phases[-1] == phase
    assert sorted(reads)[len(reads) // 2] == usual
    assert max(reads) == anew
    assert sum(count > usual + 1 for count in reads) <= 9, "it was long enough, or something was stored"


@pytest.mark.parametrize(
    ("mode", "spec", "placed", "phase", "most"),
    [
        ("proxy", NOBODY, True, "Pending", ALWAYS + OWN + NAMES + 4),
        ("proxy", {}, True, "Preparing", ALWAYS + OWN + 5),  # pods, template, ledger, other runs, node
        ("crossover", {}, False, "Preparing", ALWAYS + OWN + 7),  # no node of theirs, but the room on two: 3 lists
    ],
)
async def test_who_is_about_to_make_something_asks_everything_every_time(
    mode: str, spec: dict[str, Any], placed: bool, phase: str, most: int
) -> None:
    requests = Requests()
    with begun(mode, requests) as life:
        life.world.starting = False
        if not placed:
            life.world.nodes.clear()  # no arm's pod is given a node
        life.edit(**spec)
        await life.until_phase(phase)
        reads = await _reads(life, requests, 60.0)
        assert life.phases[-1] == phase
    assert min(reads) > ALWAYS + OWN
    assert max(reads) == most


async def test_a_run_that_waits_for_its_time_writes_nothing() -> None:
    requests = Requests()
    with begun("daily window", requests) as life:
        await life.until_phase("Pending")
        requests.made.clear()
        for _ in range(10):
            await life.turn()
        assert requests.writes == []
        assert requests.made, "although it was looked at"


async def test_a_suspended_run_writes_twice_a_minute_at_most() -> None:
    requests = Requests()
    with begun("proxy", requests) as life:
        await life.until_phase("Running")
        life.edit(suspend=True)
        for _ in range(5):
            await life.turn()
        requests.made.clear()
        for _ in range(20):
            await life.turn(POLL_S)
        assert life.phases[-1] == "Running"
        assert len(requests.writes) <= 2, requests.writes


async def test_what_is_stored_is_not_read_again_and_no_other_run_is_looked_at_while_copying() -> None:
    requests = Requests()
    with begun("proxy", requests) as life:
        await life.until_phase("Running")
        life.server.given.clear()
        requests.made.clear()
        for _ in range(30):
            await life.turn(POLL_S)
        written = requests.writes.count(f"PATCH {CONFIG_MAPS}/x-evidence")
        assert 2 <= written <= 4
        assert life.server.given[EVIDENCE] == 0
        assert life.server.given[OTHERS] <= 2, "by the sweep"


async def test_each_version_of_a_run_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    parse = ShadowRun.parse

    def counting(body: Any) -> ShadowRun:
        read.append(body["metadata"]["resourceVersion"])
        return parse(body)

    with begun("proxy") as life:
        await life.until_phase("Running")
        monkeypatch.setattr(ShadowRun, "parse", counting)
        for _ in range(20):
            await life.turn(POLL_S)
        assert len(read) == len(set(read))
        assert 4 <= len(read) <= 8, "counts are written every ten seconds, and seen after that"


async def test_the_run_s_own_objects_are_not_made_anew_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("capture_secret", "capture_service", "mirror_deployment"):
        build = getattr(objects, name)

        def counting(*args: Any, build: Any = build, **rest: Any) -> Any:
            made.append(build.__name__)
            return build(*args, **rest)

        monkeypatch.setattr(objects, name, counting)
    with begun("proxy") as life:
        await life.until_phase("Running")
        assert made
        made.clear()
        for _ in range(20):
            await life.turn(POLL_S)
        assert made == []


async def test_what_somebody_else_made_of_the_evidence_is_read() -> None:
    with begun("proxy") as life:
        await life.until_phase("Running")
        await life.turn(POLL_S)
        life.server.given.clear()
        life.server.put(life.server.objects["ConfigMap", "inference", "x-evidence"])
        await life.turn(POLL_S)
        assert life.server.given[EVIDENCE] == 1


async def test_evidence_that_is_gone_is_missed_at_the_next_look() -> None:
    with begun("proxy") as life:
        await life.until_phase("Running")
        await life.turn(POLL_S)
        life.server.remove(("ConfigMap", "inference", "x-evidence"))
        await life.turn(POLL_S)
        assert life.status["phase"] == "Finishing"
        assert "x-evidence" in life.status["message"]


async def test_an_arm_that_was_edited_is_heard_of_and_a_secret_that_is_gone_is_missed_in_time() -> None:
    for kind, name, seconds in (("Deployment", "x-candidate", POLL_S), ("Secret", "x-mirror", COPYING_S)):
        with begun("proxy") as life:
            await life.until_phase("Running")
            await life.turn(POLL_S)
            if kind == "Secret":
                life.server.remove((kind, "inference", name))
            else:
                life.server.objects[kind, "inference", name]["metadata"]["generation"] += 1
            until = life.world.now + seconds
            while life.world.now <= until:
                await life.turn(POLL_S)
            assert life.status["endReason"] == ("EvidenceLost" if kind == "Secret" else "ArmChanged")


async def test_a_pod_that_does_not_answer_is_looked_for_though_nobody_has_heard_of_its_end() -> None:
    requests = Requests()
    with begun("another proxy", requests) as life:
        await life.until_phase("Running")
        while await _reads(life, requests, POLL_S) != [ALWAYS]:
            assert life.phases[-1] == "Running"
        life.world.kill("mirror-0")
        life._pass_time(POLL_S)
        requests.made.clear()
        await life.runs.pass_once("inference", "x")
        assert PODS not in requests.made, "nobody has heard of it"
        await life.runs.pass_once("inference", "x")
        assert PODS in requests.made
        requests.made.clear()
        await life.runs.pass_once("inference", "x")
        assert PODS not in requests.made, "the new one answers"


async def test_customers_get_their_way_back_though_nobody_has_heard_that_no_envoy_is_ready() -> None:
    with begun("proxy") as life:
        await life.until_phase("Running")
        for _ in range(3):
            await life.look()
        assert _leads_to_capture(life)
        life.world.starting = False
        life._pass_time(POLL_S)
        await life.runs.pass_once("inference", "x")
        assert not _leads_to_capture(life)


def _leads_to_capture(life: Life) -> bool:
    selector = life.server.objects["Service", "inference", "chat-shadowed"]["spec"]["selector"]
    return bool(selector.get(names.COMPONENT_LABEL) == names.CAPTURE)


async def test_a_run_begins_with_the_template_as_it_is_however_short_its_hour() -> None:
    window = {"from": "08:13", "to": "08:14", "timeZone": "Etc/UTC"}
    with begun("proxy") as life:
        life.edit(schedule={"dailyWindow": window})
        await life.until_phase("Pending")
        begins = waits_until(life.world.run.spec, life.world.now)
        assert begins is not None
        while life.world.now < begins - 120:
            await life.turn()
        chat = life.server.objects["Deployment", "inference", "chat"]
        changed = {"spec": {"template": {"metadata": {"annotations": {"team": "y"}}}}}
        life.server.put(merged(chat, changed))
        await life.until_phase("Preparing")
        assert begins <= life.world.now < begins + 60
        kept = life.server.objects["ConfigMap", "inference", "x-evidence"]
        record = read_back(kept, UID).record
        assert record is not None
        assert record.template["metadata"]["annotations"]["team"] == "y"


async def test_what_was_read_back_is_not_kept_twice() -> None:
    with begun("proxy") as life:
        await life.until_phase("Running")
        life.kill()
        await life.turn()
        await life.turn()
        remembered = life.runs._line(("inference", "x")).memory
        assert remembered.books is not None
        assert not remembered.config_maps["x-evidence"].get("binaryData")


def test_whatever_is_counted_waits_for_its_turn_to_be_written() -> None:
    world = World.with_spec(comparison={"output": "Parity"})
    world.until("Running")
    for _ in range(10):
        world.turn()
    done = progress(world.observe())
    before = Status()
    after = with_progress(before, done)
    counted = {field for field in Status.model_fields if getattr(after, field) != getattr(before, field)}
    assert {"pairs", "comparison"} <= counted
    assert counted - {"start_time"} <= apply._COUNTED
