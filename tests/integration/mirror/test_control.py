"""The control port: who may ask, what is taken, and that evidence grows."""

import json

import msgspec
import pytest
from shadowrun_mirror.config import SLO, Arm, MirrorConfig, encode
from shadowrun_mirror.directive import decode_directive
from shadowrun_mirror.evidence import Evidence
from shadowrun_mirror.reasons import FailureReason

from tests.integration.mirror.engine import answers
from tests.integration.mirror.rig import INDICATORS, Rig, rig

pytestmark = pytest.mark.mirror


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/evidence"), ("PUT", "/config"), ("GET", "/directive"), ("GET", "/nothing")]
)
async def test_without_the_token_nothing_is_said(method: str, path: str) -> None:
    async with rig(answers(), answers()) as mirror:
        for token in ("w", "control-token-for-test", "control-token-for-tests2"):
            response = await mirror.control(method, path, token=token)
            assert response.status_code == 401
            assert response.content == b""
        url = f"http://127.0.0.1:{mirror.replica.control_port}{path}"
        assert (await mirror.http.request(method, url)).status_code == 401


async def test_health_and_metrics_are_open() -> None:
    async with rig(answers(), answers()) as mirror:
        health = await mirror.control("GET", "/healthz", token="none needed")
        text = await mirror.metrics()
    assert health.status_code == 200
    for result in ("mirrored", "skipped_size", "shed", "timeout", "error", "duplicate", "expired", "disabled"):
        assert f'shadowrun_mirror_requests_total{{result="{result}"}} 0.0' in text
    for outcome in ("completed", *FailureReason):
        assert f'shadowrun_mirror_answers_total{{arm="candidate",model="",outcome="{outcome}"}} 0.0' in text
    assert 'shadowrun_mirror_loop_lag_seconds{statistic="max"}' in text


async def test_every_snapshot_has_the_next_sequence_number_and_the_same_identity() -> None:
    async with rig(answers(), answers()) as mirror:
        first, second = await mirror.evidence(), await mirror.evidence()
    assert second.source.sequence == first.source.sequence + 1
    assert (second.source.pod, second.source.pod_uid, second.source.epoch) == ("mirror-0", "pod-uid", "epoch")
    assert first.run_uid == "run-uid"
    assert first.config_version == 1


async def test_the_directive_follows_the_configuration() -> None:
    async with rig(answers(), answers()) as mirror:
        directive = decode_directive((await mirror.control("GET", "/directive")).content)
        assert directive.copying
        assert directive.rules == mirror.config.capture
        await mirror.put(msgspec.structs.replace(mirror.config, version=5, window=3, copying=False))
        directive = decode_directive((await mirror.control("GET", "/directive")).content)
    assert (directive.version, directive.window, directive.copying) == (5, 3, False)


async def test_a_higher_version_is_in_force_from_the_next_copy_on() -> None:
    async with rig(answers(), answers()) as mirror:
        arms = tuple(msgspec.structs.replace(arm, model="other") for arm in mirror.config.arms)
        assert (await mirror.put(msgspec.structs.replace(mirror.config, version=2, arms=arms))).status_code == 204
        await mirror.copy()
        evidence = await mirror.settled()
        assert mirror.engines[0].got[0].json["model"] == "other"
        text = await mirror.metrics()
    assert evidence.config_version == 2
    assert 'shadowrun_mirror_answers_total{arm="candidate",model="other",outcome="completed"} 1.0' in text


def _changed(config: MirrorConfig, **changes: object) -> MirrorConfig:
    return msgspec.structs.replace(config, **{"version": config.version + 1, **changes})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 3}, "version"),
        ({"version": 4, "copying": False}, "version"),
        ({"run_uid": "another"}, "run_uid"),
        ({"window": 0}, "window"),
        ({"indicators": INDICATORS[:1]}, "indicators"),
        ({"classes": ()}, "classes"),
        ({"slo": SLO(ttft_s=9.0)}, "slo"),
        ({"class_slos": {"long": SLO()}}, "class_slos"),
        ({"block_s": 2}, "block_s"),
        ({"expiry": 4_100_000_000.0}, "expiry"),
        ({"arms": (Arm(name="baseline", host="h", port=1), Arm(name="renamed", host="h", port=1))}, "arms"),
    ],
)
async def test_what_would_change_the_evidence_is_a_conflict(changes: dict[str, object], field: str) -> None:
    async with rig(answers(), answers(), version=4) as mirror:
        before = mirror.config
        response = await mirror.put(_changed(before, **changes))
        assert response.status_code == 409
        assert response.json()["field"] == field
        assert mirror.config == before


async def test_the_same_again_is_fine() -> None:
    async with rig(answers(), answers()) as mirror:
        assert (await mirror.put(mirror.config)).status_code == 204


async def _put(mirror: Rig, content: bytes) -> tuple[int, str]:
    response = await mirror.control("PUT", "/config", content=content)
    return response.status_code, response.json()["field"]


async def test_what_makes_no_sense_is_refused_by_field() -> None:
    async with rig(answers(), answers()) as mirror:
        plain = json.loads(encode(msgspec.structs.replace(mirror.config, version=2)))
        assert await _put(mirror, b"not json") == (422, "")
        assert await _put(mirror, json.dumps(plain | {"window": "one"}).encode()) == (422, "window")
        admission = plain["admission"] | {"max_in_flight": "many"}
        assert await _put(mirror, json.dumps(plain | {"admission": admission}).encode()) == (
            422,
            "admission.max_in_flight",
        )
        assert await _put(
            mirror, json.dumps(plain | {"admission": plain["admission"] | {"timeout_s": 0}}).encode()
        ) == (
            422,
            "admission.timeout_s",
        )
        assert await _put(mirror, json.dumps(plain | {"arms": plain["arms"][:1]}).encode()) == (422, "arms")
        assert mirror.config.version == 1


async def test_unknown_fields_are_ignored_so_that_versions_may_differ() -> None:
    async with rig(answers(), answers()) as mirror:
        plain = json.loads(encode(msgspec.structs.replace(mirror.config, version=2))) | {"from_the_future": 1}
        response = await mirror.control("PUT", "/config", content=json.dumps(plain).encode())
        assert response.status_code == 204
        body = (await mirror.control("GET", "/evidence")).content
    assert Evidence.decode(body).config_version == 2
