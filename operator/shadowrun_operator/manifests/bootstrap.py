"""Envoy's bootstrap for capture, its ports, and the memory its copies may take. Pure; knows nothing of Kubernetes.

Routes are not in it: they change while Envoy runs (`shadowrun_mirror.capture.routes`).
"""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import jinja2
from shadowrun_mirror.capture.outcome_log import OUTCOME_LOG, log_record
from shadowrun_mirror.config import REQUEST_ID

from shadowrun_operator.manifests import names

ShadowBaggage = Literal["Strip", "Trust"]
"""What happens to entries `shadow` and `shadow.run` of clients' baggage. Neither kind of request is copied."""

ROUTES_FOLDER = "/var/run/shadowrun"
MI = 1 << 20
_COPY_BUDGET = 64 * MI
_COPY_COST = 3
"""Of one that may be under way: it is held about twice, while it is buffered and while it is sent on. On top, with one
mirror, as many as may be under way may wait for a connection; with several, it is kept for another try."""
_MIRROR_CONNECTIONS = 16
"""To all of several mirrors. They answer as soon as they have a copy; one that waits for its turn keeps nobody
waiting. Were there as many as there are copies, dead mirrors would refuse dozens in the same instant, more than Envoy
hears of at a time (32), and a customer who pipelines can lose the connection when Envoy hears of it a turn later."""


@dataclass(frozen=True, kw_only=True)
class CapturePorts:
    """Ports of a capture pod beside the customers' one. Admin is on the loopback address only."""

    admin: int
    readiness: int
    companion: int


def capture_ports(target_port: int) -> CapturePorts:
    """The usual ports, each ten thousand higher where the primary's own port is the same number."""
    admin, readiness, companion = (
        usual if usual != target_port else usual + 10_000 for usual in (9901, 9902, names.COMPANION_PORT)
    )
    return CapturePorts(admin=admin, readiness=readiness, companion=companion)


def max_copies(max_body_bytes: int) -> int:
    """Copies one Envoy has under way at a time: as many as fit a fixed memory budget, between 4 and 256."""
    return max(4, min(256, _COPY_BUDGET // max(1, max_body_bytes)))


def envoy_memory_bytes(max_body_bytes: int) -> int:
    """Memory limit of the Envoy container: 1 GiB for customers, and what the copies may take on top."""
    return 1024 * MI + _COPY_COST * max_copies(max_body_bytes) * max_body_bytes


def capture_bootstrap(
    *,
    listen_port: int,
    primary_host: str,
    primary_port: int,
    mirror_hosts: tuple[str, ...],
    mirror_port: int,
    max_body_bytes: int,
    ports: CapturePorts,
    run_uid: str,
    outcome_log: str = OUTCOME_LOG,
    mirrors: int = 1,
    key_headers: tuple[str, ...] = (),
    shadow_baggage: ShadowBaggage = "Strip",
    guarded: bool = True,
    routes_folder: str = ROUTES_FOLDER,
    listen_address: str = "0.0.0.0",  # noqa: S104  the customers' port
) -> str:
    """Envoy's static configuration as YAML; the routes come from `routes_folder` while it runs.

    `mirrors` is how many there are behind `mirror_hosts`; more than one and copies are spread by `key_headers`, then by
    request id. Only a `guarded` path is timed: customers pay for what a run asks for.
    """
    return _bootstrap_template().render(
        listen_address=listen_address,
        listen_port=listen_port,
        primary_host=primary_host,
        primary_port=primary_port,
        mirror_hosts=mirror_hosts,
        mirror_port=mirror_port,
        mirrors=mirrors,
        connections_per_mirror=max(1, _MIRROR_CONNECTIONS // mirrors),
        hash_headers=tuple(dict.fromkeys((*key_headers, REQUEST_ID))),
        outcome_log=outcome_log,
        log_record=log_record(run_uid),
        baggage_script=_baggage_script() if shadow_baggage == "Strip" else "",
        guarded=guarded,
        max_body_bytes=max_body_bytes,
        max_copies=max_copies(max_body_bytes),
        max_heap_bytes=envoy_memory_bytes(max_body_bytes),
        admin_port=ports.admin,
        readiness_port=ports.readiness,
        routes_folder=routes_folder,
    )


@functools.cache
def _baggage_script() -> str:
    return resources.files(__package__).joinpath("baggage.lua").read_text()


@functools.cache  # compiled once for all runs
def _bootstrap_template() -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701  YAML, by tojson
    return environment.from_string(resources.files(__package__).joinpath("envoy.yaml.j2").read_text())
