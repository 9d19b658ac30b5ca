"""Envoys for the benches: capture with all its settings, as the product renders it, and a plain one to compare with."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.machine import on_the_measured_core
from tests.integration.capture.harness import ENVOY, Capture, until
from tests.ports import free_ports

# No access log, no statistics of ours, no matcher, no overload manager: a listener, a route, a cluster.
_PLAIN = """
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {listen}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: plain
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: primary, timeout: 0s}}}}]
  clusters:
  - name: primary
    type: STATIC
    load_assignment:
      cluster_name: primary
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {primary}}}}}}}
"""


@contextlib.asynccontextmanager
async def plain_envoy(primary_port: int) -> AsyncIterator[tuple[int, int]]:
    """An Envoy before the primary that does nothing else, on the measured core: its port and its pid."""
    listen, admin = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        bootstrap = Path(folder) / "plain.yaml"
        bootstrap.write_text(_PLAIN.format(admin=admin, listen=listen, primary=primary_port))
        with on_the_measured_core():
            process = await asyncio.create_subprocess_exec(
                ENVOY, "-c", bootstrap, "--disable-hot-restart", "--concurrency", "1", "-l", "error"
            )
        try:
            await until(lambda: _accepts(listen), 20.0)
            yield listen, process.pid
        finally:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def captures(capture: Capture, max_body_bytes: int) -> AsyncIterator[int]:
    """Capture's Envoy on the measured core; yields its pid. The ports in `capture` may be set before."""
    try:
        with on_the_measured_core():
            await capture.launch(max_body_bytes)
        await until(capture.is_ready, 20.0)
        assert capture.process is not None
        yield capture.process.pid
    finally:
        await capture.stop()


async def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False
