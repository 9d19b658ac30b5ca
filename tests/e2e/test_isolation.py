"""Two tenants, each with a run, on a network that enforces policies: who reaches whom, tried from within the pods."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.cluster.base import Cluster
from tests.cluster.plugin import progress_shown
from tests.cluster.policies import enforced
from tests.e2e.world import World, shadow_run

pytestmark = [pytest.mark.operator, pytest.mark.e2e]

RUN = "tried"
ENGINE, COPIES, CONTROL = 8000, 8080, 9090
KNOCK = """
import socket, sys
address = socket.gethostbyname(sys.argv[1])  # a name that is not found is no closed door
try:
    socket.create_connection((address, int(sys.argv[2])), 4).close()
    print("open")
except OSError:
    print("closed")
"""
RESOLVE = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"


@dataclass(frozen=True)
class Tenant:
    """A namespace whose run copies."""

    world: World

    def address(self, selector: str) -> str:
        """Of the first pod with these labels."""
        address: str = self.world.all("pods", selector)[0]["status"]["podIP"]
        return address

    def part(self, component: str) -> str:
        """The address of a part of the run."""
        return self.address(f"shadowrun.dev/run={RUN},shadowrun.dev/component={component}")

    def python(self, workload: str, program: str, *args: str) -> str:
        """What a program prints inside the first container of a Deployment."""
        told = self.world.kubectl("exec", f"deployment/{workload}", "--", "python", "-c", program, *args, timeout=60)
        return told.strip()

    def reaches(self, workload: str, address: str, port: int) -> bool:
        """Whether a connection from there is taken."""
        return self.python(workload, KNOCK, address, str(port)) == "open"


@pytest.fixture(scope="module")
def tenants(request: pytest.FixtureRequest, installed: Cluster) -> Iterator[tuple[Tenant, Tenant]]:
    """The second one's arms may reach the primary of their own namespace, as its spec says."""
    tag = uuid.uuid4().hex[:4]
    first, second = (World(installed, f"e2e-tenant-{letter}-{tag}") for letter in "ab")
    with ExitStack() as stack:
        with progress_shown(request.config):
            stack.enter_context(enforced(installed))
        for world in (first, second):
            stack.callback(world.delete)
            world.create()
        own = {"to": [{"podSelector": {"matchLabels": {"app": "chat"}}}]}
        for world, more in ((first, {}), (second, {"egress": [own]})):
            run = shadow_run(RUN, duration="20m")
            run["spec"]["arms"] |= more
            world.apply(run)
        for world in (first, second):
            world.serve_customers(rate=2)
        for world in (first, second):
            world.wait_phase(RUN, "Running", 180)
        yield Tenant(first), Tenant(second)


def test_an_arm_reaches_dns_and_what_its_spec_allows_and_nothing_else(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    assert first.python(f"{RUN}-candidate", RESOLVE, "chat").startswith("10.")
    primaries = [tenant.address("app=chat") for tenant in tenants]
    assert second.reaches(f"{RUN}-candidate", primaries[1], ENGINE), "its spec says so"
    assert not second.reaches(f"{RUN}-candidate", primaries[0], ENGINE), "another tenant's is another matter"
    for arm in ("baseline", "candidate"):
        assert not first.reaches(f"{RUN}-{arm}", primaries[0], ENGINE)
        assert not first.reaches(f"{RUN}-{arm}", "kubernetes.default.svc", 443)
        assert not first.reaches(f"{RUN}-{arm}", first.part("mirror"), COPIES)
    assert not first.reaches(f"{RUN}-candidate", first.part("baseline"), ENGINE)


def test_nobody_but_its_mirror_reaches_an_arm(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    for arm in ("baseline", "candidate"):
        address = first.part(arm)
        assert first.reaches(f"{RUN}-mirror", address, ENGINE)
        assert not first.reaches("chat", address, ENGINE)
        assert not first.reaches("chat-customers-keep", address, ENGINE)
        assert not second.reaches(f"{RUN}-mirror", address, ENGINE)
        assert not second.reaches("chat", address, ENGINE)


def test_evidence_is_read_by_the_operator_and_asked_for_by_nobody_else(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    mirror = first.part("mirror")
    for tenant, workload in ((first, "chat"), (first, "chat-customers-keep"), (second, "chat")):
        assert not tenant.reaches(workload, mirror, CONTROL)
        assert not tenant.reaches(workload, mirror, COPIES)
    assert not second.reaches(f"{RUN}-mirror", mirror, CONTROL)
    for tenant in tenants:
        tenant.world.running(RUN, pairs=tenant.world.status(RUN).get("pairs", 0))  # and further ones are read


def test_customers_fare_as_without_policies(tenants: tuple[Tenant, Tenant]) -> None:
    for tenant in tenants:
        tenant.world.until("customers", lambda t=tenant: t.world.customers().ok > 0, 60)  # type: ignore[misc]
        assert tenant.world.customers().failed == 0
