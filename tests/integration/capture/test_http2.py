"""A client that speaks h2c reaches an h2c primary as such, and its copies are made and counted all the same."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from shadowrun_mirror.evidence import Amount

from tests.integration.capture.harness import ENVOY, MAX_BODY, Capture, Client, directive, running_scene, until
from tests.ports import free_ports

pytestmark = pytest.mark.path

TYPE = "type.googleapis.com/envoy.extensions."
OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def listener(name: str, port: int, route: dict[str, Any]) -> dict[str, Any]:
    manager = {
        "@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {
            "virtual_hosts": [{"name": name, "domains": ["*"], "routes": [{"match": {"prefix": "/"}, **route}]}]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}}],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "name": name,
        "address": address,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


@asynccontextmanager
async def two_ends(folder: Path, capture: Capture, primary_port: int) -> AsyncIterator[int]:
    """Another Envoy as both ends: gives the port where HTTP/1.1 goes in to come out as h2c towards capture.

    Its other listener is the primary: it answers with the protocol it was spoken to in.
    """
    (entrance,) = free_ports(1)
    spoken = {"header": {"key": "x-spoken", "value": "%PROTOCOL%"}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": capture.customers}}
    to_capture = {
        "name": "capture",
        "connect_timeout": "1s",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "capture",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            OPTIONS: {
                "@type": f"type.googleapis.com/{OPTIONS}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
    }
    answering = {"direct_response": {"status": 200}, "response_headers_to_add": [spoken]}
    config = {
        "static_resources": {
            "listeners": [
                listener("entrance", entrance, {"route": {"cluster": "capture"}}),
                listener("primary", primary_port, answering),
            ],
            "clusters": [to_capture],
        }
    }
    file = folder / "ends.json"
    file.write_text(json.dumps(config))
    options = ["--disable-hot-restart", "--concurrency", "1", "-l", "error"]
    process = await asyncio.create_subprocess_exec(ENVOY, "-c", file, *options)
    try:

        async def listening() -> bool:
            client = Client(entrance)
            try:
                return (await client.request([("connection", "close")], b"")).status == 200
            except (OSError, AssertionError):
                return False
            finally:
                client.close()

        await until(listening, 20.0)
        yield entrance
    finally:
        process.kill()
        await process.wait()


async def test_either_protocol_reaches_the_primary_as_the_client_spoke_it(tmp_path: Path) -> None:
    async with running_scene(tmp_path) as (capture, to_primary, to_mirror):
        await to_primary.stop()
        async with two_ends(tmp_path, capture, capture.primary_port) as entrance:
            await capture.follow(directive())
            body = b"x" * MAX_BODY
            for port, spoken in ((entrance, "HTTP/2"), (capture.customers, "HTTP/1.1")):
                client = Client(port)
                got = await client.request([("x-conversation-id", spoken)], body)
                assert (got.status, got.header("x-spoken")) == (200, spoken)
                client.close()

            async def both_copied() -> bool:
                return sorted(copy.header("x-conversation-id") or "" for copy in to_mirror.received) == [
                    "HTTP/1.1",
                    "HTTP/2",
                ]

            await until(both_copied, 3.0)
            assert [len(copy.body) for copy in to_mirror.received] == [MAX_BODY] * 2
            assert (await capture.evidence()).windows[1].sampled == Amount(requests=2, bytes=2 * MAX_BODY)
