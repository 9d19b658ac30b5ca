"""What Envoy is given: its bootstrap and its routes, kept as files, so that a change of any is seen in review."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from shadowrun_mirror.capture.routes import passing_routes, routes
from shadowrun_mirror.config import CREDENTIAL_HEADERS, MODULO, CaptureRules, Sampling
from shadowrun_mirror.directive import CaptureDirective
from shadowrun_operator.manifests.bootstrap import CapturePorts, ShadowBaggage, capture_bootstrap

pytestmark = pytest.mark.path

FOLDER = Path(__file__).parent / "capture"


def bootstrap(
    *,
    mirrors: int = 1,
    shadow_baggage: ShadowBaggage = "Strip",
    guarded: bool = False,
) -> Any:
    return yaml.safe_load(
        capture_bootstrap(
            listen_port=8080,
            primary_host="chat.inference.svc",
            primary_port=8000,
            mirror_hosts=("x-mirror.inference.svc" if mirrors == 1 else "x-mirror-pods.inference.svc",),
            mirror_port=8080,
            mirrors=mirrors,
            key_headers=("x-conversation-id",),
            run_uid="uid-1",
            shadow_baggage=shadow_baggage,
            guarded=guarded,
            max_body_bytes=64 << 10,
            ports=CapturePorts(admin=9901, readiness=9902, companion=9091),
        )
    )


def routes_of(sampling: Sampling, *, paused: bool = False) -> Any:
    rules = CaptureRules(paths=("/v1/chat/completions",), max_body_bytes=64 << 10, sampling=sampling)
    directive = CaptureDirective(
        version=3, run_uid="uid-1", window=2, copying=True, expiry=1e10, lease_s=10, rules=rules
    )
    return routes(directive, copying=True, paused=paused, version="3.2.copying")


CONVERSATIONS = Sampling(
    unit="Conversation", threshold=MODULO * 95 // 100, seed=2**63, key_headers=("x-conversation-id",)
)
GIVEN = {
    "bootstrap": bootstrap(),
    "bootstrap-guarded": bootstrap(guarded=True),
    "bootstrap-of-three-mirrors-that-trusts-baggage": bootstrap(mirrors=3, shadow_baggage="Trust"),
    "routes-passing": passing_routes("0.0.start"),
    "routes-by-conversation": routes_of(CONVERSATIONS),
    "routes-paused": routes_of(CONVERSATIONS, paused=True),
    "routes-by-credential-else-opening": routes_of(
        Sampling(unit="Key", threshold=1, seed=2**63, key_headers=CREDENTIAL_HEADERS[:2], on_missing_key="Lineage")
    ),
}


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_envoy_is_given_what_is_on_file(name: str, update_golden: bool) -> None:
    path = FOLDER / f"{name}.yaml"
    if update_golden:
        path.write_text(yaml.safe_dump(GIVEN[name], sort_keys=True))
    assert path.exists(), "no such file: run pytest tests/golden --update-golden"
    assert yaml.safe_load(path.read_text()) == GIVEN[name]


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(GIVEN)
