"""Copies beside an InferencePool: a real endpoint picker, and an Envoy that is set up as gateways set theirs up.

For an InferencePool a gateway asks the picker about each request, by an external processor that sees headers and body,
and sends the request to the address which the picker has put into a header. For a RequestMirror filter it has a mirror
policy on the route. The tests play the pods of the pool.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pytest
from shadowrun_mirror.config import Admission, CaptureRules, Sampling

from tests.cluster import endpointpicker
from tests.cluster.base import Cluster
from tests.cluster.plugin import progress_shown
from tests.integration.capture.faults import MIRRORS
from tests.integration.capture.harness import (
    ENVOY,
    PATH,
    Client,
    Message,
    Peer,
    answer,
    mirror,
    ok,
    request_bytes,
    until,
)
from tests.integration.capture.live_scene import total
from tests.integration.mirror.engine import Engine, answers
from tests.integration.mirror.process import MirrorProcess, running_mirror
from tests.integration.mirror.rig import configuration
from tests.ports import free_ports

pytestmark = pytest.mark.path

NAMESPACE = f"pool-{uuid.uuid4().hex[:8]}"
PODS = {"a": "127.0.0.2", "b": "127.0.0.3"}
PICKED = "x-gateway-destination-endpoint"
CONVERSATION = "x-conversation-id"
PATIENCE_S = 30.0

GATEWAY = Template("""
static_resources:
  listeners:
  - name: customers
    address: {socket_address: {address: 127.0.0.1, port_value: $customers}}
    per_connection_buffer_limit_bytes: 32768
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: customers
          use_remote_address: true
          http_filters:
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: picker}}
              message_timeout: 300s
              processing_mode:
                request_header_mode: SEND
                request_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_header_mode: SEND
                response_body_mode: FULL_DUPLEX_STREAMED
                response_trailer_mode: SEND
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: chat
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route:
                  cluster: pool
                  timeout: 0s
                  request_mirror_policies:
                  - cluster: copies
                    disable_shadow_host_suffix_append: true
                    runtime_fraction: {default_value: {numerator: 100}}
  clusters:
  - name: pool
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    connect_timeout: 10s
    per_connection_buffer_limit_bytes: 32768
    original_dst_lb_config: {use_http_header: true, http_header_name: x-gateway-destination-endpoint}
  - name: picker
    connect_timeout: 10s
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: {validation_context: {}}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: picker
      endpoints:
      - lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $picker}}}}]
  - name: copies
    connect_timeout: 60s  # gateways give it 10 s; whoever waited for it here would wait longer than the tests do
    per_connection_buffer_limit_bytes: 32768
    load_assignment:
      cluster_name: copies
      endpoints:
      - lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $copies}}}}]
""")


@dataclass(frozen=True)
class Pool:
    """An InferencePool whose picker is at work."""

    port: int
    picker: endpointpicker.Ports

    async def measured(self, name: str) -> list[float]:
        """The values of one metric of the picker's, whatever their labels."""
        client = Client(self.picker.metrics)
        try:
            got = await client.request([("Connection", "close")], b"", method="GET", path="/metrics")
        finally:
            client.close()
        lines = [line for line in got.body.decode().splitlines() if line.startswith(name + "{")]
        return [float(line.rsplit(" ", 1)[1]) for line in lines]

    async def asked(self) -> int:
        """How many requests the picker has chosen a pod for."""
        return int(sum(await self.measured("inference_objective_request_total")))

    async def is_picked_for(self) -> bool:
        """Whether the picker serves gateways and knows all pods."""
        try:
            (await asyncio.open_connection("127.0.0.1", self.picker.picks))[1].close()
            return len(await self.measured("inference_pool_per_pod_queue_size")) == len(PODS)
        except OSError:
            return False


def pool_and_pods(port: int, picker: int) -> list[dict[str, object]]:
    """Pods that no scheduler takes: only the API server knows them, and it is told that they are ready."""
    container = {"name": "engine", "image": "none"}
    pods: list[dict[str, object]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "chat"}},
            "spec": {"schedulerName": "nobody", "containers": [container]},
        }
        for name in PODS
    ]
    pool: dict[str, object] = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": "chat"}},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {"name": "chat-picker", "port": {"number": picker}},
        },
    }
    return [pool, *pods]


def ready_at(address: str) -> str:
    ready = {"type": "Ready", "status": "True"}
    return json.dumps(
        {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}}
    )


@pytest.fixture(scope="module")
def pool(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    port, *ports = free_ports(4)
    made = Pool(port, endpointpicker.Ports(*ports))
    endpointpicker.install_definitions(cluster)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, timeout=60)
    cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, pool_and_pods(port, ports[0]))))
    for name, address in PODS.items():
        patch = ("patch", "pod", name, "-n", NAMESPACE, "--subresource=status", "--type=merge")
        cluster.kubectl(*patch, "-p", ready_at(address))
    log = tmp_path_factory.mktemp("picker") / "log"
    with progress_shown(request.config), endpointpicker.running(cluster, NAMESPACE, "chat", made.picker, log):
        asyncio.run(_until_ready(made))
        yield made
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


async def _until_ready(pool: Pool) -> None:
    await until(pool.is_picked_for, 60.0)


async def serves(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """A pod of the pool; the picker asks for its metrics many times a second."""
    if head.start.startswith("GET "):
        await answer(writer, "404 Not Found", [])
        return True
    return await ok(head, reader, writer)


@dataclass
class Gateway:
    """An inference gateway at work."""

    customers: int
    copies: int
    pods: list[Peer]

    @property
    def served(self) -> dict[str | None, tuple[str, Message]]:
        """Conversation → the endpoint that served its request, and the request."""
        return {
            request.header(CONVERSATION): (f"{pod.host}:{pod.port}", request)
            for pod in self.pods
            for request in pod.received
            if request.start.startswith("POST ")
        }


@asynccontextmanager
async def gateway(folder: Path, pool: Pool, *, picker: int | None = None) -> AsyncIterator[Gateway]:
    """Envoy and the pool's pods; what stands on the port of copies is the test's. `picker`: where it is asked."""
    customers, copies = free_ports(2)
    path = folder / "gateway.yaml"
    path.write_text(GATEWAY.substitute(customers=customers, picker=picker or pool.picker.picks, copies=copies))
    pods = [Peer(pool.port, serves, host=address) for address in PODS.values()]
    async with AsyncExitStack() as stack:
        for pod in pods:
            pod.behaviour = pod.keeping(serves)
            await pod.start()
            stack.push_async_callback(pod.stop)
        with (folder / "envoy.log").open("wb") as log:
            options = ("--disable-hot-restart", "--concurrency", "1", "-l", "error")
            process = await asyncio.create_subprocess_exec(ENVOY, "-c", path, *options, stdout=log, stderr=log)

        async def end() -> None:
            process.kill()
            await process.wait()

        stack.push_async_callback(end)

        async def listens() -> bool:
            assert process.returncode is None, (folder / "envoy.log").read_text()
            try:
                (await asyncio.open_connection("127.0.0.1", customers))[1].close()
            except OSError:
                return False
            return True

        await until(listens, PATIENCE_S)
        yield Gateway(customers, copies, pods)


@asynccontextmanager
async def accepting(port: int) -> AsyncIterator[Peer]:
    """A mirror that accepts at once."""
    peer = await mirror(port).start()
    try:
        yield peer
    finally:
        await peer.stop()


def chat(size: int) -> bytes:
    """A body as clients of inference engines send it."""
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * size}]}).encode()


BODIES = [chat(size) for size in (1, 900, 9_000, 70_000, 300_000, 900_000)]
LARGE = chat(10_000_000)
"""More than the kernel's buffers hold."""


async def ask(door: Gateway, bodies: list[bytes], *headers: tuple[str, str]) -> list[int]:
    """Requests one after the other over one connection, each in a conversation of its own; their statuses."""
    client = Client(door.customers)
    statuses = []
    for number, body in enumerate(bodies):
        named = [("Content-Type", "application/json"), (CONVERSATION, f"c{number}"), *headers]
        got = await asyncio.wait_for(client.request(named, body), PATIENCE_S)
        statuses.append(got.status)
    client.close()
    return statuses


async def test_a_copy_is_what_the_pod_got_and_tells_its_endpoint_and_the_picker_never_sees_it(
    pool: Pool, tmp_path: Path
) -> None:
    asked = await pool.asked()
    async with gateway(tmp_path, pool) as door, accepting(door.copies) as to_mirror:
        assert await ask(door, BODIES) == [200] * len(BODIES)

        async def arrived() -> bool:
            return len(to_mirror.received) >= len(BODIES)

        await until(arrived, PATIENCE_S)
        copies = {copy.header(CONVERSATION): copy for copy in to_mirror.received}
        assert len(to_mirror.received) == len(copies) == len(door.served) == len(BODIES)
        for number, body in enumerate(BODIES):
            copy, (endpoint, original) = copies[f"c{number}"], door.served[f"c{number}"]
            assert copy.header(PICKED) == original.header(PICKED) == endpoint
            assert copy.start == original.start == f"POST {PATH} HTTP/1.1"
            assert copy.header("x-request-id") == original.header("x-request-id") is not None
            assert copy.body == original.body
            assert json.loads(copy.body) == json.loads(body)
    assert await pool.asked() == asked + len(BODIES)


async def test_nothing_is_copied_before_the_picker_has_all_of_a_request(pool: Pool, tmp_path: Path) -> None:
    async with gateway(tmp_path, pool) as door, accepting(door.copies) as to_mirror:
        begun: list[Message] = []
        accepts = to_mirror.behaviour

        async def notes(head: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            begun.append(head)
            return await accepts(head, reader, writer)

        to_mirror.behaviour = notes
        client = Client(door.customers)
        request = request_bytes([("Content-Type", "application/json")], chat(300_000))
        await client.send(request[:200_000])
        await asyncio.sleep(0.5)
        assert (begun, door.served) == ([], {})
        await client.send(request[200_000:])
        assert (await client.receive()).status == 200
        client.close()

        async def arrived() -> bool:
            return len(to_mirror.received) == 1

        await until(arrived, PATIENCE_S)


async def test_no_arm_is_told_what_the_picker_has_chosen(pool: Pool, tmp_path: Path) -> None:
    async with gateway(tmp_path, pool) as door, Engine(answers()) as baseline, Engine(answers()) as candidate:
        config = configuration(
            [baseline.port, candidate.port],
            capture=CaptureRules(
                paths=(PATH,), max_body_bytes=1 << 20, sampling=Sampling(unit="Request", threshold=0, seed=9)
            ),
            admission=Admission(max_in_flight=2 * len(BODIES), timeout_s=10.0),
            source="External",
        )
        boot = tmp_path / "mirror"
        boot.mkdir()
        async with running_mirror(MirrorProcess(boot, door.copies, *free_ports(1)), config) as real:
            told = (("x-gateway-inference-objective", "batch"), ("x-prefiller-host-port", "192.0.2.1:8000"))
            assert await ask(door, BODIES, *told) == [200] * len(BODIES)

            async def all_arrived() -> bool:
                return total(await real.settled()).received.requests == len(BODIES)

            await until(all_arrived, PATIENCE_S)
            counted = total(await real.settled())
        assert counted.arms["candidate"].completed.requests == len(BODIES)
        for arm in (baseline, candidate):
            assert len(arm.got) == len(BODIES)
            names = {name.lower() for got in arm.got for name, _ in got.headers}
            assert CONVERSATION in names
            assert {name for name in names if name.startswith(("x-gateway-", "x-prefiller-"))} == set()


@pytest.mark.parametrize("fault", ["down", "blackholed", "never-reads", "never-answers", "hangs-up"])
async def test_no_customer_waits_for_a_mirror_that_is_unwell_however_large_the_request(
    fault: str, pool: Pool, tmp_path: Path
) -> None:
    """The picker has the whole request before any of it goes on; without one a customer waits until they give up."""
    async with gateway(tmp_path, pool) as door, MIRRORS[fault](door.copies):
        assert await ask(door, [*BODIES, LARGE]) == [200] * (len(BODIES) + 1)
        assert all(request.header(PICKED) == endpoint for endpoint, request in door.served.values())


async def test_a_request_that_the_picker_turns_down_is_not_copied(pool: Pool, tmp_path: Path) -> None:
    async with gateway(tmp_path, pool) as door, accepting(door.copies) as to_mirror:
        assert await ask(door, [b"no JSON"]) == [400]
        assert await ask(door, [chat(1)], ("x-which", "good")) == [200]

        async def arrived() -> bool:
            return to_mirror.received != []

        await until(arrived, PATIENCE_S)
        assert [copy.header("x-which") for copy in to_mirror.received] == ["good"]


async def test_without_a_picker_customers_fail_and_nothing_is_copied(pool: Pool, tmp_path: Path) -> None:
    async with gateway(tmp_path, pool, picker=free_ports(1)[0]) as door, accepting(door.copies) as to_mirror:
        (status,) = await ask(door, [chat(1)])
        assert (status // 100, door.served, to_mirror.received) == (5, {}, [])
